"""Choose the best single node for a pod or a whole gang."""

from collections.abc import Iterable

import numpy as np

from cluster.account.node_ledger import NodeLedger
from cluster.nodes.node import PackingStrategy
from scorer.placement.assignment.node_assignment import (
    Candidate,
    NodeAssignment,
    Selection,
    SelectionOptions,
    select_gpus,
)
from scorer.placement.state.node_cache import Value
from scorer.placement.state.node_columns import Ints
from scorer.placement.state.snapshot import Snapshot

TOLERANCE = 0.01
"""Nodes whose A is within this share of the best count as equally fast (`scoring.md`, §4)."""


def best_node(
    candidates: Iterable[Candidate],
    sizes: tuple[int, ...],
    options: SelectionOptions,
    placement: PackingStrategy,
) -> NodeAssignment | None:
    """Return the best node for all workers together, and their GPUs there.

    The largest A wins. Of nodes within 1 % of it, `binpack` takes the one with the fewest GPUs left
    free, then with the least damage to these, then the first name; `spread` the most left free.

    Args:
        candidates: Nodes that fit all workers; of nodes that differ by name only, the first is
            enough.
        sizes: GPUs of each worker.
        options: How to select GPUs.
        placement: How to choose among equally fast nodes.

    Cost: one look-up a candidate.
    """
    selections = [
        (selection, candidate)
        for candidate in candidates
        if (selection := select_gpus(candidate.table, candidate.node.free_mask, sizes, options))
    ]
    if not selections:
        return None
    enough = max(selection.bandwidth for selection, _ in selections) * (1 - TOLERANCE)
    sign = 1 if placement is PackingStrategy.BINPACK else -1

    def order(pair: tuple[Selection, Candidate]) -> tuple[int, float, str]:
        selection, candidate = pair
        return sign * selection.left, selection.damage, candidate.name

    fast = (pair for pair in selections if pair[0].bandwidth >= enough)
    selection, candidate = min(fast, key=order)
    return NodeAssignment(candidate, len(sizes), selection.mask)


def best_node_of_pod(
    snapshot: Snapshot, rows: Ints, gpus: int, options: SelectionOptions, placement: PackingStrategy
) -> NodeAssignment | None:
    """Return the same as `best_node` for one worker, out of many nodes.

    Args:
        snapshot: The cluster.
        rows: Nodes that fit the worker, as indices in `snapshot.nodes`.
        gpus: How many GPUs it needs.
        options: As in `best_node`.
        placement: As in `best_node`.

    Cost: one look-up for each node that changed since the last call.
    """
    if not len(rows):
        return None
    tables = snapshot.tables

    def compute(node: NodeLedger) -> Value:
        table = tables.get(node.node.name)
        found = select_gpus(table, node.free_mask, (gpus,), options) if table else None
        return (found.bandwidth, found.left, found.damage) if found else (-1, 0, 0)

    key = "selections", gpus, options
    bandwidth, left, damage = snapshot.cache.get_or_compute(
        key, snapshot.nodes, compute, np.float64
    )
    rows = np.sort(rows)
    best = bandwidth[rows].max()
    if best < 0:
        return None
    rows = rows[bandwidth[rows] >= best * (1 - TOLERANCE)]
    sign = 1 if placement is PackingStrategy.BINPACK else -1
    for order in (sign * left, damage):
        rows = rows[order[rows] == order[rows].min()]
    node = snapshot.nodes[rows[0]]
    table = tables[node.node.name]
    selection = select_gpus(table, node.free_mask, (gpus,), options)
    return NodeAssignment(Candidate(node, table, 1), 1, selection.mask) if selection else None
