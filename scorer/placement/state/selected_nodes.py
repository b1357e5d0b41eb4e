"""The cluster as the selectors of a claim see it: GPUs that do not satisfy them are closed."""

from dataclasses import replace
from functools import partial

import numpy as np

from cluster.account.ledger import Ledger
from cluster.account.node_ledger import NodeLedger
from cluster.cel.selection import selects
from cluster.cel.values import Failure
from scorer.placement.state.node_cache import Nodes, SelectedNodes, Value, changed_nodes
from scorer.placement.state.snapshot import Snapshot

_EVERY = -1
"""The mask of a node on which nothing is closed."""


def selected_by(snapshot: Snapshot, selectors: tuple[str, ...]) -> Snapshot:
    """Return the same moment with the GPUs closed that do not satisfy some expressions (CEL).

    A node has no such GPU if the expressions fail for one of its GPUs: kube-scheduler does not
    allocate there, either.

    Args:
        snapshot: The cluster.
        selectors: The expressions; without any, it stays as it is.

    Cost: an evaluation for each GPU of the nodes that changed since the last call.

    Raises:
        DeadlineExceeded: The time for planning is over.
    """
    if not selectors or snapshot.selectors == selectors or not snapshot.nodes:
        return snapshot
    cache, nodes = snapshot.cache, snapshot.nodes
    compute = partial(_mask, selectors)
    masks = cache.get_or_compute(("selected", selectors), nodes, compute, np.int64)[0]
    if (masks == _EVERY).all():
        return snapshot
    known = cache.selected_nodes(selectors)
    after = _closed(known, nodes, masks.tolist())
    cache.keep_selected(selectors, SelectedNodes(nodes, after, known.cache))
    ledger = Ledger({node.node.name: node for node in after}, is_sorted=True)
    return replace(snapshot, ledger=ledger, cache=known.cache, selectors=selectors)


def _closed(known: SelectedNodes, nodes: Nodes, masks: list[int]) -> Nodes:
    """Return the nodes with GPUs closed; the same objects as before for nodes that are the same."""
    shorter = min(len(known.before), len(nodes))
    after = list(known.after[:shorter])
    for row in changed_nodes(known.before, nodes):
        after[row] = _select(nodes[row], masks[row])
    after += map(_select, nodes[shorter:], masks[shorter:])
    return tuple(after)


def _select(ledger: NodeLedger, mask: int) -> NodeLedger:
    return ledger if mask == _EVERY else replace(ledger, node=replace(ledger.node, selected=mask))


def _mask(selectors: tuple[str, ...], ledger: NodeLedger) -> Value:
    """Return the GPUs of a node that satisfy the selectors."""
    pool = ledger.node.pool
    if pool is None:
        return (_EVERY,)
    mask = 0
    for i, facts in enumerate(pool.facts):
        selected = selects(selectors, facts)
        if isinstance(selected, Failure):
            return (0,)
        mask |= selected << i
    return (_EVERY if mask == (1 << len(pool.devices)) - 1 else mask,)
