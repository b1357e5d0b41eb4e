"""Claims nodes without a fence: DeviceTaintRules are not served, or kube-scheduler ignores them."""

import json
import subprocess
import sys
from datetime import datetime
from itertools import combinations
from pathlib import Path

import pytest
from controlplane.claims_nodes import RULES, SERVING_RULES, UNFENCED, recorded
from controlplane.dra import claiming, claims_of, make_claim
from controlplane.gangs import gang_labels, wait_for_phase
from controlplane.plane import control_plane
from controlplane.pods import gates
from controlplane.process import wait_until

from linkwise.cluster import keys
from linkwise.cluster.scorer_lease import LEASE
from linkwise.planning.gang.crd import gangs_of
from linkwise.runtime.process.clock import wall
from linkwise.topology import catalogue
from linkwise.topology.machine import mask_of
from linkwise.topology.table import table_of

LINKWISE = Path(sys.executable).with_name("linkwise")
CLASSES = "/apis/scheduling.k8s.io/v1/priorityclasses"
PATIENCE = 120
UNSERVED = "the API server serves no DeviceTaintRules"
IGNORED = "it ignores DeviceTaintRules"

pytestmark = pytest.mark.versions


@pytest.fixture(scope="module")
def plane(programs, tmp_path_factory):
    """A control plane that neither serves nor applies DeviceTaintRules."""
    with control_plane(tmp_path_factory.mktemp("plane"), programs, **UNFENCED) as plane:
        plane.api.create(CLASSES, {"metadata": {"name": "first"}, "value": 1000})
        yield plane


def wait_until_said(plane, pods, placing, node, reason):
    """Wait until metrics, `inspect` and `explain` say that a node is unfenced, and why."""
    pods.create({}, name="any")

    def is_announced():
        annotations = plane.api.get(LEASE)["metadata"]["annotations"]
        return reason in annotations.get(keys.UNFENCED_NODES, "")

    wait_until(lambda: placing.metrics["linkwise_unfenced_nodes"] == 1, "it is counted", PATIENCE)
    wait_until(is_announced, "the leader has said so in its Lease", PATIENCE)
    for arguments in (["inspect"], ["explain", "pod", f"{pods.namespace}/any"]):
        ran = subprocess.run(
            [LINKWISE, *arguments, "--kubeconfig", plane.kubeconfig],
            capture_output=True,
            text=True,
            check=False,
        )
        assert f"node {node}: claims of others may get its GPUs: " in ran.stderr
        assert reason in ran.stderr


def claim_of_gpu(api, namespace, name, uuid):
    """Create a claim of others for exactly one GPU."""
    expression = f"device.attributes['{keys.DRA_GPU_DRIVER}'].uuid == '{uuid}'"
    request = {
        "deviceClassName": keys.DRA_GPU_DRIVER,
        "selectors": [{"cel": {"expression": expression}}],
    }
    spec = {"devices": {"requests": [{"name": "gpu", "exactly": request}]}}
    api.create(claims_of(namespace), {"metadata": {"name": name}, "spec": spec})


def lose_a_race(plane, pods, claims):
    """Let others take the GPUs of a gang between its plan and its allocation; it gets other ones.

    A scheduler that starts reads all pods first, and takes those of the highest priority.
    """
    names = {f"bert-{index}" for index in range(2)}
    with plane.without("kube-scheduler"):
        for name in names:
            pods.create({keys.NVIDIA_GPU: 1}, name=name, labels=gang_labels("bert", 2))
        wait_until(lambda: recorded(pods).keys() >= names, "the gang is planned", PATIENCE)
        planned = {name: recorded(pods)[name] for name in names}
        wait_until(lambda: not any(map(gates, pods.all().values())), "no gate is left", PATIENCE)
        for name, (uuid,) in planned.items():
            claim_of_gpu(plane.api, pods.namespace, f"other-{name}", uuid)
            spec = {**claiming(f"other-{name}"), "priorityClassName": "first"}
            pods.create(name=f"other-{name}", spec=spec)

    wait_for_phase(pods, "bert", "Placed", members="2/2")
    held = claims.allocated(pods.namespace)
    assert {name: held[f"other-{name}"] for name in names} == planned
    assert {name: held[name] for name in names} == recorded(pods)
    assert len(frozenset().union(*held.values())) == 4
    lost = {gpus.index(uuid) for gpus in indices(claims) for (uuid,) in planned.values()}
    free = sorted({*range(8)} - lost)
    best = max(map(bandwidth, combinations(free, 2)))
    wait_until(lambda: plan_of(pods) == (records(pods, names), best), "the Gang has its GPUs")
    assert bandwidth([gpu for gpus in records(pods, names).values() for gpu in gpus]) == best


def indices(claims):
    """Return the UUIDs of the GPUs of each node, in the order of its indices."""
    return [[gpu.uuid for gpu in gpus] for gpus in claims.gpus.values()]


def plan_of(pods):
    """Return the GPUs of each member in the plan of the only Gang, and its bandwidth."""
    (gang,) = pods.api.get(gangs_of(pods.namespace))["items"]
    plan = gang["spec"]["plan"]
    return {one["pod"]: one["gpus"] for one in plan["members"]}, plan["bandwidth"]


def records(pods, names):
    """Return the GPUs in the record of each pod."""
    found = pods.all()
    texts = {name: found[name]["metadata"]["annotations"][keys.ALLOCATION] for name in names}
    return {name: [gpu["i"] for gpu in json.loads(text)["gpus"]] for name, text in texts.items()}


def bandwidth(gpus):
    table = table_of(catalogue.entry("dgx1-v100").machine)
    return round(table.bandwidth(mask_of(gpus)), 1)


def test_without_the_api_all_say_so_and_gangs_that_lose_gpus_get_others(
    plane, pods, claims, machines, placing
):
    (node,) = machines(1)

    wait_until_said(plane, pods, placing, node, UNSERVED)
    lose_a_race(plane, pods, claims)


@pytest.fixture
def ignored_rules(plane, placing):
    """The API server serves DeviceTaintRules, and kube-scheduler does not apply them."""
    plane.processes.stop(placing.process)
    plane.restart_api_server(*SERVING_RULES)
    # A leader looks for the API when it starts, and once a minute.
    plane.processes.start(placing.process)
    placing.process.wait_ready(lambda: placing.leads)


@pytest.mark.usefixtures("ignored_rules")
def test_a_scheduler_that_ignores_the_rules_is_known_by_what_it_allocates(
    plane, pods, claims, machines, placing
):
    (node,) = machines(1)
    wait_until(lambda: plane.api.get(RULES)["items"], "the rule of the node is written", PATIENCE)
    wait_until(lambda: placing.metrics["linkwise_unfenced_nodes"] == 0, "it seems fenced", PATIENCE)
    (rule,) = plane.api.get(RULES)["items"]
    since = datetime.fromisoformat(rule["metadata"]["creationTimestamp"]).timestamp()
    # Before that, the scheduler may not have seen the rule.
    wait_until(lambda: wall() > since + 12, "the rule is 12 s old")

    make_claim(plane.api, pods.namespace, "notebook", 1)
    pods.create(name="notebook", spec=claiming("notebook"))

    wait_until(lambda: "notebook" in pods.bound(), "a claim of others is allocated", PATIENCE)
    wait_until_said(plane, pods, placing, node, IGNORED)
    pods.api.delete(f"{pods.path}/notebook")
    wait_until(lambda: "notebook" not in pods.all(), "it is gone")
    lose_a_race(plane, pods, claims)
