from dataclasses import replace

import pytest
from builders import a_member, a_node, a_snapshot, workers
from hypothesis import given, settings
from strategies import clusters, gangs

from cluster.gang import Link
from scorer.placement.baselines import IndexOrder, best_possible, index_order, never_fits
from scorer.placement.result import JobBandwidth, Plan
from scorer.placement.schedule import plan


def test_index_order_fills_nodes_by_name_with_the_lowest_indices():
    snapshot = a_snapshot(a_node("b"), a_node("a"), taken={"a": (0, 2, 3, 4, 5), "b": (1,)})

    bandwidth = JobBandwidth(3.6, nodes=2, nic_unknown=True)
    gpus = {"a": (1, 6, 7), "b": (0, 2, 3)}
    assert index_order(snapshot, workers(6)) == IndexOrder(gpus, bandwidth)
    with_nics = replace(snapshot, nic_bandwidth=100.0)
    assert index_order(with_nics, workers(6)).bandwidth == JobBandwidth(3.6, nodes=2)


def test_index_order_does_not_split_a_worker():
    snapshot = a_snapshot(a_node("a"), a_node("b"), taken={"a": (0, 1, 2, 3, 4)})

    assert index_order(snapshot, workers(2, 2)).gpus == {"a": (5, 6), "b": (0, 1)}


@pytest.mark.parametrize(
    "members",
    [workers(17), [a_member(1, "a"), a_member(2, "b")], workers(2, 9)],
    ids=["too many", "unequal", "too large"],
)
def test_what_index_order_cannot_place_is_none(members):
    assert index_order(a_snapshot(a_node("a"), a_node("b")), members) is None


def test_the_best_possible_is_that_of_the_empty_cluster():
    snapshot = a_snapshot(a_node(), taken={"node-0": (0, 1, 2, 3)})

    assert best_possible(snapshot, workers(2, 4)).value > 55.2
    assert best_possible(snapshot, workers(4)) == JobBandwidth(55.2, nodes=1)
    assert best_possible(snapshot, workers(9)) is None


def test_the_best_possible_over_nodes_counts_links_inside_each():
    snapshot = a_snapshot(a_node("a"), a_node("b"), taken={"a": (0,)})

    best = best_possible(snapshot, workers(4, 4))

    assert (best.nodes, best.nic_unknown) == (2, True)


def test_nothing_is_said_of_the_empty_cluster_while_link_tables_are_computed():
    known = a_snapshot(a_node("a"))
    preparing = a_snapshot(a_node("a"), a_node("b", preparing=True))

    assert never_fits(known, workers(9), Link.BEST)
    assert not never_fits(preparing, workers(9), Link.BEST)
    assert best_possible(preparing, workers(4)) is None


def test_choosing_well_is_worth_fourteen_times_the_worst_four():
    snapshot = a_snapshot(a_node(), taken={"node-0": (2, 3)})
    found = plan(snapshot, workers(4))

    assert index_order(snapshot, workers(4)).gpus == {"node-0": (0, 1, 4, 5)}
    assert isinstance(found, Plan)
    assert found.gpus == {"node-0": (4, 5, 6, 7)}


@settings(max_examples=40)
@given(clusters(), gangs())
def test_index_order_takes_free_gpus_of_nodes_that_may_be_used(snapshot, members):
    found = index_order(snapshot, members)
    if found is None:
        return
    for name, gpus in found.gpus.items():
        free = snapshot.ledger.nodes[name].free_mask
        assert all(free >> gpu & 1 for gpu in gpus)
    assert sum(map(len, found.gpus.values())) == sum(member.gpus for member in members)
    assert list(found.gpus) == sorted(found.gpus)
