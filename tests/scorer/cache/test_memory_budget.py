"""What waits of one namespace takes no more memory than its part, and no other notices."""

import pytest
from builders import a_seen
from hypothesis import given
from hypothesis import strategies as st
from leader_harness import Cluster, leading, soon

from scorer.cache import memory_budget
from scorer.cache.memory_budget import MemoryBudget

WEIGHT = a_seen().weight


def room_for(pods):
    return MemoryBudget(WEIGHT * pods + WEIGHT // 2)


def pod(name, namespace="team", **fields):
    return a_seen(1, name, namespace=namespace, **fields)


def test_beyond_its_part_no_more_than_the_name_of_a_pod_is_kept():
    kept = room_for(2)
    taken = [kept.take(pod(name)) for name in "abc"]

    assert [one.unplannable is None for one in taken] == [True, True, False]
    assert "too much waits in its namespace" in taken[2].unplannable
    assert taken[2].waiting.spec.containers == []
    assert len(kept) == 1


def test_another_namespace_has_a_part_of_its_own():
    kept = room_for(1)
    for name in "abc":
        kept.take(pod(name))

    assert kept.take(pod("a", "other")).unplannable is None


@pytest.mark.parametrize(
    "now",
    [
        pytest.param({"gates": (), "nodeName": "gpu-0"}, id="bound"),
        pytest.param({"phase": "Succeeded"}, id="finished"),
        pytest.param(None, id="deleted"),
    ],
)
def test_when_one_waits_no_more_the_first_that_was_left_out_fits(now):
    kept = room_for(1)
    for name in "abc":
        kept.take(pod(name))
    assert kept.fitting() is None
    if now is None:
        kept.release(("team", "a"))
    else:
        kept.take(pod("a", **now))

    assert kept.fitting() == ("team", "b")
    assert kept.take(pod("b")).unplannable is None
    assert kept.fitting() is None
    assert len(kept) == 1


def test_a_pod_that_was_listed_while_it_was_taken_is_still_left_out():
    kept = room_for(1)
    kept.take(pod("a"))
    listed = kept.take(pod("b"))
    kept.release(("team", "a"))
    kept.take(pod("b"))
    kept.confirm(listed)

    assert kept.fitting() == ("team", "b")


@given(st.lists(st.tuples(st.sampled_from("abcdef"), st.sampled_from(["here", "bound", "gone"]))))
def test_whatever_comes_and_goes_what_is_kept_stays_within_the_part(changes):
    kept, there = room_for(2), {}
    for name, becomes in changes:
        if becomes == "gone":
            kept.release(("team", name))
            there.pop(name, None)
        else:
            bound = {"gates": (), "nodeName": "gpu-0"} if becomes == "bound" else {}
            there[name] = kept.take(pod(name, **bound))

        waits = [one for one in there.values() if one.waiting]
        whole = [one for one in waits if one.unplannable is None]
        assert len(whole) <= 2
        assert len(kept) == len(waits) - len(whole)
        assert (kept.fitting() is not None) == (len(whole) < 2 and len(waits) > len(whole))


async def test_a_pod_that_was_left_out_is_read_again_and_placed_when_there_is_room(monkeypatch):
    monkeypatch.setattr(memory_budget.MemoryBudget.__init__, "__defaults__", (WEIGHT * 5 // 2,))
    async with Cluster() as cluster:
        cluster.node()
        for name in ("large-0", "large-1"):
            cluster.pod(name, 16)
        async with leading(cluster) as leader:
            cluster.pod("next")
            waiting = leader.context.planner.waiting
            await soon(lambda: leader.context.informers.pods.left_out == 1)
            await soon(lambda: any("too much waits" in why for _, why in waiting()))
            assert not cluster.given("next")
            cluster.delete("large-0")
            await soon(lambda: cluster.given("next"))
            assert leader.context.informers.pods.left_out == 0


async def test_a_pod_that_was_left_out_and_is_deleted_is_forgotten(monkeypatch):
    monkeypatch.setattr(memory_budget.MemoryBudget.__init__, "__defaults__", (WEIGHT * 3 // 2,))
    async with Cluster() as cluster:
        cluster.pod("large-0", 16)
        cluster.pod("large-1", 16)
        async with leading(cluster) as leader:
            await soon(lambda: leader.context.informers.pods.left_out == 1)
            cluster.delete("large-0")
            cluster.delete("large-1")
            await soon(lambda: leader.context.informers.pods.left_out == 0)
            await soon(lambda: not list(leader.context.planner.waiting()))
