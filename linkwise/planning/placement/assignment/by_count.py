"""Rank nodes by their number of free GPUs, where NVIDIA's plugin chooses the GPUs of each pod.

In this order: the fastest machines; the tightest fit, which keeps whole nodes whole; names. All but
one node are filled. Nodes on which Linkwise chooses the GPUs are used, too, where this saves nodes.
"""

from operator import itemgetter

import numpy as np

from linkwise.cluster.account.node_ledger import NodeLedger
from linkwise.planning.placement.assignment.candidates import CandidateNodes, Domain
from linkwise.planning.placement.assignment.multi_node import MultiNodeAssignment
from linkwise.planning.placement.assignment.node_assignment import (
    CountedAssignment,
    NodeAssignment,
    SelectionOptions,
    select_gpus,
)
from linkwise.planning.placement.state.node_cache import Value
from linkwise.planning.placement.state.node_columns import Ints, node_columns
from linkwise.planning.placement.state.snapshot import Snapshot
from linkwise.topology.machine import mask_of


def tightest(domains: list[Domain], workers: int, count: int, *, each: int) -> MultiNodeAssignment:
    """Return the best set of nodes by their number of free GPUs; a `Ranking`.

    Args:
        domains: As in `Ranking`.
        workers: As in `Ranking`.
        count: As in `Ranking`.
        each: GPUs of each worker; of any, where they differ.

    Cost: linear in the nodes.
    """
    found = [(*_in_domain(nodes, workers, count, each), domain) for domain, nodes in domains]
    _, chosen, domain = min(found, key=itemgetter(0))
    snapshot = domains[0][1].snapshot
    counted = node_columns(snapshot).is_counted
    assignments = tuple(
        CountedAssignment(snapshot.nodes[row].node.name, number)
        if counted[row]
        else _exact(snapshot, row, number, each)
        for row, number in chosen.items()
    )
    return MultiNodeAssignment(assignments, domain, exact=len(chosen) == 1)


def linked_by_count(snapshot: Snapshot, capacity: Ints) -> Ints:
    """Return the capacity of counted nodes where NVLink alone connects any set of GPUs; else 0."""
    tables = snapshot.tables

    def compute(node: NodeLedger) -> Value:
        table = tables.get(node.node.name)
        pairs = ((i, j) for j in range(table.n) for i in range(j)) if table else ()
        return (table is not None and all(table.linked[mask_of(pair)] for pair in pairs),)

    if not snapshot.nodes:
        return capacity
    column = snapshot.cache.get_or_compute("all linked", snapshot.nodes, compute, np.int64)[0]
    linked: Ints = capacity * column * node_columns(snapshot).is_counted
    return linked


def _in_domain(
    nodes: CandidateNodes, workers: int, count: int, each: int
) -> tuple[tuple[object, ...], dict[int, int]]:
    """Choose so many nodes of a domain: the smallest ones that suffice together.

    Returns:
        The key of this choice among those of all domains, of which the least is best; then the
        number of workers by index in `snapshot.nodes`, ascending.
    """
    slowest = 0
    if workers * each > 1:
        nodes, slowest = _fastest(nodes, workers, count)
    columns = node_columns(nodes.snapshot)
    free, used = columns.free, columns.free < columns.cards
    order = np.lexsort((nodes.rows, ~used[nodes.rows], free[nodes.rows], nodes.capacity))
    rows, capacity = nodes.rows[order], nodes.capacity[order]
    chosen: dict[int, int] = {}
    for others in range(count - 1, -1, -1):
        # The other nodes can be the largest ones: the least that is left to this one.
        least = workers - int(capacity[len(capacity) - others :].sum())
        place = int(np.searchsorted(capacity, least))
        chosen[int(rows[place])] = taken = min(int(capacity[place]), workers)
        workers -= taken
        rows, capacity = np.delete(rows, place), np.delete(capacity, place)
    broken, total_free = int((~used)[list(chosen)].sum()), int(free[list(chosen)].sum())
    by_name = dict(sorted(chosen.items()))
    return (-slowest, total_free, broken, list(by_name)), by_name


def _fastest(nodes: CandidateNodes, workers: int, count: int) -> tuple[CandidateNodes, int]:
    """Return the fastest machines that suffice with as many nodes, and the speed of the slowest."""
    speed = node_columns(nodes.snapshot).speed[nodes.rows]
    for slowest in np.unique(speed)[::-1].tolist():
        fast = nodes.where(speed >= slowest)
        if fast.min_nodes(workers) == count:
            return fast, slowest
    return nodes, 0


def _exact(snapshot: Snapshot, row: int, workers: int, each: int) -> NodeAssignment:
    """Choose GPUs on a node of a plan over nodes of both kinds."""
    ledger = snapshot.nodes[row]
    table = snapshot.tables[ledger.node.name]
    options = SelectionOptions(snapshot.preferences.mode, multi_node=True)
    selection = select_gpus(table, ledger.free_mask, (each,) * workers, options)
    # The capacity of the node is its number of free GPUs, so there is such a set.
    return NodeAssignment(ledger, table, selection.mask if selection else 0, workers)
