"""The waiting pods of a namespace use at most its part of the memory, without effect on others."""

from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.builders import a_held_pod, a_seen
from support.servers.leader_harness import Cluster, leading
from support.waiting import until

from linkwise.planning.state import memory_budget
from linkwise.planning.state.memory_budget import MemoryBudget

WEIGHT = a_seen().weight


def room_for(pods):
    return MemoryBudget(WEIGHT * pods + WEIGHT // 2)


def pod(name, namespace="team", **fields):
    return a_seen(1, name, namespace=namespace, **fields)


def test_only_the_name_of_a_pod_beyond_the_limit_is_kept():
    kept = room_for(2)
    taken = [kept.take(pod(name)) for name in "abc"]

    assert [one.unplannable is None for one in taken] == [True, True, False]
    assert "too much waits in its namespace" in taken[2].unplannable
    assert taken[2].waiting.spec.containers == []
    assert len(kept) == 1


def test_each_namespace_has_its_own_limit():
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
def test_the_oldest_excluded_pod_fits_once_another_waits_no_more(now):
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


def test_a_pod_listed_while_it_was_taken_stays_excluded():
    kept = room_for(1)
    kept.take(pod("a"))
    listed = kept.take(pod("b"))
    kept.release(("team", "a"))
    kept.take(pod("b"))
    kept.confirm(listed)

    assert kept.fitting() == ("team", "b")


@given(st.lists(st.tuples(st.sampled_from("abcdef"), st.sampled_from(["here", "bound", "gone"]))))
def test_kept_pods_never_exceed_the_limit_of_their_namespace(changes):
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


def shared_by_all(pods, each=3):
    return MemoryBudget(WEIGHT * each + WEIGHT // 2, WEIGHT * pods + WEIGHT // 2)


def test_the_largest_namespace_gives_way_to_a_smaller_one():
    kept = shared_by_all(5)
    for namespace, names in (("a", "123"), ("b", "12")):
        for name in names:
            assert kept.take(pod(name, namespace)).unplannable is None

    assert kept.take(pod("1", "c")).unplannable is None

    assert kept.dropped == {("a", "3")}
    assert "too much waits in its namespace" in kept.shrink(pod("3", "a")).unplannable
    assert (kept.dropped, len(kept), kept.fitting()) == (set(), 1, None)
    kept.release(("b", "1"))
    assert kept.fitting() == ("a", "3")


def test_the_pods_of_a_small_namespace_are_kept_beside_many_large_ones():
    kept = shared_by_all(20)
    for namespace in "abcdefghi":
        for name in "123":
            kept.take(pod(name, namespace))

    assert [kept.take(pod(name, "j")).unplannable for name in "12"] == [None, None]


@given(
    st.lists(
        st.tuples(st.sampled_from("abc"), st.sampled_from("12345"), st.sampled_from([0, 1, 1, 1])),
        max_size=60,
    )
)
def test_all_namespaces_share_the_total_limit(changes):
    kept, there = shared_by_all(6), {}
    for namespace, name, comes in changes:
        if comes:
            there[namespace, name] = kept.take(pod(name, namespace))
        else:
            kept.release((namespace, name))
            there.pop((namespace, name), None)
        for _ in range(20):
            for key in kept.dropped:
                there[key] = kept.shrink(there[key])
            if (key := kept.fitting()) is None:
                break
            there[key] = kept.take(pod(key[1], key[0]))
        assert kept.fitting() is None

        whole = [key for key, one in there.items() if one.unplannable is None]
        takes = Counter({namespace: 0 for namespace, _ in there})
        takes.update(namespace for namespace, _ in whole)
        left_out = {namespace for namespace, _ in there.keys() - set(whole)}
        assert len(whole) <= 6
        assert len(kept) == len(there) - len(whole)
        most = max(takes.values(), default=0)
        assert all(
            takes[one] == 3 or (len(whole) == 6 and takes[one] + 1 >= most) for one in left_out
        )


async def test_a_pod_gives_way_to_one_of_a_smaller_namespace_and_is_read_again(monkeypatch):
    room = (WEIGHT * 9, WEIGHT * 5 // 2)
    monkeypatch.setattr(memory_budget.MemoryBudget.__init__, "__defaults__", room)
    path = "/api/v1/namespaces/other/pods/small"
    async with Cluster() as cluster:
        cluster.pod("large-0", 16)
        cluster.pod("large-1", 16)
        async with leading(cluster) as leader:

            def reasons():
                return {u.key.name: why for u, why in leader.context.planner.waiting()}

            await until(lambda: len(reasons()) == 2)
            cluster.put(path, a_held_pod(16, "small"))
            await until(lambda: len(reasons()) == 3)
            await until(lambda: "too much waits" in reasons()["large-1"])
            assert [name for name, why in reasons().items() if "too much" in why] == ["large-1"]
            cluster.delete("large-0")
            await until(lambda: "too much waits" not in reasons()["large-1"])


async def test_an_excluded_pod_is_read_again_and_placed_when_it_fits(monkeypatch):
    monkeypatch.setattr(
        memory_budget.MemoryBudget.__init__, "__defaults__", (WEIGHT * 5 // 2, WEIGHT * 9)
    )
    async with Cluster() as cluster:
        cluster.node()
        for name in ("large-0", "large-1"):
            cluster.pod(name, 16)
        async with leading(cluster) as leader:
            cluster.pod("next")
            waiting = leader.context.planner.waiting
            await until(lambda: leader.context.informers.pods.left_out == 1)
            await until(lambda: any("too much waits" in why for _, why in waiting()))
            assert not cluster.allocated("next")
            cluster.delete("large-0")
            await until(lambda: cluster.allocated("next"))
            assert leader.context.informers.pods.left_out == 0


async def test_a_deleted_excluded_pod_is_forgotten(monkeypatch):
    monkeypatch.setattr(
        memory_budget.MemoryBudget.__init__, "__defaults__", (WEIGHT * 3 // 2, WEIGHT * 9)
    )
    async with Cluster() as cluster:
        cluster.pod("large-0", 16)
        cluster.pod("large-1", 16)
        async with leading(cluster) as leader:
            await until(lambda: leader.context.informers.pods.left_out == 1)
            cluster.delete("large-0")
            cluster.delete("large-1")
            await until(lambda: leader.context.informers.pods.left_out == 0)
            await until(lambda: not list(leader.context.planner.waiting()))
