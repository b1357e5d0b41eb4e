"""Faults of a node with real containers: afterwards all books agree with what containers see."""

import json

import pytest
from controlplane.manifests import NAMESPACE
from controlplane.node.chain import container
from controlplane.process import wait_until
from controlplane.scorer import ACCOUNT

from linkwise.cluster import keys


def gpus(count):
    return {keys.GPU_WHOLE: count}


@pytest.fixture(scope="module", autouse=True)
def offered(running):
    wait_until(lambda: running.allocatable(keys.GPU_WHOLE) == 8, "the node offers its GPUs")
    wait_until(lambda: running.scorer.look("/v1/nodes")["nodes"], "the scorer knows the node")


def status(chain, pod):
    [found] = chain.pods.all()[pod]["status"]["containerStatuses"]
    return found


# ---- Processes.


def test_pods_run_on_while_the_agent_is_gone_and_new_ones_wait_until_it_is_back(chain):
    chain.create("before", container(gpus(2)))
    before = chain.has("before")
    chain.agent.kill()
    wait_until(lambda: chain.allocatable(keys.GPU_WHOLE) == 0, "the node offers no GPU")

    chain.create("during", container(gpus(2)))
    chain.agent.start()

    during = chain.has("during")
    assert during == chain.recorded("during")
    assert status(chain, "before")["restartCount"] == 0
    assert chain.wait_until_books_agree() == {"before": before, "during": during}


def test_pods_run_on_while_the_kubelet_is_gone_and_jobs_start_after_it_is_back(chain):
    chain.create("before", container(gpus(2)))
    before = chain.has("before")
    chain.node.kill_kubelet()

    # The kubelet fails pods that it gets before it knows the device plugin again.
    chain.create_job("during", container(gpus(2)))
    chain.node.start_kubelet()

    during = chain.wait_for_pod_of("during")
    assert chain.has(during) == chain.recorded(during)
    assert status(chain, "before")["restartCount"] == 0
    assert chain.wait_until_books_agree() == {"before": before, during: chain.recorded(during)}


def test_jobs_have_gpus_again_after_a_reboot(chain):
    chain.create_job("small", container(gpus(3)))
    chain.create_job("large", container(gpus(5)))
    before = {chain.wait_for_pod_of(job) for job in ("small", "large")}
    for pod in before:
        chain.has(pod)
    chain.agent.kill()

    chain.node.reboot()
    assert chain.cdi_files == []
    chain.agent.start()

    # The kubelet fails all pods with devices, since no device plugin is registered yet.
    wait_until(lambda: before.isdisjoint(chain.running()), "the pods before the reboot failed")
    small, large = chain.wait_for_pod_of("small"), chain.wait_for_pod_of("large")
    assert chain.has(small) == chain.recorded(small)
    assert chain.has(large) == set(range(8)) - chain.has(small)
    chain.wait_until_books_agree()


# ---- GPUs.


def test_a_lost_gpu_is_published_and_its_pod_runs_on(chain, lose):
    chain.create("pod", container(gpus(1)))
    [lost] = chain.has("pod")
    # Modules that share the control plane have lost GPUs of this node, too.
    earlier = chain.events("GPUUnhealthy", chain.node.name)

    def messages():
        found = chain.events("GPUUnhealthy", chain.node.name)
        return [message for message in found if message not in earlier]

    lose(lost)

    def is_published():
        devices = json.loads(chain.agent.published["data"]["devices"])
        return devices[str(lost)] == "Unhealthy"

    wait_until(is_published, "the GPU is published as unhealthy", 30)
    wait_until(lambda: chain.allocatable(keys.GPU_WHOLE) == 7, "the node offers 7 GPUs")
    wait_until(messages, "an Event names the GPU")
    [message] = messages()
    assert chain.gpus.uuids[lost] in message
    # Kubernetes counts the pod on the lost GPU against the 7.
    chain.create("others", container(gpus(6)))
    assert lost not in chain.has("others")
    assert status(chain, "pod")["restartCount"] == 0
    chain.wait_until_books_agree()


# ---- Records.


@pytest.fixture
def as_scorer(plane):
    """Changes the record of a pod as only the scorer can."""
    api = plane.api_as(plane.token(NAMESPACE, ACCOUNT))

    def change(chain, pod, record):
        patch = {"metadata": {"annotations": {keys.ALLOCATION: record}}}
        api.patch(f"{chain.pods.path}/{pod}", patch)

    return change


def other_gpu(record, gpu, uuid):
    changed = json.loads(record)
    changed["gpus"] = [{"i": gpu, "uuid": uuid}]
    return json.dumps(changed)


@pytest.mark.parametrize(
    ("make", "reason"),
    [
        pytest.param(lambda _record, _taken, _uuids: None, "is missing", id="missing"),
        pytest.param(lambda _record, _taken, _uuids: "{", "is unreadable", id="unreadable"),
        pytest.param(
            lambda record, _taken, _uuids: other_gpu(record, 8, None), "no GPU 8", id="no such GPU"
        ),
        pytest.param(
            lambda record, taken, _uuids: other_gpu(record, taken, "GPU-forged"),
            "GPU-forged when it was allocated",
            id="another UUID",
        ),
        pytest.param(
            lambda record, taken, uuids: other_gpu(record, taken, uuids[taken]),
            "belongs to container main of pod",
            id="GPU of another pod",
        ),
    ],
)
def test_a_container_without_a_valid_record_does_not_start(chain, as_scorer, make, reason):
    chain.create("other", container(gpus(1)))
    [taken] = chain.has("other")
    chain.create("pod", container(gpus(1)))
    own = chain.has("pod")
    record = chain.pods.all()["pod"]["metadata"]["annotations"][keys.ALLOCATION]

    as_scorer(chain, "pod", make(record, taken, chain.gpus.uuids))
    # Its status comes later than its output.
    wait_until(lambda: "running" in status(chain, "pod")["state"], "its status says that it runs")
    chain.node.kill_container(chain.pods.all()["pod"], "main")

    wait_until(lambda: chain.events("GPUsNotBound", "pod"), "an Event has the reason")
    assert reason in chain.events("GPUsNotBound", "pod")[0]
    wait_until(lambda: "waiting" in status(chain, "pod")["state"], "the container waits")
    assert {one.pod for one in chain.bindings()} == {"other"}
    assert chain.recorded("other") == {taken}

    as_scorer(chain, "pod", record)
    wait_until(lambda: "running" in status(chain, "pod")["state"], "the container runs again")
    assert chain.has("pod", restart=status(chain, "pod")["restartCount"]) == own


# ---- Modes.


@pytest.fixture
def switched(chain):
    """The chain of a node whose mode a test changes; afterwards it offers whole GPUs again."""
    yield chain
    chain.delete(*chain.pods.all())
    chain.switch("topology")
    wait_until(lambda: chain.allocatable(keys.GPU_WHOLE) == 8, "the node offers whole GPUs")


def restart_kubelet(chain):
    chain.node.kill_kubelet()
    chain.node.start_kubelet()


def test_the_mode_is_changed_only_when_nothing_is_in_use(switched):
    chain = switched
    chain.create("pod", container(gpus(1)))
    held = chain.has("pod")
    wait_until(lambda: chain.mode_in_use == "topology", "the agent publishes the mode in use")

    assert "GPUs of mode topology: drain it" in chain.label(**{keys.NODE_MODE: "share"})
    assert "GPUs of mode topology: drain it" in chain.label(**{keys.NODE_MODE: None})
    # The kubelet compares running pods with the labels of the node when it starts.
    restart_kubelet(chain)
    wait_until(lambda: chain.allocatable(keys.GPU_WHOLE) == 8, "the node offers whole GPUs")
    assert chain.wait_until_books_agree() == {"pod": held}
    assert status(chain, "pod")["restartCount"] == 0
    chain.delete("pod")

    chain.switch("share")
    wait_until(lambda: chain.allocatable(keys.GPU_MEM) == 256, "the node offers shares")
    assert chain.allocatable(keys.GPU_WHOLE) == 0
    chain.create("share", container({keys.GPU_MEM: 4}))
    assert len(chain.has("share")) == 1
    chain.wait_until_books_agree()


def test_a_restarted_kubelet_ends_no_pod_while_a_mode_waits(switched):
    chain = switched
    chain.switch("share")
    wait_until(lambda: chain.allocatable(keys.GPU_MEM) == 256, "the node offers shares")
    # It requires no mode: its resource selects the nodes.
    chain.create("pod", container({keys.GPU_MEM: 4}))
    held = chain.has("pod")
    wait_until(lambda: chain.mode_in_use == "share", "the agent publishes the mode in use")
    without = {"metadata": {"annotations": {keys.MODE_IN_USE: None}}}
    chain.pods.api.patch(chain.node.path, without)
    chain.switch("topology")
    node = chain.node.name
    wait_until(lambda: chain.events("ModeNotSwitched", node), "an Event has the reason")
    assert "is in use by pods of this node" in chain.events("ModeNotSwitched", node)[-1]

    restart_kubelet(chain)

    wait_until(lambda: chain.allocatable(keys.GPU_MEM) == 256, "the node offers shares")
    assert chain.allocatable(keys.GPU_WHOLE) == 0
    # The scorer counts nothing on a node whose containers have GPUs of another mode.
    wait_until(lambda: chain.listed() == chain.bound() != set(), "the kubelet lists the pod")
    assert chain.books()["CDI files"] == {"pod": held}
    assert chain.running().keys() == {"pod"}
    assert status(chain, "pod")["restartCount"] == 0
    chain.delete("pod")
    wait_until(lambda: chain.allocatable(keys.GPU_WHOLE) == 8, "the node offers whole GPUs")
