"""Which one node a pod, or a whole gang, fits best."""

from collections.abc import Iterable

import numpy as np

from cluster.ledger import NodeLedger
from cluster.node import Placement
from scorer.placement.feasibility import Ints
from scorer.placement.node_assignment import (
    Candidate,
    NodeAssignment,
    Offer,
    SelectionOptions,
    offer,
)
from scorer.placement.node_cache import Value
from scorer.placement.snapshot import Snapshot

TOLERANCE = 0.01
"""Nodes whose A is within this share of the best count as equally fast (`scoring.md`, §4)."""


def best_node(
    candidates: Iterable[Candidate],
    sizes: tuple[int, ...],
    wish: SelectionOptions,
    placement: Placement,
) -> NodeAssignment | None:
    """Return the best node for all workers together, with the GPUs they would get there.

    The largest A wins. Of nodes within 1 % of it, `binpack` takes the one with the fewest GPUs left
    free, then with the least damage to these, then the first name; `spread` the most left free.

    Args:
        candidates: Nodes that can take all workers; of nodes alike in machine and free GPUs, which
            differ by name only, the first is enough.
        sizes: GPUs of each worker.
        wish: What is asked of the GPUs.
        placement: How to tell equally fast nodes apart.

    Cost: one look-up a candidate.
    """
    offers = ((offer(one.table, one.node.free_mask, sizes, wish), one) for one in candidates)
    found = [(given, candidate) for given, candidate in offers if given is not None]
    if not found:
        return None
    enough = max(given.bandwidth for given, _ in found) * (1 - TOLERANCE)
    sign = 1 if placement is Placement.BINPACK else -1

    def order(one: tuple[Offer, Candidate]) -> tuple[int, float, str]:
        given, candidate = one
        return sign * given.left, given.damage, candidate.name

    given, candidate = min((one for one in found if one[0].bandwidth >= enough), key=order)
    return NodeAssignment(candidate, len(sizes), given.mask)


def best_node_of_pod(
    snapshot: Snapshot, rows: Ints, gpus: int, wish: SelectionOptions, placement: Placement
) -> NodeAssignment | None:
    """Return what `best_seat` does for one worker, out of many nodes.

    Args:
        snapshot: The cluster.
        rows: Nodes that can take the worker, as places in `snapshot.nodes`.
        gpus: How many GPUs it needs.
        wish: As in `best_seat`.
        placement: As in `best_seat`.

    Cost: one look-up for each node that changed since this was last asked.
    """
    if not len(rows):
        return None
    tables = snapshot.tables

    def ask(node: NodeLedger) -> Value:
        table = tables.get(node.node.name)
        given = offer(table, node.free_mask, (gpus,), wish) if table else None
        return (given.bandwidth, given.left, given.damage) if given else (-1, 0, 0)

    question = "offers", gpus, wish
    found = snapshot.cache.get_or_compute(question, snapshot.nodes, ask, np.float64)
    rows = np.sort(rows)
    bandwidth = found[0, rows]
    if bandwidth.max() < 0:
        return None
    able = rows[bandwidth >= bandwidth.max() * (1 - TOLERANCE)]
    sign = 1 if placement is Placement.BINPACK else -1
    for order in (sign * found[1], found[2]):
        able = able[order[able] == order[able].min()]
    best = snapshot.nodes[able[0]]
    table = tables[best.node.name]
    given = offer(table, best.free_mask, (gpus,), wish)
    return NodeAssignment(Candidate(best, table, 1), 1, given.mask) if given else None
