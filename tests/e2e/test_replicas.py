"""Replicas of time-sliced GPUs: whether NVIDIA's plugin gives them out, or Linkwise."""

from dataclasses import replace

import pytest
from controlplane.api import refusal
from controlplane.nodes import add_nodes, read_nodes, remove_nodes
from controlplane.pods import gates, requirement, terms
from controlplane.process import wait_until

from linkwise.cluster import keys

NODE = "nvidia-0"
REPLICA = {keys.NVIDIA_GPU_SHARED: 1}
DRIVERS_TAINT = {"key": keys.NVIDIA_GPU, "operator": "Exists", "effect": "NoSchedule"}


NOT_TIMESLICE = requirement(keys.NODE_MODE, "NotIn", "timeslice")
NOT_SHARE = requirement(keys.NODE_MODE, "NotIn", "share")


@pytest.fixture
def nvidia_node(plane):
    """A node of NVIDIA's plugin with `renameByDefault`: four replicas of its one GPU."""
    [plain] = read_nodes([{"name": NODE, "cpu": 8, "memory": "32Gi"}])
    node = replace(plain, resources={keys.NVIDIA_GPU_SHARED: 4})
    add_nodes(plane.api, [node])
    yield NODE
    remove_nodes(plane.api, [node])


@pytest.fixture
def verification(pods):
    """Makes the pod that NVIDIA's page on time-slicing has; the page makes five of them."""

    def make(name, **query):
        spec = {"hostPID": True, "tolerations": [DRIVERS_TAINT]}
        return pods.create(REPLICA, name=name, spec=spec, **query)

    return make


def bound(pods, name):
    pod = pods.all()[name]
    return pod["spec"].get("nodeName"), pod["spec"]["schedulerName"]


def test_replicas_of_nvidias_plugin_are_bound_by_the_stock_scheduler_and_stay_accounted(
    pods, verification, nvidia_node, placing
):
    names = [f"verification-{index}" for index in range(5)]
    made = [verification(name) for name in names]

    def running():
        found = [bound(pods, name) for name in names]
        return found.count((nvidia_node, "default-scheduler"))

    assert [gates(pod) for pod in made] == [[]] * 5
    wait_until(lambda: running() == 4, "as many pods as replicas are bound")
    assert placing.metrics["linkwise_unaccounted_nodes"] == 0


@pytest.mark.usefixtures("nvidia_node")
def test_where_a_node_of_mode_timeslice_exists_linkwise_places_the_same_pod(
    pods, verification, nodes, placing
):
    line = {"name": "sliced", "machine": "t4x4", "mode": "timeslice", "replicas": 2}
    [sliced] = nodes({**line, "cpu": 8, "memory": "32Gi"})

    def gated():
        return gates(verification("probe", dryRun="All")) == [keys.GANG]

    wait_until(gated, "admission knows the node")
    verification("placed")

    wait_until(lambda: bound(pods, "placed")[0] == sliced.name, "it is bound")
    record = pods.all()["placed"]["metadata"]["annotations"][keys.ALLOCATION]
    assert f'"{sliced.name}"' in record
    assert placing.metrics["linkwise_unaccounted_nodes"] == 0


@pytest.mark.usefixtures("nvidia_node", "webhook")
def test_a_pod_whose_own_terms_allow_both_kinds_of_nodes_is_refused(pods):
    for given in (terms([NOT_SHARE]), terms([NOT_TIMESLICE], [NOT_SHARE])):
        message = pods.refusal(REPLICA, spec=given)
        assert "linkwise-placed" in message
        assert keys.NODE_MODE in message


@pytest.mark.usefixtures("nvidia_node", "webhook")
def test_what_admission_adds_to_the_pods_own_terms_passes_the_policy(pods):
    zones = [requirement("zone", "In", name) for name in ("a", "b")]

    expected = terms(*([zone, NOT_TIMESLICE] for zone in zones))

    def made(**query):
        return pods.create(REPLICA, spec=terms(*([zone] for zone in zones)), **query)["spec"]

    def is_left():
        return refusal(lambda: made(dryRun="All")) == "" and (
            made(dryRun="All")["affinity"] == expected["affinity"]
        )

    wait_until(is_left, "admission knows that no node of mode timeslice is left")
    assert "schedulingGates" not in made()
