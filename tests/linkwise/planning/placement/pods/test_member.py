import pytest
from support.builders import a_member, exact

from linkwise.cluster.account.node_ledger import Holding
from linkwise.cluster.allocations.gpus import NO_GPUS, Counted
from linkwise.cluster.keys import GPU_CORE, GPU_MEM, NVIDIA_GPU
from linkwise.cluster.requests.demand import Demand
from linkwise.cluster.requests.neighbors.neighbor import Neighbor
from linkwise.planning.placement.pods.member import new_member

_REQUIRED = "requiredDuringSchedulingIgnoredDuringExecution"


def test_whole_gpus_are_counted_and_others_are_not():
    assert a_member(3).gpus == 3
    assert a_member(0, limits={GPU_MEM: 3}).gpus == 0
    assert a_member(0, limits={NVIDIA_GPU: 3}).gpus == 0


def test_a_member_holds_its_shares_and_its_demand():
    member = a_member(1, "w", limits={"cpu": 2, "memory": "1Ki"})
    gpus = exact(3)

    assert member.holding(gpus) == Holding(
        "default/w", "default/w", gpus, Demand(2000, 1024), neighbor=Neighbor("default")
    )


def test_counted_gpus_are_held_by_number():
    assert a_member(0, "w", limits={NVIDIA_GPU: 3}).counted_gpus == Counted(NVIDIA_GPU, 3)


def test_the_namespace_is_taken_where_the_pod_names_none():
    pod = a_member(1, "w").pod

    assert new_member(pod, "ignored").name == "default/w"
    assert new_member(type(pod)(spec=pod.spec), "team-a", "team-a/job").name == "team-a/"
    assert new_member(pod, "default", "default/job").holding(NO_GPUS).gang == "default/job"


@pytest.mark.parametrize(
    ("other", "alike"),
    [
        (a_member(2, "other", labels={"rank": "1"}), True),
        (a_member(1), False),
        (a_member(0, limits={GPU_MEM: 2}), False),
        (a_member(2, limits={"cpu": 1}), False),
        (a_member(2, nodeSelector={"zone": "z"}), False),
        (a_member(2, tolerations=[{"operator": "Exists"}]), False),
        (a_member(2, affinity={"nodeAffinity": {_REQUIRED: {"nodeSelectorTerms": []}}}), False),
        (a_member(2, affinity={"podAffinity": {_REQUIRED: [{}]}}), False),
    ],
    ids=["name", "gpus", "family", "cpu", "selector", "tolerations", "affinity", "pod affinity"],
)
def test_members_are_alike_where_nodes_treat_them_alike(other, alike):
    assert (a_member(2).signature == other.signature) is alike


def test_shares_of_other_sizes_are_not_alike():
    one = a_member(0, limits={GPU_MEM: 2, GPU_CORE: 20})

    assert one.signature != a_member(0, limits={GPU_MEM: 2, GPU_CORE: 25}).signature
    assert one.signature != a_member(0, limits={GPU_MEM: 3, GPU_CORE: 20}).signature
