import pytest
from builders import a_machine, a_node, a_snapshot, bridged_pairs, dgx1_v100
from hypothesis import given
from hypothesis import strategies as st

from cluster.node import MachineSource, uniform_machine
from scorer.placement.node_assignment import (
    Candidate,
    NodeAssignment,
    Selection,
    SelectionOptions,
    bandwidth_over,
    select_gpus,
)
from topology.catalogue import entry
from topology.choice import ChoiceMode
from topology.machine import NIC, Level, gpus_of, mask_of


def a_candidate(machine=None, taken=(), **node) -> Candidate:
    snapshot = a_snapshot(a_node(machine=machine or dgx1_v100(), **node), taken={"node-0": taken})
    return Candidate(snapshot.nodes[0], snapshot.tables["node-0"], 8)


def assignment(*gpus: int, machine=None, **node) -> NodeAssignment:
    return NodeAssignment(a_candidate(machine, **node), 1, mask_of(gpus))


def taken(
    candidate: Candidate, sizes: tuple[int, ...], options: SelectionOptions
) -> Selection | None:
    return select_gpus(candidate.table, candidate.node.free_mask, sizes, options)


def test_assignment_has_bandwidth_and_free_gpus():
    found = NodeAssignment(a_candidate(taken=(7,)), 2, 0b00001111)

    assert found.bandwidth == 55.2
    assert found.left == 0b01110000


def test_selection_has_bandwidth_free_gpus_and_damage():
    found = taken(a_candidate(taken=(7,)), (2, 2), SelectionOptions(ChoiceMode.FAST))

    assert (found.mask, found.bandwidth, found.left) == (0b00001111, 55.2, 3)
    # Of 0 to 6 three pairs and a four were as fast as they can be; of 4 to 6 one pair is left.
    assert found.damage == pytest.approx(0.25 * (120 + 55.2 - 40))


UNKNOWN = {"machine": uniform_machine(4), "machine_source": MachineSource.UNKNOWN}


def h100(*gpus: int) -> NodeAssignment:
    return assignment(*gpus, machine=entry("dgx-h100").machine)


def l4(*gpus: int) -> NodeAssignment:
    return assignment(*gpus, machine=entry("l4x8").machine)


@pytest.mark.parametrize(
    ("assignments", "nic", "bandwidth"),
    [
        ([assignment(0, 1, 2, 3)], None, 55.2),
        ([assignment(0, 1, 2, 3)], 10.0, 55.2),
        ([assignment(0)], 10.0, None),
        ([assignment(0, 3), assignment(0, 1)], None, 13.333333),
        ([assignment(0, 3), assignment(0, 1)], 100.0, 13.333333),
        ([assignment(0, 3), assignment(0, 1)], 12.5, 8.333333),
        ([assignment(0, 3)] * 4, 12.0, 6.857143),
        ([assignment(0, 3), assignment(1)], None, 30.0),
        ([assignment(0), assignment(1)], None, None),
        ([assignment(0), assignment(1)], 12.5, 12.5),
        ([assignment(0, 1), assignment(0, 1, **UNKNOWN)], 12.5, None),
        ([assignment(0, 1), assignment(0, **UNKNOWN)], None, 15.0),
        ([h100(0, 1)] * 4, None, 211.885714),
        ([h100(0, 1)] * 4, 400.0, 211.885714),
        ([h100(0, 1)] * 4, 100.0, 57.142857),
        ([h100(*range(8))], None, 211.885714),
        ([l4(0, 1)] * 4, None, 5.714286),
        ([l4(0, 1)] * 4, 12.5, 5.714286),
        ([l4(*range(8))], 12.5, 3.428571),
        ([assignment(0, **UNKNOWN), assignment(1, **UNKNOWN)], 12.5, 12.5),
    ],
    ids=[
        "one node",
        "one node has no use for NICs",
        "one GPU",
        "the slower of two",
        "fast NICs",
        "slow NICs",
        "four nodes",
        "one with one GPU",
        "one GPU each",
        "one GPU each over NICs",
        "unknown machine",
        "one GPU of an unknown machine",
        "four H100 nodes",
        "four H100 nodes over fast NICs",
        "four H100 nodes over slow NICs",
        "one H100 node",
        "four L4 nodes",
        "four L4 nodes over NICs",
        "one L4 node",
        "one GPU each of unknown machines",
    ],
)
def test_bandwidth_over_nodes_is_the_slowest_link_by_the_factor_of_the_job(
    assignments, nic, bandwidth
):
    assert bandwidth_over(assignments, nic) == bandwidth


SETS = st.lists(st.sampled_from(range(1, 256)), min_size=1, max_size=5)


@given(st.sampled_from(("dgx1-v100", "dgx-h100", "l4x8")), st.integers(1, 255))
def test_bandwidth_on_one_node_is_that_of_its_set(name, mask):
    found = assignment(*gpus_of(mask), machine=entry(name).machine)

    expected = found.bandwidth if mask.bit_count() > 1 else None
    assert bandwidth_over([found], None) == bandwidth_over([found], 1.0) == expected


@given(SETS, st.floats(0.1, 500), st.floats(0.1, 500))
def test_network_never_raises_bandwidth(masks, nic, faster):
    nodes = [h100(*gpus_of(mask)) for mask in masks]
    inside, slow = bandwidth_over(nodes, None), bandwidth_over(nodes, nic)

    assert inside is None or slow <= inside
    assert slow is None or slow <= bandwidth_over(nodes, nic + faster)


@given(SETS, st.integers(1, 255), st.sampled_from((None, 50.0)))
def test_another_node_never_raises_bandwidth(masks, mask, nic):
    nodes = [assignment(*gpus_of(each)) for each in masks]
    before = bandwidth_over(nodes, nic)

    assert before is None or bandwidth_over([*nodes, assignment(*gpus_of(mask))], nic) <= before


@given(st.lists(st.integers(1, 8), min_size=1, max_size=8))
def test_switched_nodes_have_no_more_bandwidth_than_as_many_gpus_of_one_fabric(sizes):
    k = sum(sizes)
    found = bandwidth_over([h100(*range(size)) for size in sizes], None)

    assert found is None or found == pytest.approx(370.8 * k / (2 * (k - 1)))


def test_gpus_are_selected_by_mode():
    assert taken(a_candidate(), (2, 2), SelectionOptions(ChoiceMode.FAST)).mask == 0b00001111
    assert taken(a_candidate(), (4, 4, 1), SelectionOptions(ChoiceMode.FAST)) is None


def test_nics_count_only_between_nodes():
    far, near = (Level.SYS,) * 2, (Level.PIX,) * 2
    machine = a_machine(4, {(0, 1): 1, (2, 3): 1}, nics=(NIC("mlx5_0", far + near),))

    assert taken(a_candidate(machine), (2,), SelectionOptions(ChoiceMode.FAST)).mask == 0b0011
    between = taken(a_candidate(machine), (2,), SelectionOptions(ChoiceMode.FAST, multi_node=True))
    assert (between.mask, between.near) == (0b1100, 2 * Level.PIX)


def test_on_one_node_nvlink_connects_the_whole_set_between_nodes_each_workers():
    candidate = a_candidate(bridged_pairs())

    assert taken(candidate, (2, 2), SelectionOptions(ChoiceMode.KEEP, linked=True)) is None
    between = taken(
        candidate, (2, 2), SelectionOptions(ChoiceMode.KEEP, linked=True, multi_node=True)
    )
    assert between.mask == 0b00001111
    assert (
        taken(a_candidate(), (2, 2), SelectionOptions(ChoiceMode.KEEP, linked=True)).bandwidth
        == 55.2
    )
