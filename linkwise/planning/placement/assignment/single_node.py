"""Choose the best single node for a pod or a whole gang."""

from collections.abc import Iterable

import numpy as np

from linkwise.cluster.account.node_ledger import NodeLedger
from linkwise.cluster.mode import PackingStrategy
from linkwise.planning.placement.assignment.node_assignment import (
    NodeAssignment,
    Selection,
    SelectionOptions,
    select_gpus,
)
from linkwise.planning.placement.state.node_cache import Value
from linkwise.planning.placement.state.node_columns import Ints
from linkwise.planning.placement.state.snapshot import Snapshot

TOLERANCE = 0.01
"""Nodes whose A is within this share of the best count as equally fast (`scoring.md`, §4)."""


def best_node(
    snapshot: Snapshot,
    candidates: Iterable[NodeLedger],
    sizes: tuple[int, ...],
    options: SelectionOptions,
) -> NodeAssignment | None:
    """Return the best node for all workers together, and their GPUs there.

    The largest A wins. Of nodes within 1 % of it, `binpack` takes the one with the fewest GPUs
    free after it, then with the least damage to these, then the first name; `spread` the most.

    Args:
        snapshot: The cluster.
        candidates: Nodes that fit all workers; of nodes that differ by name only, the first is
            enough.
        sizes: GPUs of each worker.
        options: How to select GPUs.

    Cost: one look-up a candidate.
    """
    selections = [
        (selection, node)
        for node in candidates
        if (
            selection := select_gpus(
                snapshot.tables[node.node.name], node.free_mask, sizes, options
            )
        )
    ]
    if not selections:
        return None
    # All are compared with the fastest one: "within 1 % of each other" is not transitive, so it is
    # no order.
    enough = max(selection.bandwidth for selection, _ in selections) * (1 - TOLERANCE)
    sign = _sign(snapshot)

    def order(pair: tuple[Selection, NodeLedger]) -> tuple[int, float, str]:
        selection, node = pair
        return sign * selection.free_after, selection.damage, node.node.name

    fast = (pair for pair in selections if pair[0].bandwidth >= enough)
    selection, node = min(fast, key=order)
    return NodeAssignment(node, snapshot.tables[node.node.name], selection.mask, len(sizes))


def best_node_of_pod(
    snapshot: Snapshot,
    rows: Ints,
    gpus: int,
    options: SelectionOptions,
    crowds: Ints | None = None,
) -> NodeAssignment | None:
    """Return the same as `best_node` for one worker, out of many nodes.

    Args:
        snapshot: The cluster.
        rows: Nodes that fit the worker, as indices in `snapshot.nodes`.
        gpus: How many GPUs it needs.
        options: As in `best_node`.
        crowds: By node, a key that counts after the bandwidth; the least is best.

    Cost: one look-up for each node that changed since the last call.
    """
    if not len(rows):
        return None
    tables = snapshot.tables

    def compute(node: NodeLedger) -> Value:
        table = tables.get(node.node.name)
        found = select_gpus(table, node.free_mask, (gpus,), options) if table else None
        return (found.bandwidth, found.free_after, found.damage) if found else (-1, 0, 0)

    key = "selections", gpus, options
    bandwidth, free_after, damage = snapshot.cache.get_or_compute(
        key, snapshot.nodes, compute, np.float64
    )
    # The keys of `best_node` one after another; each leaves the nodes that are best by it. Rows
    # ascend by name, so the first one left is the least by all keys.
    rows = np.sort(rows)
    best = bandwidth[rows].max()
    if best < 0:
        return None
    rows = rows[bandwidth[rows] >= best * (1 - TOLERANCE)]
    if crowds is not None:
        rows = rows[crowds[rows] == crowds[rows].min()]
    for order in (_sign(snapshot) * free_after, damage):
        rows = rows[order[rows] == order[rows].min()]
    return best_node(snapshot, [snapshot.nodes[rows[0]]], (gpus,), options)


def _sign(snapshot: Snapshot) -> int:
    """Return 1 where fewer GPUs that stay free are better, -1 where more are."""
    return 1 if snapshot.preferences.placement is PackingStrategy.BINPACK else -1
