import msgspec
import pytest
from msgspec import structs
from support.builders import a_node, placed_pod

from linkwise.cluster import keys
from linkwise.cluster.allocations.gpus import Exact, GPUShare
from linkwise.cluster.gang import GangKey, Link
from linkwise.cluster.objects.pod import Pod
from linkwise.planning.gang.crd_patch import new_gang
from linkwise.planning.gang.crd_plan import GangPlan, PlannedPod
from linkwise.planning.gang.lost_members import (
    ended_members,
    lost_members,
    reserved_holding,
    running_member,
)
from linkwise.planning.gang.pod_info import pod_info

KEY = GangKey("team", "bert", "job")
PLAN = GangPlan(
    "1-1", exact=True, members=tuple(PlannedPod(f"w-{i}", f"w-{i}", "n", (i,)) for i in range(4))
)


def a_worker(i, *, phase="Running", deleted=False):
    raw = placed_pod(f"w-{i}", {keys.GPU_WHOLE: 1}, "n", GPUShare(i))
    raw["metadata"] |= {"uid": f"w-{i}"}
    if deleted:
        raw["metadata"]["deletionTimestamp"] = "2026-01-01T00:00:00Z"
    raw["status"] = {"phase": phase}
    return pod_info(msgspec.convert(raw, Pod))


def lost(pods, needed=4):
    return [member.pod for member in lost_members(PLAN, pods, needed)]


@pytest.mark.parametrize(
    ("third", "expected"),
    [
        pytest.param([a_worker(2)], ["w-3"], id="runs"),
        pytest.param([], ["w-2", "w-3"], id="gone"),
        pytest.param([a_worker(2, phase="Failed")], ["w-2", "w-3"], id="failed"),
        pytest.param([a_worker(2, phase="Succeeded")], ["w-3"], id="succeeded"),
        pytest.param([a_worker(2, deleted=True)], ["w-3"], id="is ending, and has its GPUs"),
        pytest.param(
            [a_worker(2, phase="Succeeded", deleted=True)], ["w-2", "w-3"], id="was ended"
        ),
    ],
)
def test_a_member_is_lost_if_it_has_no_gpus_and_did_not_succeed(third, expected):
    assert lost([a_worker(0), a_worker(1), *third]) == expected


def test_no_more_members_are_lost_than_the_gang_lacks():
    assert lost([a_worker(0), a_worker(1)], needed=3) == ["w-2"]
    assert lost([a_worker(0), a_worker(1)], needed=1) == []


def test_members_that_have_succeeded_are_not_lost_once_they_are_gone():
    running = [a_worker(2)]
    found = lost_members(PLAN, running, 4, {"w-0"})

    assert [member.pod for member in found] == ["w-1", "w-3"]
    gang = new_gang(KEY, (), size=4, link=Link.BEST, plan=PLAN)
    assert ended_members(gang, running, {"w-0"}) == 1
    assert ended_members(gang, [*running, a_worker(0, phase="Succeeded")], {"w-0"}) == 0


def test_a_plan_that_was_written_without_a_member_says_that_it_has_ended():
    left = structs.replace(PLAN, members=PLAN.members[1:])
    gang = new_gang(KEY, (), size=4, link=Link.BEST, plan=left)

    assert ended_members(gang, [a_worker(1), a_worker(2)], frozenset()) == 1
    assert ended_members(gang, [a_worker(0), a_worker(1)], frozenset()) == 0


def test_a_member_runs_if_it_has_gpus_and_stays():
    ended = [a_worker(0, phase="Succeeded"), a_worker(1, deleted=True), a_worker(2, phase="Failed")]
    assert running_member(ended) is None
    assert running_member([*ended, a_worker(3)]).name == a_worker(3).usage.name


def test_a_share_is_reserved_in_the_amounts_of_another_member():
    raw = placed_pod("w-0", {keys.GPU_MEM: 4}, "n", GPUShare(0, None, 4, None))
    sibling = pod_info(msgspec.convert(raw, Pod)).usage
    node = a_node("n", mode="share", card_memory=16)
    holding = reserved_holding(PLAN.members[1], KEY, node, sibling)
    assert holding.gpus == Exact((GPUShare(1, node.cards[1].uuid, 4, None),))
    assert (holding.pod, holding.uid, holding.gang) == ("team/w-1", "w-1", "team/bert")


def test_nothing_is_reserved_on_a_node_that_has_fewer_gpus_now():
    sibling = a_worker(0).usage
    missing = PlannedPod("w-9", "w-9", "n", (15,))
    assert reserved_holding(missing, KEY, a_node("n"), sibling) is None
