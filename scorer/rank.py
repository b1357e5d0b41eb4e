"""How feasible nodes rank for one pod: whole numbers from 0 to 10, as an extender answers."""

from collections.abc import Callable, Iterable
from typing import TypeVar

from cluster.ledger import NodeLedger
from cluster.node import Placement
from cluster.request import Family, Request
from scorer.cards import preference
from scorer.onenode import TOLERANCE
from scorer.snapshot import Snapshot
from topology.choice import Ask, choose
from topology.table import Table

HIGHEST = 10
"""`MaxExtenderPriority` of the scheduler's extender protocol."""
FAST = 8
"""Scores from here on are for nodes as fast as the best; what they leave free tells these apart."""

State = TypeVar("State")


def rank_nodes(snapshot: Snapshot, names: Iterable[str], request: Request) -> dict[str, int]:
    """Score nodes that can take a pod; a node that cannot gets 0.

    For whole GPUs a node within 1 % of the best A gets 8 to 10 by what it would leave (`binpack`:
    few free GPUs and little damage; `spread`: many), any other 0 to 7 by its share of the best A.
    For shares and replicas the order of `cards.preference` is spread over 0 to 10.

    Cost: one look-up a node; nodes alike in machine and free GPUs are judged once. 5 ms for 5 000
    nodes.
    """
    if request.family is not Family.WHOLE:
        return _by_preference(snapshot, names, request)
    nodes, tables = snapshot.ledger.nodes, snapshot.tables
    states = {name: (tables[name], nodes[name].free_mask) for name in names if name in tables}
    scores = _whole_scores(set(states.values()), request.gpus, snapshot)
    return {name: scores[state] for name, state in states.items()}


def _whole_scores(
    states: set[tuple[Table, int]], gpus: int, snapshot: Snapshot
) -> dict[tuple[Table, int], int]:
    """Score each distinct pair of machine and free GPUs."""
    sets = {state: choose(state[0], Ask(state[1], gpus, mode=snapshot.mode)) for state in states}
    taken = {state: mask for state, mask in sets.items() if mask is not None}
    speed = {state: state[0].bandwidth(mask) for state, mask in taken.items()}
    best = max(speed.values(), default=0.0)
    fast = {state: mask for state, mask in taken.items() if speed[state] >= best * (1 - TOLERANCE)}
    sign = 1 if snapshot.placement is Placement.BINPACK else -1

    def leaves(state: tuple[Table, int]) -> tuple[int, float]:
        table, free = state
        left = free & ~fast[state]
        damage = round(table.remainder(free) - table.remainder(left), 6)
        return sign * left.bit_count(), damage

    scores = dict.fromkeys(states, 0)
    scores |= {state: int((FAST - 1) * speed[state] / best) for state in taken if best}
    return scores | _spread_over(fast, leaves, FAST)


def _by_preference(snapshot: Snapshot, names: Iterable[str], request: Request) -> dict[str, int]:
    nodes = {name: snapshot.ledger.nodes[name] for name in names if name in snapshot.ledger.nodes}

    def wish(name: str) -> tuple[float, ...]:
        return _preference(nodes[name], request)

    return _spread_over(nodes, wish, 0)


def _preference(node: NodeLedger, request: Request) -> tuple[float, ...]:
    return preference(node, request) if request.places else (float(node.nvidia_free),)


def _spread_over(
    states: Iterable[State], key: Callable[[State], tuple[float, ...]], lowest: int
) -> dict[State, int]:
    """Score states from 10 for the least key down to `lowest`, equal keys alike."""
    keys = {state: key(state) for state in states}
    position = {value: index for index, value in enumerate(sorted(set(keys.values())))}
    steps = max(len(position) - 1, 1)
    return {
        state: HIGHEST - (HIGHEST - lowest) * position[value] // steps
        for state, value in keys.items()
    }
