from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.builders import a_member, a_node, a_snapshot, workers
from support.strategies import clusters, gangs

from linkwise.cluster.gang import Link
from linkwise.planning.placement.bandwidth import UNDEFINED, Bandwidth
from linkwise.planning.placement.baselines import IndexOrder, best_possible, index_order, never_fits
from linkwise.planning.placement.options import Preferences
from linkwise.planning.placement.result import Plan
from linkwise.planning.placement.schedule import plan
from linkwise.topology.catalogue import NAMES, entry
from linkwise.topology.choice import ChoiceMode


def test_index_order_fills_nodes_by_name_with_the_lowest_indices():
    snapshot = a_snapshot(a_node("b"), a_node("a"), taken={"a": (0, 2, 3, 4, 5), "b": (1,)})

    bandwidth = Bandwidth(3.6, nodes=2, nic_unknown=True)
    gpus = {"a": (1, 6, 7), "b": (0, 2, 3)}
    assert index_order(snapshot, workers(6)) == IndexOrder(gpus, bandwidth)
    with_nics = replace(snapshot, preferences=Preferences(nic_bandwidth=100.0))
    assert index_order(with_nics, workers(6)).bandwidth == Bandwidth(3.6, nodes=2)


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
    assert best_possible(snapshot, workers(4)) == Bandwidth(55.2, nodes=1)
    assert best_possible(snapshot, workers(9)) == UNDEFINED


@pytest.mark.parametrize("name", ["dgx1-v100", "dgx1-p100"])
def test_one_gpu_on_a_node_limits_index_order_more_than_an_even_split_is_limited(name):
    snapshot = a_snapshot(*(a_node(node, machine=entry(name).machine) for node in "ab"))
    planned, order = plan(snapshot, workers(9)), index_order(snapshot, workers(9))

    assert [len(gpus) for gpus in planned.gpus.values()] == [5, 4]
    assert planned.bandwidth.value == 13.5
    assert best_possible(snapshot, workers(9)).value == 13.5
    assert order.bandwidth.value == 6.75
    assert order.bandwidth.slowest.text == "PCIe out of b, which has one of the job's GPUs"


def test_a_plan_of_another_split_may_be_faster_than_that_of_the_empty_cluster():
    nodes = [a_node(node, machine=entry("dgx1-v100").machine) for node in "ab"]
    snapshot = a_snapshot(*nodes, taken={"a": (0, 1), "b": (0, 1, 2, 4, 6)})
    planned = plan(snapshot, workers(9)).bandwidth

    assert (planned.value, best_possible(snapshot, workers(9)).value) == (13.8, 13.5)
    assert best_possible(snapshot, workers(9), planned) == planned


def test_index_order_on_as_many_nodes_may_be_faster_than_the_plan_and_the_empty_cluster():
    nodes = [a_node(node, machine=entry("dgx1-p100").machine) for node in "ab"]
    snapshot = a_snapshot(*nodes, taken={"a": (1, 2, 6), "b": (0, 2, 3)})
    planned, order = plan(snapshot, workers(9)).bandwidth, index_order(snapshot, workers(9))

    assert best_possible(snapshot, workers(9), planned).value == planned.value == 13.5
    assert best_possible(snapshot, workers(9), planned, order) == order.bandwidth
    assert order.bandwidth.value == 13.9725


@st.composite
def gangs_on_catalogue_machines(draw):
    name, others = draw(st.sampled_from(NAMES)), draw(st.sampled_from(NAMES))
    nodes = [
        a_node(f"n{i}", machine=entry(machine).machine)
        for i, machine in enumerate((name, name, others))
        if i < 2 or draw(st.booleans())
    ]
    taken = {node.name: tuple(draw(st.sets(st.integers(0, len(node.cards) - 1)))) for node in nodes}
    nic, mode = draw(st.sampled_from((None, 12.5, 100.0))), draw(st.sampled_from(ChoiceMode))
    snapshot = a_snapshot(*nodes, taken=taken, mode=mode, nic_bandwidth=nic)
    return snapshot, workers(draw(st.integers(2, 20)), draw(st.integers(1, 3)))


@settings(max_examples=100)
@given(gangs_on_catalogue_machines())
def test_best_possible_is_never_below_the_plan_or_index_order(gang):
    snapshot, members = gang
    found, order = plan(snapshot, members), index_order(snapshot, members)
    planned = found.bandwidth if isinstance(found, Plan) else UNDEFINED

    best = best_possible(snapshot, members, planned, order)

    assert planned.value is None or best.value >= planned.value
    if order and order.bandwidth.value and best.value and order.bandwidth.nodes == best.nodes:
        assert best.value >= order.bandwidth.value


def test_the_best_possible_over_nodes_counts_links_inside_each():
    snapshot = a_snapshot(a_node("a"), a_node("b"), taken={"a": (0,)})

    best = best_possible(snapshot, workers(4, 4))

    assert (best.nodes, best.nic_unknown) == (2, True)


def test_empty_cluster_is_not_compared_while_link_tables_are_computed():
    known = a_snapshot(a_node("a"))
    preparing = a_snapshot(a_node("a"), a_node("b", preparing=True))

    assert never_fits(known, workers(9), Link.BEST)
    assert not never_fits(preparing, workers(9), Link.BEST)
    assert best_possible(preparing, workers(4)) == UNDEFINED


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


def test_pod_that_follows_others_may_fit_once_they_run():
    term = {"topologyKey": "zone", "labelSelector": {"matchLabels": {"app": "db"}}}
    near = {"podAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [term]}}
    snapshot = a_snapshot(a_node())

    assert not never_fits(snapshot, workers(8, affinity=near), Link.BEST)
    assert never_fits(snapshot, workers(9, affinity=near), Link.BEST)
    assert best_possible(snapshot, workers(8, affinity=near)).value
