import pytest
from support.builders import a_machine, a_node, a_snapshot, bridged_pairs, dgx1_v100

from linkwise.cluster.account.node_ledger import NodeLedger
from linkwise.planning.placement.assignment.node_assignment import (
    NodeAssignment,
    Selection,
    SelectionOptions,
    select_gpus,
)
from linkwise.topology.choice import ChoiceMode
from linkwise.topology.machine import NIC, Level
from linkwise.topology.table import Table


def a_candidate(machine=None, taken=(), **node) -> tuple[NodeLedger, Table]:
    snapshot = a_snapshot(a_node(machine=machine or dgx1_v100(), **node), taken={"node-0": taken})
    return snapshot.nodes[0], snapshot.tables["node-0"]


def taken(
    candidate: tuple[NodeLedger, Table], sizes: tuple[int, ...], options: SelectionOptions
) -> Selection | None:
    ledger, table = candidate
    return select_gpus(table, ledger.free_mask, sizes, options)


def test_assignment_has_bandwidth():
    assert NodeAssignment(*a_candidate(taken=(7,)), 0b00001111).bandwidth == 55.2


def test_selection_has_bandwidth_free_gpus_and_damage():
    found = taken(a_candidate(taken=(7,)), (2, 2), SelectionOptions(ChoiceMode.FAST))

    assert (found.mask, found.bandwidth, found.free_after) == (0b00001111, 55.2, 3)
    # Of 0 to 6 three pairs and a four were as fast as they can be; of 4 to 6 one pair is left.
    assert found.damage == pytest.approx(0.25 * (120 + 55.2 - 40))


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
