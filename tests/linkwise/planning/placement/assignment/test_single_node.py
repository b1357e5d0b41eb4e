from typing import Any

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st
from support.builders import a_node, a_pcie_machine, a_snapshot, dgx1_p100, dgx1_v100
from support.strategies import clusters

from linkwise.cluster.account.node_ledger import NodeLedger
from linkwise.cluster.mode import PackingStrategy
from linkwise.planning.placement.assignment.node_assignment import (
    NodeAssignment,
    SelectionOptions,
    select_gpus,
)
from linkwise.planning.placement.assignment.single_node import (
    TOLERANCE,
    best_node,
    best_node_of_pod,
)
from linkwise.planning.placement.state.snapshot import Snapshot
from linkwise.topology.choice import ChoiceMode


def candidates(snapshot: Snapshot, gpus: int = 1) -> list[NodeLedger]:
    return [node for node in snapshot.nodes if node.free_mask.bit_count() >= gpus]


def best(snapshot: Snapshot, gpus: int, **fields: Any) -> NodeAssignment | None:
    return best_node(
        snapshot,
        candidates(snapshot, gpus),
        (gpus,),
        SelectionOptions(ChoiceMode.KEEP, **fields),
    )


@settings(max_examples=50)
@given(clusters(), st.integers(1, 8))
def test_the_node_is_the_first_by_bandwidth_room_damage_and_name(snapshot, gpus):
    options = SelectionOptions(snapshot.preferences.mode)
    able = candidates(snapshot, gpus)
    assignments = [
        (name, select_gpus(snapshot.tables[name], node.free_mask, (gpus,), options))
        for node in able
        if (name := node.node.name)
    ]
    found = best_node(snapshot, able, (gpus,), options)

    if not assignments:
        assert found is None
        return
    fastest = max(given.bandwidth for _, given in assignments)
    fast = [assignment for assignment in assignments if assignment[1].bandwidth >= fastest * 0.99]
    free = [given.free_after for _, given in fast]
    wanted = min(free) if snapshot.preferences.placement is PackingStrategy.BINPACK else max(free)
    as_full = [assignment for assignment in fast if assignment[1].free_after == wanted]
    least = min(given.damage for _, given in as_full)
    name, given = min(assignment for assignment in as_full if assignment[1].damage == least)
    assert found is not None
    assert (found.name, found.mask) == (name, given.mask)


def test_the_fastest_node_wins_even_where_it_is_emptier():
    slow = a_node("a", a_pcie_machine(8, socket=4))
    snapshot = a_snapshot(slow, a_node("b"), taken={"a": (4, 5, 6, 7)})

    assert best(snapshot, 4).name == "b"


def test_nodes_within_one_percent_are_filled_first():
    assert TOLERANCE == 0.01
    nodes = [a_node("a"), a_node("b")]

    packed = a_snapshot(*nodes, taken={"b": (4, 5, 6, 7)})
    assert best(packed, 2).name == "b"

    spread = a_snapshot(*nodes, taken={"a": (4,)}, placement=PackingStrategy.SPREAD)
    assert best(spread, 2).name == "b"


def test_a_node_a_little_faster_is_no_reason_to_open_it():
    # 18 GB/s a link against 20: ten percent are more than the tolerance.
    nodes = [a_node("a", dgx1_v100()), a_node("b", dgx1_p100())]

    assert best(a_snapshot(*nodes, taken={"b": (0, 1, 2, 3)}), 4).name == "a"


def test_a_single_gpu_is_taken_where_it_breaks_least():
    # On both nodes four GPUs are free; on b the free ones are no fast four.
    nodes = [a_node("a"), a_node("b")]
    taken = {"a": (4, 5, 6, 7), "b": (0, 3, 5, 6)}

    assert best(a_snapshot(*nodes, taken=taken), 1).name == "b"


def test_no_node_at_all_is_none():
    assert best(a_snapshot(), 1) is None


def test_no_linked_set_is_none():
    node = a_node("a", a_pcie_machine(4, socket=2))

    assert best(a_snapshot(node), 2, linked=True) is None


@given(clusters(most=5), st.integers(1, 4), st.booleans())
def test_for_one_worker_all_nodes_at_once_give_what_one_after_another_does(snapshot, gpus, linked):
    options = SelectionOptions(snapshot.preferences.mode, linked=linked, multi_node=True)
    rows = [row for row, node in enumerate(snapshot.nodes) if node.node.name in snapshot.tables]
    candidates = [snapshot.nodes[row] for row in rows]

    found = best_node_of_pod(snapshot, np.array(rows, dtype=np.int64), gpus, options)

    assert found == best_node(snapshot, candidates, (gpus,), options)
