"""Nodes on which Linkwise chooses `nvidia.com/gpu`, beside a node of NVIDIA's plugin."""

import pytest
from controlplane.api import refusal
from controlplane.gangs import make_gang, wait_for_phase, wait_until_placed, where
from controlplane.history import gpus
from controlplane.pods import gates, requirement, terms
from controlplane.process import wait_until

from linkwise.cluster import keys

GPU = {keys.NVIDIA_GPU: 1}
EXACT = ("exact-0", "exact-1")
PLAIN = "plain"
POLICY = "linkwise-placed-nvidia"
NOT_TOPOLOGY = requirement(keys.NODE_MODE, "NotIn", "topology")


@pytest.fixture
def exact(pods, nodes, placing):
    """Two nodes of the agent with 8 GPUs each, and one of NVIDIA's plugin with 4."""
    room = {"cpu": 96, "memory": "768Gi"}
    label = {keys.RESOURCE_NAME: "nvidia.com-gpu"}
    nodes(
        {
            **room,
            "name": "exact",
            "count": 2,
            "machine": "dgx1-v100",
            "mode": "topology",
            "labels": label,
        },
        {**room, "name": PLAIN, "machine": "t4x4", "labels": {"pool": "plain"}},
    )

    def gated():
        made = refusal(lambda: pods.create(GPU, name="probe", dryRun="All"))
        return not made and gates(pods.create(GPU, name="probe", dryRun="All")) == [keys.GANG]

    wait_until(gated, "admission knows the nodes")
    wait_until(lambda: POLICY in bare_refusal(pods), "the policy knows the nodes")
    yield placing
    pods.clear()


def bare_refusal(pods):
    """Return why a pod that excludes only another mode, by its own words, is refused."""
    spec = terms([requirement(keys.NODE_MODE, "NotIn", "share")])
    return pods.refusal(GPU, spec=spec, dryRun="All")


def node_of(pods, name):
    return pods.all()[name]["spec"].get("nodeName")


def test_a_gang_and_single_pods_are_placed_beside_pods_of_nvidias_plugin(pods, exact):
    make_gang(pods, "ring", 3, 4, resource=keys.NVIDIA_GPU)
    members = wait_until_placed(pods, "ring", 3)
    for index in range(4):
        pods.create(GPU, name=f"single-{index}")
        spec = {"nodeSelector": {"pool": "plain"}}
        left = pods.create(GPU, name=f"left-{index}", spec=spec)
        assert gates(left) == []
    singles = [f"single-{index}" for index in range(4)]
    lefts = [f"left-{index}" for index in range(4)]
    wait_until(lambda: all(node_of(pods, name) for name in singles + lefts), "all pods are bound")

    made = pods.all()
    held = [gpu for gang in members.values() for gpu in gang]
    held += [gpu for name in singles for gpu in gpus(made[name])]
    assert len(held) == len(set(held)) == 16
    assert {node for node, _ in held} == set(EXACT)
    assert {node_of(pods, name) for name in lefts} == {PLAIN}
    assert not any(
        keys.ALLOCATION in made[name]["metadata"].get("annotations", {}) for name in lefts
    )
    assert wait_for_phase(pods, "ring", "Placed")["status"]["bandwidth"] > 0
    assert exact.metrics["linkwise_unaccounted_nodes"] == 0


def test_a_gang_that_does_not_fit_waits_as_a_whole(pods, exact):
    make_gang(pods, "large", 6, 4, resource=keys.NVIDIA_GPU)

    wait_for_phase(pods, "large", "Waiting")

    assert where(pods, "large") == {}
    assert exact.metrics["linkwise_unaccounted_nodes"] == 0


@pytest.mark.usefixtures("exact")
def test_a_pod_that_could_bypass_linkwise_is_refused(pods):
    wait_until(lambda: POLICY in bare_refusal(pods), "the policy knows the nodes")
    named = requirement(keys.NODE_MODE, "In", "topology", "default")
    assert POLICY in pods.refusal(GPU, spec=terms([named]))


@pytest.mark.usefixtures("exact")
def test_a_pod_of_another_scheduler_or_with_a_node_name_excludes_the_nodes_of_linkwise(pods):
    for name, spec in {
        "volcano": {"schedulerName": "volcano"},
        "on-a-node": {"nodeName": PLAIN},
    }.items():
        made = pods.create(GPU, name=name, spec=spec)
        assert made["spec"]["affinity"] == terms([NOT_TOPOLOGY])["affinity"]
        assert gates(made) == []
    assert "LW112" in pods.refusal(GPU, spec={"nodeName": EXACT[0]})


@pytest.mark.usefixtures("exact")
def test_devices_are_not_injected_into_a_placed_pod_by_an_annotation(pods):
    key = f"{keys.NVIDIA_CDI_CONTAINER}c0"
    pods.create(GPU, name="placed")
    wait_until(lambda: node_of(pods, "placed"), "it is bound")
    pods.create(GPU, name="left", spec={"nodeSelector": {"pool": "plain"}})

    def refused(name):
        change = {"metadata": {"annotations": {key: "nvidia.com/gpu=all"}}}
        return refusal(lambda: pods.api.patch(f"{pods.path}/{name}", change))

    assert "linkwise-guard" in refused("placed")
    assert refused("left") == ""


@pytest.mark.usefixtures("exact")
def test_placement_of_nvidia_gpus_can_be_turned_off(pods, policy):
    policy("apiVersion: linkwise.dev/v1alpha1\nkind: Policy\nplacement: {nvidia: off}\n")

    def is_left():
        return gates(pods.create(GPU, name="probe", dryRun="All")) == []

    wait_until(is_left, "admission knows the policy")
    pods.create(GPU, name="off")
    wait_until(lambda: node_of(pods, "off") == PLAIN, "it is bound")


@pytest.mark.usefixtures("placing")
def test_without_such_a_node_nothing_changes(pods):
    spec = terms([requirement(keys.NODE_MODE, "NotIn", "share")])

    def is_unchanged():
        made = pods.create(GPU, dryRun="All")["spec"]
        return "affinity" not in made and "schedulingGates" not in made

    wait_until(lambda: not pods.refusal(GPU, spec=spec, dryRun="All"), "the policy knows it")
    wait_until(is_unchanged, "admission knows that no such node is left")
