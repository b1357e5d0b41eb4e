"""A pod with exclusive CPUs is warned of where a kubelet chooses them without regard to GPUs."""

from dataclasses import replace

import msgspec
import pytest
from support.builders import a_node, a_pod

from linkwise.admission.decide.admit import admit
from linkwise.cluster import keys
from linkwise.cluster.finding import Code
from linkwise.cluster.nodes.kubelet_policy import CPUManager, KubeletPolicy, TopologyManager
from linkwise.cluster.nodes.node_capacity import capacity_of
from linkwise.cluster.objects.pod import NewPod
from linkwise.policy.snapshot import PolicySnapshot

STATIC = KubeletPolicy(CPUManager.STATIC, TopologyManager.NONE)
REFUSING = KubeletPolicy(None, TopologyManager.RESTRICTED)
GPU = {keys.GPU_WHOLE: 1}
GUARANTEED = {**GPU, "cpu": "8", "memory": "64Gi"}


def warnings(pod, *policies, mode="topology"):
    """Return the messages of the finding about a pod, by nodes with these kubelets."""
    nodes = [replace(a_node(f"n{i}", mode=mode), kubelet=each) for i, each in enumerate(policies)]
    outcome = admit(
        msgspec.convert(pod, NewPod),
        namespace="team",
        namespace_labels={},
        policy=PolicySnapshot(),
        capacity=capacity_of(nodes),
    )
    return [each for each in outcome.findings if each.code is Code.EXCLUSIVE_CPUS]


@pytest.mark.parametrize("policy", [STATIC, REFUSING], ids=["static", "refusing"])
def test_exclusive_cpus_are_warned_of_in_the_words_of_the_node(policy):
    (found,) = warnings(a_pod(GUARANTEED), policy, policy, KubeletPolicy())

    assert found.field == "spec.containers[0].resources.limits[cpu]"
    assert found.message == f"the container has exclusive CPUs; on 2 nodes, {policy.numa_note}"


def test_each_kind_of_kubelet_is_named_once():
    found = warnings(a_pod(GUARANTEED), STATIC, REFUSING, STATIC)

    assert [each.message.partition(", ")[0] for each in found] == [
        "the container has exclusive CPUs; on 2 nodes",
        "the container has exclusive CPUs; on 1 node",
    ]


@pytest.mark.parametrize(
    "limits",
    [
        (GPU,),
        ({**GPU, "cpu": "8"},),
        ({**GUARANTEED, "cpu": "7500m"},),
        ({**GUARANTEED, "cpu": "odd"},),
        ({**GUARANTEED, "cpu": "0"},),
        (GUARANTEED, {"cpu": "1"}),
        ({"cpu": "8", "memory": "64Gi"},),
    ],
    ids=["none", "no memory", "a fraction", "unreadable", "zero", "a second one", "no GPU"],
)
def test_pod_without_exclusive_cpus_or_gpus_is_not_warned_of(limits):
    assert warnings(a_pod(*limits), STATIC) == []


def test_requests_below_the_limits_have_no_exclusive_cpus():
    pod = a_pod(GUARANTEED)
    pod["spec"]["containers"][0]["resources"]["requests"] = {"cpu": "4"}

    assert warnings(pod, STATIC) == []


@pytest.mark.parametrize(
    ("policy", "mode"),
    [
        (KubeletPolicy(CPUManager.NONE, TopologyManager.RESTRICTED), "topology"),
        (KubeletPolicy(), "topology"),
        (STATIC, "default"),
    ],
    ids=["no exclusive CPUs", "unknown", "a node of NVIDIA's plugin"],
)
def test_other_nodes_are_not_warned_of(policy, mode):
    assert warnings(a_pod(GUARANTEED), policy, mode=mode) == []
