"""A claims node with a real kubelet and containers, and a driver in place of NVIDIA's."""

import json
import time
from dataclasses import dataclass
from signal import SIGKILL

import pytest
from controlplane.claims_nodes import CLASSES, RULES, device_class, gets_claim
from controlplane.dra import claims_of
from controlplane.manifests import NAMESPACE
from controlplane.node.agent import agent_of
from controlplane.node.chain import PATIENCE, Chain, container
from controlplane.node.cleaner import frozen, processes
from controlplane.node.dra_driver import driver_of, is_published
from controlplane.node.gpus import StandInGPUs
from controlplane.node.machine import real_node
from controlplane.pods import Pods
from controlplane.process import Process, wait_until
from controlplane.scorer import ACCOUNT
from nvml.standin import compiler

from linkwise.cluster import keys
from linkwise.cluster.allocations.device_claim import TOLERATION
from linkwise.cluster.keys import TOPOLOGY_NAME_PREFIX, TOPOLOGY_NAMESPACE
from linkwise.planning.gang.crd import GANGS
from scorer.cache.nodes.unreleased_gpus import CLOSED_FOR

NODE = "real"
REFUSED = "is already allocated to different claim of-others"
"""The words of the driver."""

pytestmark = pytest.mark.versions


@dataclass
class ClaimsChain(Chain):
    """Everything that runs, with the driver in place of the agent."""

    driver: Process

    @property
    def held(self):
        """The GPUs that pods hold, as the scorer sees the node."""
        [node] = self.scorer.look(f"/v1/nodes?name={NODE}")["nodes"]
        return {gpu["i"] for gpu in node["gpus"] if gpu["holders"]}

    def start_driver(self):
        """Start the driver, with the minors as they are now."""
        self.driver = driver_of(self.node, self.gpus)
        self.node.plane.processes.start(self.driver)

    def stop_driver(self):
        """End the driver."""
        if self.driver in self.node.plane.processes.running:
            self.node.plane.processes.stop(self.driver)


@pytest.fixture(scope="module")
def running(placing, plane, programs_of_node, labels, machine):
    """Webhook, scorer, kubelet, containerd and the driver."""
    if compiler() is None:
        pytest.skip("needs gcc")
    plane.api.create(CLASSES, device_class())
    try:
        with real_node(plane, programs_of_node, NODE, labels) as node:
            cards = StandInGPUs(node.root, machine)
            driver = driver_of(node, cards)
            chain = ClaimsChain(Pods(plane.api, "default"), node, cards, None, placing, driver)
            plane.processes.start(driver)
            try:
                wait_until(lambda: gets_claim(chain.pods), "admission knows the node")
                yield chain
            finally:
                chain.stop_driver()
    finally:
        plane.api.delete(f"{CLASSES}/{keys.DRA_GPU_DRIVER}")


def gpus(count):
    return {keys.NVIDIA_GPU: count}


def test_containers_of_a_gang_see_exactly_the_planned_gpus(chain):
    labels = {keys.POD_GROUP_NAME: "ring", keys.POD_GROUP_MIN_AVAILABLE: "4"}
    names = [f"ring-{index}" for index in range(4)]
    for name in names:
        chain.create(name, container(gpus(2)), labels=labels)

    seen = {name: chain.has(name) for name in names}

    assert seen == {name: chain.recorded(name) for name in names}
    assert set().union(*seen.values()) == set(range(8))
    assert chain.seen("ring-0").variables["NVIDIA_VISIBLE_DEVICES"] == "void"


def test_each_container_of_a_pod_sees_its_own_gpus_and_an_init_container_those_of_one(chain):
    early = container(gpus(1), "early", then="exit 0")
    containers = (container(gpus(1), "one"), container(gpus(2), "two"), container({}, "none"))
    chain.create("pod", *containers, spec={"initContainers": [early]})

    one, two = chain.has("pod", "one"), chain.has("pod", "two")

    assert (len(one), len(two)) == (1, 2)
    assert one | two == chain.recorded("pod")
    assert chain.has("pod", "none") == set()
    assert len(chain.has("pod", "early")) >= 1
    assert chain.has("pod", "early") <= one | two


def test_containers_keep_their_gpus_when_they_or_the_driver_are_restarted(chain):
    chain.create("pod", container(gpus(2)))
    before = chain.has("pod")
    chain.driver.signal(SIGKILL)
    chain.stop_driver()
    chain.start_driver()
    wait_until(lambda: "main" in running_containers(chain, "pod"), "its status says so")
    chain.node.kill_container(chain.pods.all()["pod"], "main")

    assert chain.has("pod", restart=1) == before == chain.recorded("pod")


def running_containers(chain, pod):
    statuses = chain.pods.all()[pod]["status"].get("containerStatuses", ())
    return {one["name"] for one in statuses if "running" in one["state"]}


def test_pods_run_on_while_a_kubelet_starts_and_new_ones_wait_for_the_slices(chain):
    chain.create("before", container(gpus(3)))
    before = chain.has("before")
    chain.node.kill_kubelet()
    chain.node.start_kubelet()
    wait_until(lambda: not is_published(chain.node), "the kubelet has deleted the slices")

    chain.create("during", container(gpus(5)))

    wait_until(lambda: chain.events("WaitingForGPUs", "during"), "an Event has the reason")
    assert "slices" in chain.events("WaitingForGPUs", "during")[0]
    assert chain.held == before
    during = chain.has("during")
    assert during == chain.recorded("during") == set(range(8)) - before
    [status] = chain.pods.all()["before"]["status"]["containerStatuses"]
    assert status["restartCount"] == 0


def closed(chain):
    """Return the GPUs that get no new pods."""
    [node] = chain.scorer.look(f"/v1/nodes?name={NODE}")["nodes"]
    return {gpu["i"] for gpu in node["gpus"] if gpu["cordoned"]}


def test_gpus_of_a_pod_that_was_deleted_at_once_are_closed_for_90_s_and_others_are_not(chain):
    chain.create("first", container(gpus(2)))
    held = chain.has("first")
    chain.pods.api.delete(f"{chain.pods.path}/first", gracePeriodSeconds="0")
    gone = time.monotonic()
    wait_until(lambda: closed(chain) == held, "they are closed")

    chain.create("second", container(gpus(6)))
    chain.create("third", container(gpus(2)))

    assert chain.has("second") == set(range(8)) - held
    wait_until(lambda: not closed(chain), "they are open again", 2 * CLOSED_FOR)
    assert time.monotonic() > gone + CLOSED_FOR - 1
    assert chain.has("third") == held == chain.recorded("third")


@pytest.fixture
def agent(chain):
    """The agent, which a label of the node lets watch only."""
    node, api = chain.node, chain.node.plane.api
    seen = node.root / node.kubelet_folder.relative_to("/")
    seen.parent.mkdir(parents=True, exist_ok=True)
    seen.symlink_to(node.kubelet_folder)

    def label(value):
        api.patch(node.path, {"metadata": {"labels": {keys.RESOURCE_NAME: value}}})

    label(keys.DRA_GPU_DRIVER)
    agent = agent_of(node, chain.gpus)
    agent.start()
    try:
        yield agent
    finally:
        agent.stop()
        label(None)
        maps = f"/api/v1/namespaces/{TOPOLOGY_NAMESPACE}/configmaps"
        api.delete(f"{maps}/{TOPOLOGY_NAME_PREFIX}{node.name}")
        seen.unlink()


def busy(chain):
    """Return the GPUs that a DeviceTaintRule keeps from every claim."""
    rules = [rule["spec"] for rule in chain.pods.api.get(RULES)["items"]]
    devices = {
        rule["deviceSelector"]["device"] for rule in rules if rule["taint"]["key"] == keys.BUSY
    }
    return {i for i, card in enumerate(chain.gpus.cards) if f"gpu-{card.minor}" in devices}


def create_with_claim(chain, plane, pod, gpu):
    """Create a pod with a claim for one GPU that tolerates the fence, as those of Linkwise do."""
    uuid = f"device.attributes['{keys.DRA_GPU_DRIVER}'].uuid == '{chain.gpus.uuids[gpu]}'"
    exactly = {
        "deviceClassName": keys.DRA_GPU_DRIVER,
        "tolerations": [TOLERATION],
        "selectors": [{"cel": {"expression": uuid}}],
    }
    spec = {"devices": {"requests": [{"name": "gpu", "exactly": exactly}]}}
    scorer = plane.api_as(plane.token(NAMESPACE, ACCOUNT))
    scorer.create(claims_of(chain.pods.namespace), {"metadata": {"name": pod}, "spec": spec})
    named = container(resources={"claims": [{"name": "gpu"}]})
    claims = [{"name": "gpu", "resourceClaimName": pod}]
    chain.create(pod, named, spec={"resourceClaims": claims}, labels={keys.CLAIMS: "false"})


def test_no_claim_gets_a_gpu_on_which_a_process_of_a_pod_runs_that_vanished(chain, plane, agent):
    chain.create("hung", container(gpus(2)))
    held = chain.has("hung")
    cgroup = chain.cgroup_of("hung")
    for gpu in held:
        chain.gpus.nvml.set_processes(gpu, processes(cgroup))
    with frozen(cgroup):
        chain.pods.api.delete(f"{chain.pods.path}/hung", gracePeriodSeconds="0")
        gone = time.monotonic()
        wait_until(lambda: busy(chain) == held, "rules keep the GPUs from all claims", PATIENCE)
        chain.create("others", container(gpus(6)))
        assert chain.has("others") == set(range(8)) - held
        wait_until(lambda: time.monotonic() > gone + CLOSED_FOR + 5, "others would have it now", 99)
        assert closed(chain) == held
        create_with_claim(chain, plane, "late", min(held))
        chain.create("next", container(gpus(1)))
        wait_until(lambda: chain.events("WaitingForGPUs", "next"), "it waits, with a reason")
        wait_until(lambda: chain.events("FailedScheduling", "late"), "kube-scheduler has tried")
        assert "cannot allocate all claims" in chain.events("FailedScheduling", "late")[0]
        assert (busy(chain), processes(cgroup) != set()) == (held, True)

    assert chain.has("late") == {min(held)}
    assert chain.has("next") == held - {min(held)}
    assert (busy(chain), processes(cgroup)) == (set(), set())
    # The claim is none of a pod that Linkwise placed.
    assert closed(chain) == {min(held)}
    chain.delete("late")
    wait_until(lambda: closed(chain) == set(), "no GPU is closed")
    assert not chain.allocatable(keys.GPU_WHOLE)
    assert agent.ready


def test_gpus_of_a_pod_that_was_deleted_as_usual_are_free_at_once(chain):
    chain.create("first", container(gpus(8)))
    chain.has("first")
    chain.delete("first")
    gone = time.monotonic()

    chain.create("second", container(gpus(8)))

    assert chain.has("second") == set(range(8))
    assert time.monotonic() < gone + CLOSED_FOR


def test_the_reason_of_a_driver_that_refuses_a_claim_is_in_an_event_and_in_the_gang(chain):
    path = chain.node.kubelet_folder / "plugins" / keys.DRA_GPU_DRIVER / "checkpoint.json"
    chain.create("first", container(gpus(1)))
    chain.has("first")
    chain.stop_driver()
    before = path.read_text()
    stored = json.loads(before)
    stored["claims"]["of-others"] = [f"gpu-{card.minor}" for card in chain.gpus.cards]
    path.write_text(json.dumps(stored))
    chain.start_driver()
    labels = {keys.POD_GROUP_NAME: "one", keys.POD_GROUP_MIN_AVAILABLE: "1"}
    chain.create("pod", container(gpus(1)), labels=labels)

    wait_until(lambda: chain.events("ClaimNotPrepared", "pod"), "an Event says so", PATIENCE)
    [event] = chain.events("ClaimNotPrepared", "pod")
    assert "its kubelet says: " in event
    assert REFUSED in event

    def condition():
        gangs = chain.pods.api.get(GANGS)["items"]
        conditions = [one for gang in gangs for one in gang["status"]["conditions"]]
        return [one for one in conditions if one["type"] == "PodsPrepared"]

    wait_until(lambda: any(REFUSED in one["message"] for one in condition()), "so does its Gang")
    chain.stop_driver()
    path.write_text(before)
    chain.start_driver()
    assert chain.has("pod") == chain.recorded("pod")
    wait_until(lambda: [one["status"] for one in condition()] == ["True"], "it is prepared")


def test_after_a_reboot_with_other_minors_the_account_is_what_containers_see(chain):
    chain.create("pod", container(gpus(3)))
    before = chain.has("pod")
    chain.stop_driver()
    chain.gpus.renumber()
    chain.node.reboot()
    chain.start_driver()

    after = chain.has("pod", restart=1)

    assert after == {7 - gpu for gpu in before}
    wait_until(lambda: chain.held == after, "the slices count", PATIENCE)
    chain.create("others", container(gpus(5)))
    assert chain.has("others") == set(range(8)) - after
