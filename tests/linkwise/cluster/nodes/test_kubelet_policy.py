import pytest

from linkwise.cluster.nodes.kubelet_policy import CPUManager, KubeletPolicy, TopologyManager

STATIC = CPUManager.STATIC


@pytest.mark.parametrize(
    "policy",
    [
        KubeletPolicy(),
        KubeletPolicy(CPUManager.NONE, TopologyManager.NONE),
        KubeletPolicy(CPUManager.NONE, TopologyManager.BEST_EFFORT),
    ],
    ids=["unknown", "none", "nothing to align"],
)
def test_kubelet_that_pins_and_refuses_nothing_has_no_note(policy):
    assert policy.numa_note is None


@pytest.mark.parametrize(
    ("topology", "named"),
    [
        (None, "unknown"),
        (TopologyManager.NONE, "none"),
        (TopologyManager.BEST_EFFORT, "best-effort"),
    ],
)
def test_exclusive_cpus_may_be_on_another_socket(topology, named):
    assert KubeletPolicy(STATIC, topology).numa_note == (
        "the exclusive CPUs of a Guaranteed pod may be on another socket than its GPUs: the "
        "kubelet gets no NUMA hints for GPUs that Linkwise chooses (CPU manager policy static, "
        f"Topology Manager policy {named})"
    )


@pytest.mark.parametrize("cpus", [None, *CPUManager])
@pytest.mark.parametrize(
    ("topology", "extent"),
    [
        (TopologyManager.RESTRICTED, "the fewest NUMA nodes"),
        (TopologyManager.SINGLE_NUMA_NODE, "one NUMA node"),
    ],
)
def test_kubelet_that_refuses_pods_is_named_beforehand(cpus, topology, extent):
    assert KubeletPolicy(cpus, topology).numa_note == (
        "the kubelet refuses a pod (TopologyAffinityError) whose exclusive CPUs, memory or other "
        f"devices cannot be aligned to {extent} (CPU manager policy {cpus or 'unknown'}, Topology "
        f"Manager policy {topology}); they may be on another socket than its GPUs, for which it "
        "gets no NUMA hints"
    )
