import msgspec
import pytest
from support.builders import a_container, a_counted_node, a_held_pod, a_node, a_seen, a_snapshot

from linkwise.cluster import keys
from linkwise.cluster.allocations.gpus import Exact, GPUShare
from linkwise.cluster.allocations.record import Allocation
from linkwise.cluster.objects.pod import Pod
from linkwise.planning.gang.crd_plan import GangPlan, PlannedPod
from linkwise.planning.gang.owners import Owners
from linkwise.planning.gang.pod_info import pod_info
from linkwise.planning.gang.unit import units_of
from linkwise.planning.gang.whole_plan import all_members, whole_plan, without_siblings

MARK = {keys.GANG: "bert", keys.GANG_SIZE: "3"}


def a_unit(*settled, waiting=("bert-1",), gpus=1):
    there = [
        a_seen(len(taken), name, annotations=MARK).with_allocation(
            Allocation(node, Exact(tuple(map(GPUShare, taken))), plan="1-1")
        )
        for name, node, taken in settled
    ]
    (unit,) = units_of(
        [*there, *(a_seen(gpus, name, annotations=MARK) for name in waiting)], Owners({}, {})
    )
    return unit


def a_plan(*members, **fields):
    return GangPlan("1-2", True, tuple(PlannedPod(*member) for member in members), **fields)


def test_members_are_in_the_order_of_the_last_plan():
    before = a_plan(("bert-2", "x", "a", (5,)), ("bert-1", "y", "a", (0,)))
    unit = a_unit(("bert-2", "a", (5,)), ("bert-10", "a", (6,)), ("bert-9", "a", (7,)))
    plan = a_plan(("bert-1", "new", "a", (0,)))

    whole = whole_plan(plan, unit, a_snapshot(a_node("a")), before)

    assert [(member.pod, member.indices) for member in whole.members] == [
        ("bert-2", (5,)),
        ("bert-1", (0,)),
        ("bert-9", (7,)),
        ("bert-10", (6,)),
    ]
    assert whole.id == plan.id


def test_bandwidth_and_domain_are_those_of_all_nodes():
    rack = {"labels": {keys.RACK: "r1"}}
    snapshot = a_snapshot(a_node("a", **rack), a_node("b", **rack), domains=(keys.RACK,))
    unit = a_unit(("bert-0", "b", (0, 3)), gpus=2)

    whole = whole_plan(a_plan(("bert-1", "new", "a", (0, 1))), unit, snapshot, None)

    assert whole.bandwidth is not None
    assert whole.bandwidth_note == "nic unknown"
    assert whole.domain == f"{keys.RACK}=r1"
    alone = whole_plan(a_plan(("bert-1", "new", "b", (2, 1))), unit, snapshot, None)
    assert (alone.domain, alone.bandwidth_note) == (None, None)


def test_without_others_the_plan_stays():
    plan = a_plan(("bert-1", "new", "a", (0,)), bandwidth=3.0)

    assert whole_plan(plan, a_unit(), a_snapshot(a_node("a")), None) is plan


def test_bandwidth_of_counted_gpus_is_unknown():
    snapshot = a_snapshot(a_counted_node("a"))
    unit = a_unit(("bert-0", "a", (0, 1)))

    whole = whole_plan(a_plan(("bert-1", "new", "a", (), 2)), unit, snapshot, None)

    assert (whole.bandwidth, whole.bandwidth_note) == (None, "GPUs unknown")


@pytest.mark.parametrize(
    ("settled", "gpus", "names"),
    [
        pytest.param([], 1, ["bert-1"], id="none"),
        pytest.param([("bert-0", "a", (0,))], 1, ["bert-1", "bert-0"], id="alike"),
        pytest.param([("bert-0", "a", (0, 1))], 1, None, id="unlike"),
    ],
)
def test_the_whole_gang_is_compared_where_members_are_alike(settled, gpus, names):
    members = all_members(a_unit(*settled, gpus=gpus))

    found = None if members is None else [member.pod.metadata.name for member in members]
    assert found == names


def test_gpus_of_the_others_are_free_for_the_comparison():
    unit = a_unit(("bert-0", "a", (0, 1)), ("bert-2", "gone", (0, 1)))
    first = unit.settled[0]
    held = a_snapshot(a_node("a")).hold_all([("a", first.usage.holding(first.usage.record.gpus))])

    free = without_siblings(held, unit)

    assert held.ledger.nodes["a"].free_mask == 0b11111100
    assert free.ledger.nodes["a"].free_mask == 0b11111111


def of_others(name="bert-0"):
    """Return a member that was bound without admission."""
    raw = a_held_pod(0, name, annotations=MARK, gates=(), nodeName="b", phase="Running")
    raw["spec"]["containers"] = [a_container({keys.NVIDIA_GPU: 1})]
    return pod_info(msgspec.convert(raw, Pod))


@pytest.mark.parametrize("settled", [(), (("bert-2", "a", (5,)),)], ids=["alone", "beside ours"])
def test_nothing_is_compared_if_linkwise_did_not_choose_the_gpus_of_a_member(settled):
    ours = a_unit(*settled)
    pods = [*ours.settled, of_others(), *ours.waiting]
    (unit,) = units_of(pods, Owners({}, {}))
    plan = a_plan(("bert-1", "new", "a", (0,)), bandwidth=40.0)

    whole = whole_plan(plan, unit, a_snapshot(a_node("a"), a_node("b")), None)

    assert {member.pod for member in whole.members} == {"bert-1", *(one[0] for one in settled)}
    assert (whole.bandwidth, whole.bandwidth_note) == (None, "GPUs unknown")
    assert all_members(unit) is None
