"""Find the pods that would free a whole node if they moved to GPUs that are free on others. Pure.

Only GPUs count, as in `slots`: nothing says that a pod may run on another node, or may be moved.
"""

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from linkwise.cluster.account.node_ledger import NodeLedger

MOVES_MAX = 20
"""Nodes that are returned for one group."""
NODES_MAX = 200
"""Nodes of a group that are looked at, those with the fewest allocated GPUs."""


@dataclass(frozen=True, slots=True)
class Move:
    """GPUs of one gang, or of a pod without a gang, that move to another node."""

    unit: str
    """`namespace/name`."""
    gpus: int
    to: str
    """The node."""


@dataclass(frozen=True, slots=True)
class FreedNode:
    """A node that is free as a whole after some moves."""

    name: str
    gpus: int
    """The GPUs that move."""
    moves: tuple[Move, ...]


def freed_nodes(usable: Sequence[NodeLedger], gpus_per_node: int) -> tuple[FreedNode, ...]:
    """Return the nodes that the fewest moved GPUs make whole; each for itself, before any move.

    A unit moves as one, to a node with free GPUs that is not whole, where the fewest stay free.
    Gangs on several nodes stay: on other nodes their links would be others.

    Args:
        usable: The nodes of one group that take pods.
        gpus_per_node: The GPUs of each.

    Cost: at most `NODES_MAX` nodes, each with a look at the numbers of free GPUs for each unit.
    """
    partly = [ledger for ledger in usable if 0 < ledger.gpus_free < gpus_per_node]
    units_of = {ledger.node.name: _units(ledger) for ledger in usable}
    nodes_of = Counter(unit for units in units_of.values() for unit in units)
    by_free: dict[int, list[str]] = {}
    for ledger in sorted(partly, key=lambda ledger: ledger.node.name):
        by_free.setdefault(ledger.gpus_free, []).append(ledger.node.name)
    # A node with an unusable GPU never is whole.
    whole = [
        ledger
        for ledger in partly
        if sum(units_of[ledger.node.name].values()) == gpus_per_node - ledger.gpus_free
    ]
    whole.sort(key=lambda ledger: (-ledger.gpus_free, ledger.node.name))
    found: list[FreedNode] = []
    for ledger in whole[:NODES_MAX]:
        units = units_of[ledger.node.name]
        if any(nodes_of[unit] > 1 for unit in units):
            continue
        moves = _moves(ledger.node.name, units, by_free)
        if moves:
            found.append(FreedNode(ledger.node.name, sum(units.values()), moves))
    return tuple(found[:MOVES_MAX])


def _moves(
    node: str, units: dict[str, int], by_free: dict[int, list[str]]
) -> tuple[Move, ...] | None:
    """Return a target for each unit of a node, the largest first; None: one has none."""
    left: dict[str, int] = {}
    moves: list[Move] = []
    for unit, gpus in sorted(units.items(), key=lambda item: (-item[1], item[0])):
        fit = [target for target in _targets(node, left, by_free) if target[0] >= gpus]
        if not fit:
            return None
        free, name = min(fit)
        left[name] = free - gpus
        moves.append(Move(unit, gpus, name))
    return tuple(moves)


def _targets(
    node: str, left: dict[str, int], by_free: dict[int, list[str]]
) -> Iterator[tuple[int, str]]:
    """Yield free GPUs and a node: each that got units already, and one of each other number."""
    yield from ((free, name) for name, free in left.items())
    for free, names in by_free.items():
        name = next((name for name in names if name != node and name not in left), None)
        if name is not None:
            yield free, name


def _units(ledger: NodeLedger) -> dict[str, int]:
    """Return the GPUs of each gang, and of each pod without a gang."""
    units: dict[str, int] = {}
    for held in ledger.holdings.values():
        if held.gpus:
            unit = held.gang or held.pod
            units[unit] = units.get(unit, 0) + len(held.gpus)
    return units
