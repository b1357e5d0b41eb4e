from functools import partial
from itertools import combinations
from typing import Any

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from support.builders import a_machine, a_node, a_pcie_machine, a_snapshot, dgx1_p100, dgx1_v100
from support.strategies import RACK, ZONE, topology_nodes

from linkwise.planning.placement.assignment.candidates import CandidateNodes
from linkwise.planning.placement.assignment.multi_node import (
    EXACT,
    MultiNodeAssignment,
    best_assignment,
    most_even,
)
from linkwise.planning.placement.assignment.node_assignment import SelectionOptions
from linkwise.planning.placement.state.snapshot import Snapshot
from linkwise.topology.choice import ChoiceMode, ChoiceRequest, choose
from linkwise.topology.machine import NIC, Level, Machine, gpus_of

OPTIONS = SelectionOptions(ChoiceMode.KEEP, multi_node=True)


def seated(
    snapshot: Snapshot, workers: int, each: int = 1, **fields: Any
) -> MultiNodeAssignment | None:
    """Seat workers where no node takes all of them, as is known when several nodes are asked."""
    rooms = np.array(
        [min(node.free_mask.bit_count() // each, workers - 1) for node in snapshot.nodes]
    )
    able = np.flatnonzero(rooms)
    nodes = CandidateNodes(snapshot, able, rooms[able])
    ranking = partial(most_even, each=each, **{"options": OPTIONS, **fields})
    return best_assignment(nodes, workers, ranking)


def by_name(found: MultiNodeAssignment | None) -> dict[str, int]:
    assert found is not None
    return {assignment.name: assignment.workers for assignment in found.assignments}


def all_seatings(snapshot: Snapshot, workers: int, each: int) -> list[dict[str, int]]:
    """Return every way to seat the workers on the fewest nodes, as workers by node name."""
    rooms = {node.node.name: node.free_mask.bit_count() // each for node in snapshot.nodes}
    for count in range(2, len(rooms) + 1):
        found = [
            dict(zip(names, counts, strict=True))
            for names in combinations(rooms, count)
            for counts in counts_of(workers, count)
            if all(rooms[name] >= number for name, number in zip(names, counts, strict=True))
        ]
        if found:
            return found
    return []


def counts_of(workers: int, count: int) -> set[tuple[int, ...]]:
    if count == 1:
        return {(workers,)}
    return {
        (first, *rest)
        for first in range(1, workers)
        for rest in counts_of(workers - first, count - 1)
    }


def judged(snapshot: Snapshot, found: dict[str, int], each: int) -> tuple[object, ...]:
    """Return how good a seating is, word by word as the model's page has it; the least is best."""
    nodes = {name: snapshot.ledger.nodes[name] for name in found}
    tables = {name: snapshot.tables[name] for name in found}
    common = [
        len({node.node.labels.get(label, node.node.name) for node in nodes.values()}) == 1
        for label in snapshot.preferences.domains
    ]
    masks = {
        name: choose(
            tables[name], ChoiceRequest(nodes[name].free_mask, number * each, multi_node=True)
        )
        for name, number in found.items()
    }
    kept = {name: nodes[name].free_mask & ~mask for name, mask in masks.items()}

    def goodness(name: str, free: int) -> float:
        return 0.25 * float(tables[name].v(2)[free] + tables[name].v(4)[free])

    speeds = [tables[n].bandwidth(mask) for n, mask in masks.items() if mask.bit_count() > 1]
    damage = sum(goodness(n, nodes[n].free_mask) - goodness(n, kept[n]) for n in found)
    return (
        [*common, True].index(True),
        max(found.values()) - min(found.values()),
        -min(speeds, default=0.0),
        len(set(masks.values())),
        -sum(int(tables[name].near[mask]) for name, mask in masks.items()),
        round(damage, 5),
        sorted(found),
    )


@st.composite
def small_clusters(draw: st.DrawFn) -> Snapshot:
    nodes = [draw(topology_nodes(f"n{i}")) for i in range(draw(st.integers(2, 5)))]
    taken = {
        node.name: draw(st.lists(st.integers(0, len(node.cards) - 1), max_size=6, unique=True))
        for node in nodes
    }
    return a_snapshot(
        *nodes, taken=taken, domains=draw(st.sampled_from(((), (RACK,), (RACK, ZONE))))
    )


@settings(max_examples=80)
@given(small_clusters(), st.integers(2, 7), st.sampled_from((1, 1, 2, 3, 4)))
def test_no_other_node_set_is_better(snapshot, workers, each):
    every = all_seatings(snapshot, workers, each)
    found = seated(snapshot, workers, each)

    if not every:
        assert found is None
        return
    best = min(judged(snapshot, found, each) for found in every)
    assert found is not None
    assert found.exact
    assert judged(snapshot, by_name(found), each)[:-1] == best[:-1]
    assert sorted(by_name(found)) == best[-1]


@settings(max_examples=40)
@given(st.lists(st.integers(0, 255), min_size=20, max_size=30), st.integers(20, 60), st.booleans())
def test_many_nodes_are_chosen_greedily_and_marked_as_not_exact(masks, workers, racks):
    nodes = [a_node(f"n{i:02}", labels={RACK: str(i % 3)}) for i in range(len(masks))]
    taken = {f"n{i:02}": [g for g in range(8) if mask >> g & 1] for i, mask in enumerate(masks)}
    snapshot = a_snapshot(*nodes, taken=taken, domains=(RACK,) if racks else ())
    found = seated(snapshot, workers)
    free = {node.node.name: node.free_mask for node in snapshot.nodes}
    rooms = sorted((mask.bit_count() for mask in free.values()), reverse=True)
    assume(sum(rooms) >= workers)

    assert found is not None
    assert sum(by_name(found).values()) == workers
    assert len(by_name(found)) == next(n for n in range(99) if sum(rooms[:n]) >= workers)
    for assignment in found.assignments:
        assert assignment.mask & ~free[assignment.name] == 0
        assert assignment.mask.bit_count() == assignment.workers
    if found.domain is None and not found.exact:
        most = max(by_name(found).values())
        assert all(
            assignment.workers in (most, most - 1, free[assignment.name].bit_count())
            for assignment in found.assignments
        )


def test_a_greedy_choice_of_equal_parts_has_the_best_worst_node_then_equal_gpus():
    # Every set of four to seven free GPUs of a DGX-1 is on some node; 20 nodes take a worker each.
    # Many nodes alike are slow.
    masks = [mask for mask in range(256) if 1 <= mask.bit_count() <= 4]
    taken = {f"n{mask:03}": gpus_of(mask) for mask in masks}
    slow = [a_node(f"m{i:02}", a_pcie_machine(4, socket=2)) for i in range(60)]
    snapshot = a_snapshot(*(a_node(name) for name in taken), *slow, taken=taken)

    found = seated(snapshot, 20, 4)

    assert not found.exact
    assert {assignment.bandwidth for assignment in found.assignments} == {55.2}
    # Fifteen nodes have the one half of the machine free; the others give its other half.
    assert {assignment.mask for assignment in found.assignments} == {0b00001111, 0b11110000}


def test_nodes_alike_are_tried_once():
    nodes = [a_node(f"n{i:02}", dgx1_p100() if i % 2 else dgx1_v100()) for i in range(40)]

    found = seated(a_snapshot(*nodes), 20, 8)

    assert found.exact
    assert set(by_name(found)) == {f"n{i:02}" for i in range(0, 40, 2)}


@pytest.mark.parametrize(("count", "exact"), [(100, True), (101, False)])
def test_the_bound_counts_the_nodes_of_all_sets(count, exact):
    assert EXACT == 100 * 99 // 2 * 2 + 100
    # Of each of these sets of four to six free GPUs one node, so that no two are alike.
    masks = [mask for mask in range(256) if 2 <= mask.bit_count() <= 4][:count]
    taken = {f"n{mask:03}": gpus_of(mask) for mask in masks}

    assert seated(a_snapshot(*(a_node(n) for n in taken), taken=taken), 2, 4).exact is exact


def test_fewest_nodes_come_before_the_nearest_domain():
    nodes = [a_node("a0", labels={RACK: "a"}), a_node("b0", labels={RACK: "b"})]
    small = [a_node(f"c{i}", machine=a_machine(4), labels={RACK: "c"}) for i in range(4)]

    found = seated(a_snapshot(*nodes, *small, domains=(RACK,)), 16)

    assert by_name(found) == {"a0": 8, "b0": 8}
    assert found.domain is None


def test_the_nearest_domain_comes_before_an_even_split():
    nodes = [
        a_node("a0", labels={RACK: "a"}),
        a_node("a1", labels={RACK: "a"}),
        a_node("b0", labels={RACK: "b"}),
    ]

    found = seated(a_snapshot(*nodes, taken={"a1": (1, 2, 3, 4, 5, 6, 7)}, domains=(RACK,)), 9)

    assert by_name(found) == {"a0": 8, "a1": 1}
    assert found.domain == f"{RACK}=a"


def test_a_farther_domain_is_taken_where_no_nearer_one_has_room():
    places = {"a0": ("a", "y"), "b0": ("b", "z"), "c0": ("c", "z")}
    nodes = [a_node(name, labels={RACK: r, ZONE: z}) for name, (r, z) in places.items()]

    found = seated(a_snapshot(*nodes, domains=(RACK, ZONE)), 16)

    assert found.domain == f"{ZONE}=z"
    assert by_name(found) == {"b0": 8, "c0": 8}


def test_nodes_without_the_label_share_no_domain():
    nodes = [a_node("a", labels={}), a_node("b", labels={})]

    assert seated(a_snapshot(*nodes, domains=(RACK,)), 16).domain is None


def test_the_same_gpus_on_every_node_are_preferred():
    nodes = [a_node(name) for name in "abc"]
    taken = {"a": (0, 1, 2, 3), "b": (4, 5, 6, 7), "c": (0, 1, 2, 3)}

    assert by_name(seated(a_snapshot(*nodes, taken=taken), 8)) == {"a": 4, "c": 4}


def test_gpus_near_a_nic_are_preferred():
    def with_nic(level: Level) -> Machine:
        return a_machine(2, {(0, 1): 2}, nics=(NIC("mlx5_0", (level, level)),))

    nodes = [
        a_node(name, with_nic(level))
        for name, level in (("a", Level.SYS), ("b", Level.PIX), ("c", Level.PXB))
    ]

    assert by_name(seated(a_snapshot(*nodes), 4)) == {"b": 2, "c": 2}


def test_what_stays_free_is_kept_good():
    # All of these take GPU 0 only; where its pair is free, more would break.
    nodes = [a_node(name, machine=a_machine(2, {(0, 1): 2})) for name in "abc"]

    assert by_name(seated(a_snapshot(*nodes, taken={"b": (1,), "c": (1,)}), 2)) == {"b": 1, "c": 1}


def test_larger_part_is_placed_where_the_smaller_would_be_slow():
    # Two workers of two on one node, one on the other: node b has no other pair of free GPUs.
    nodes = [a_node(name) for name in "ab"]
    taken = {"a": (4, 5, 6, 7), "b": (1, 2, 4, 5, 6, 7)}

    assert by_name(seated(a_snapshot(*nodes, taken=taken), 3, 2)) == {"a": 2, "b": 1}


def test_beside_a_slow_part_a_fast_one_is_worth_nothing_and_the_least_is_broken():
    # Two workers go to x, where four GPUs are slow; the third one needs not be faster.
    fast, plain = a_machine(2, {(0, 1): 2}), a_machine(2)
    nodes = [a_node("a", fast), a_node("b", plain), a_node("x", a_pcie_machine(4, socket=2))]

    assert by_name(seated(a_snapshot(*nodes), 3, 2)) == {"b": 1, "x": 2}


def test_too_many_workers_get_no_assignment():
    assert seated(a_snapshot(a_node("a"), a_node("b")), 17) is None


@pytest.mark.parametrize("order", ["abc", "cba", "bca"])
def test_the_order_of_nodes_does_not_matter(order):
    assert by_name(seated(a_snapshot(*(a_node(name) for name in order)), 10)) == {"a": 5, "b": 5}


def test_larger_part_is_placed_on_the_first_of_equal_nodes():
    nodes = [a_node(name, a_machine(3, numa=(0, 0, i))) for i, name in enumerate("ab")]

    assert by_name(seated(a_snapshot(*nodes), 5)) == {"a": 3, "b": 2}


def test_hundreds_of_nodes_all_of_which_differ_are_all_taken_where_all_are_needed():
    # Of each set of free GPUs one node, and each takes one worker less than it has GPUs.
    masks = range(1, 256)
    taken = {f"n{mask:03}": gpus_of(mask ^ 255) for mask in masks}
    snapshot = a_snapshot(*(a_node(name) for name in taken), taken=taken)
    workers = sum(mask.bit_count() for mask in masks)

    found = seated(snapshot, workers)

    assert found.exact
    assert len(found.assignments) == 255
