from itertools import combinations

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st
from support.builders import a_member, a_node, a_snapshot, an_nvswitch_machine, exact, workers

from linkwise.cluster.allocations.record import Allocation
from linkwise.cluster.gang import Link
from linkwise.planning.placement.options import PlanOptions
from linkwise.planning.placement.result import Plan, Refusal
from linkwise.planning.placement.siblings import EACH_MAX, plan_with_siblings
from linkwise.topology import catalogue
from linkwise.topology.choice import ChoiceMode
from linkwise.topology.machine import mask_of
from linkwise.topology.table import table_of

DGX = table_of(catalogue.entry("dgx1-v100").machine)
gpus = st.sets(st.integers(0, 7), min_size=1, max_size=7)


def on(node, *gpus):
    """Return the GPUs of a placed member."""
    return Allocation(node, exact(*gpus))


def placed(snapshot, members, *siblings, link=Link.BEST):
    found = plan_with_siblings(snapshot, members, siblings, PlanOptions(link))
    assert isinstance(found, Plan), found
    return [(placement.node, placement.gpus.indices) for placement in found.placements]


def cluster(*nodes, **taken):
    return a_snapshot(*map(a_node, nodes), taken=taken, mode=ChoiceMode.FAST)


@given(held=gpus, others=gpus, count=st.integers(1, 3))
def test_replacements_make_the_whole_gang_fastest(held, others, count):
    others -= held
    free = set(range(8)) - held - others
    assume(len(free) >= count)
    siblings = [on("a", i) for i in held]

    found = placed(cluster("a", "b", a=[*held, *others]), workers(count), *siblings)

    together = held.union(*(indices for _, indices in found))
    possible = (DGX.bandwidth(mask_of(held.union(more))) for more in combinations(free, count))
    assert {node for node, _ in found} == {"a"}
    assert DGX.bandwidth(mask_of(together)) == max(possible)


@pytest.mark.parametrize("deleted", range(4))
def test_a_replacement_gets_the_gpu_of_the_deleted_member(deleted):
    left = [i for i in range(4) if i != deleted]
    snapshot = a_snapshot(a_node("a"), taken={"a": [*left, 5]})

    assert placed(snapshot, workers(1), *(on("a", i) for i in left)) == [("a", (deleted,))]


def test_of_equally_fast_nodes_the_one_with_fewer_members_is_filled():
    switched = an_nvswitch_machine(8, 6)
    siblings = [on("b", 0, 1), on("b", 2, 3), on("a", 0, 1)]
    snapshot = a_snapshot(
        a_node("a", switched), a_node("b", switched), taken={"a": (0, 1), "b": (0, 1, 2, 3)}
    )

    assert placed(snapshot, workers(1, 2), *siblings)[0][0] == "a"


def test_replacements_return_to_several_nodes():
    siblings = [on("a", 0, 1, 2), on("b", 0, 1, 2)]
    snapshot = cluster("a", "b", "c", a=(0, 1, 2, 4, 5, 6, 7), b=(0, 1, 2, 4, 5, 6, 7))

    assert sorted(placed(snapshot, workers(2), *siblings)) == [("a", (3,)), ("b", (3,))]


def test_members_that_do_not_fit_beside_the_others_go_elsewhere_together():
    snapshot = cluster("a", "b", a=range(7))

    found = placed(snapshot, workers(2), on("a", 0))

    assert {node for node, _ in found} == {"b"}


def test_a_gang_of_one_node_waits_for_that_node():
    snapshot = cluster("a", "b", a=range(8))

    found = plan_with_siblings(snapshot, workers(1), [on("a", 0)], PlanOptions(Link.ONE_NODE))

    assert isinstance(found, Refusal)
    assert found.reason.startswith("its gang stays on node a: ")


def test_a_replacement_that_needs_nvlink_is_linked_to_the_others():
    snapshot = cluster("a", a=(0, 1, 2))
    siblings = [on("a", i) for i in range(3)]

    ((_, indices),) = placed(snapshot, workers(1), *siblings, link=Link.NVLINK)

    assert DGX.linked[mask_of((0, 1, 2, *indices))]


def test_nodes_and_gpus_that_are_gone_do_not_count():
    siblings = [on("gone", 0), on("a", 12), on("a")]

    assert placed(cluster("a"), workers(1), *siblings)[0][0] == "a"


def test_without_others_it_is_a_plan_of_its_own():
    assert placed(cluster("a"), [a_member(8)]) == [("a", tuple(range(8)))]


def test_members_are_not_tried_one_by_one_on_too_many_nodes():
    nodes = [f"n{i}" for i in range(EACH_MAX // 64 + 1)]
    siblings = [on(node, 0) for node in nodes]
    snapshot = cluster(*nodes)

    found = plan_with_siblings(snapshot, workers(64), siblings)

    assert isinstance(found, Plan)
    assert not found.one_by_one
