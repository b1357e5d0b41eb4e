"""The cluster as the needs of a claim see it.

GPUs that do not satisfy its selectors are closed. Tables of nodes allow only the sets for which its
constraints hold.
"""

from dataclasses import replace
from functools import partial

import numpy as np

from linkwise.cluster.account.ledger import Ledger
from linkwise.cluster.account.node_ledger import NodeLedger
from linkwise.cluster.cel.selection import selects
from linkwise.cluster.cel.values import Failure
from linkwise.cluster.requests.user_claims.matching import (
    Groups,
    MatchedGPUs,
    groups_of,
    matching_sets,
)
from linkwise.cluster.requests.user_claims.pod_claims import NO_NEEDS, DeviceNeeds
from linkwise.planning.placement.state.generations import Nodes, changed_nodes
from linkwise.planning.placement.state.node_cache import SelectedNodes, Value
from linkwise.planning.placement.state.snapshot import Snapshot
from linkwise.topology.per_table import per_table
from linkwise.topology.table import Table

_EVERY = -1
"""The mask of a node on which nothing is closed."""


def selected_by(snapshot: Snapshot, needs: DeviceNeeds) -> Snapshot:
    """Return the same moment for pods whose GPUs have to satisfy some needs.

    A node has no such GPU if a selector fails for one of its GPUs: kube-scheduler does not
    allocate there, either.

    Args:
        snapshot: The cluster.
        needs: The needs; without any, it stays as it is.

    Cost: an evaluation for each GPU of the nodes that changed since the last call.

    Raises:
        DeadlineExceeded: The time for planning is over.
    """
    if needs in (NO_NEEDS, snapshot.needs) or not snapshot.nodes:
        return snapshot
    cache, nodes = snapshot.cache, snapshot.nodes
    compute = partial(_mask, needs.selectors)
    masks = cache.get_or_compute(("selected", needs.selectors), nodes, compute, np.int64)[0]
    if needs.matching is None and (masks == _EVERY).all():
        return snapshot
    known = cache.selected_nodes(needs)
    after = _closed(known, nodes, masks.tolist())
    tables = _restricted_tables(known, snapshot, needs.matching) if needs.matching else {}
    cache.keep_selected(needs, SelectedNodes(nodes, after, tables, known.cache))
    ledger = Ledger({node.node.name: node for node in after}, is_sorted=True)
    tables = {**snapshot.tables, **tables}
    return replace(snapshot, ledger=ledger, tables=tables, cache=known.cache, needs=needs)


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


def _restricted_tables(
    known: SelectedNodes, snapshot: Snapshot, matching: MatchedGPUs
) -> dict[str, Table]:
    """Return the tables of claims nodes; those that were kept for nodes that are the same."""
    nodes, attributes, shape = snapshot.nodes, matching.all_attributes, matching.shape
    same = min(len(known.before), len(nodes))
    changed = {*changed_nodes(known.before, nodes), *range(same, len(nodes))}
    tables: dict[str, Table] = {}
    for row, ledger in enumerate(nodes):
        name, pool = ledger.node.name, ledger.node.pool
        if row not in changed:
            if name in known.tables:
                tables[name] = known.tables[name]
        elif pool is not None and (table := snapshot.tables.get(name)):
            snapshot.cache.check_deadline()
            tables[name] = _restricted(table, shape, groups_of(attributes, pool.facts))
    return tables


@per_table(256)
def _restricted(table: Table, matching: MatchedGPUs, groups: Groups) -> Table:
    """Return the tables of a machine with the sets for which constraints hold."""
    sets = matching_sets(matching, groups, (1 << table.n) - 1)
    return table.restricted(sets, matching.gpus)
