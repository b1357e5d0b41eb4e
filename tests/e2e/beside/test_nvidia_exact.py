"""Single pods for `nvidia.com/gpu`, by a stock scheduler that asks the scorer about GPUs."""

import pytest
from controlplane.cards import where
from controlplane.pods import gates
from controlplane.process import wait_until

from linkwise.cluster import keys

MACHINE = {"name": "dgx", "machine": "dgx1-v100", "mode": "topology"}
EXACT = {**MACHINE, "labels": {keys.RESOURCE_NAME: "nvidia.com-gpu"}}
PLAIN = {"name": "plain", "machine": "t4x4", "labels": {"pool": "plain"}}


@pytest.fixture(autouse=True)
def known(pods, nodes):
    """An exact node, and one of NVIDIA's plugin, as admission knows them."""
    nodes(EXACT, PLAIN)

    def scheduler():
        made = pods.create({keys.NVIDIA_GPU: 1}, name="probe", dryRun="All")
        return made["spec"]["schedulerName"]

    wait_until(lambda: scheduler() == keys.SCHEDULER, "admission knows the nodes")


def test_gpus_of_an_exact_node_are_the_set_with_the_most_bandwidth(pods):
    made = pods.create({keys.NVIDIA_GPU: 2}, name="pair")

    assert gates(made) == []
    node, pair = where(pods, "pair")
    assert node == "dgx"
    # Two links between them, where others have one or none.
    assert pair in [(0, 3), (0, 4), (1, 2), (1, 5), (2, 3), (2, 6), (3, 7), (4, 7), (5, 6)]


def test_a_pod_of_nvidias_plugin_is_bound_by_our_scheduler_without_a_record(pods, sidecar):
    spec = {"nodeSelector": {"pool": "plain"}, "schedulerName": keys.SCHEDULER}
    pods.create({keys.NVIDIA_GPU: 2}, name="counted", spec=spec)

    wait_until(lambda: pods.all()["counted"]["spec"].get("nodeName") == "plain", "it is bound")

    assert keys.ALLOCATION not in pods.all()["counted"]["metadata"].get("annotations", {})
    assert sidecar.scorer.metrics["linkwise_unaccounted_nodes"] == 0


def test_a_pod_makes_room_on_an_exact_node(pods, urgent):
    pods.create({keys.NVIDIA_GPU: 8}, name="low")
    where(pods, "low")

    pods.create({keys.NVIDIA_GPU: 8}, name="high", spec=urgent)

    wait_until(lambda: pods.all().keys() == {"high"}, "the other was evicted")
    assert where(pods, "high")[0] == "dgx"
