"""Choose nodes by their number of free GPUs, where NVIDIA's plugin chooses the GPUs of each pod.

In this order: fewest nodes; the nearest common network domain; the fastest machines; the tightest
fit, which keeps whole nodes whole; names. A worker is never split over nodes, and all but one node
are filled. Nodes on which Linkwise chooses the GPUs are used, too, where this saves nodes.
"""

from dataclasses import replace
from typing import NamedTuple

import numpy as np

from cluster.account.node_ledger import NodeLedger
from scorer.placement.assignment.candidates import CandidateNodes, candidate
from scorer.placement.assignment.node_assignment import (
    NodeAssignment,
    SelectionOptions,
    select_gpus,
)
from scorer.placement.placements import in_parts, new_plan, placements_on
from scorer.placement.pods.group import Group
from scorer.placement.result import Placement, Plan
from scorer.placement.state.node_cache import Value
from scorer.placement.state.node_columns import Ints, node_columns
from scorer.placement.state.snapshot import Snapshot
from topology.machine import mask_of


class _Choice(NamedTuple):
    """The nodes of a gang."""

    order: tuple[object, ...]
    """The key of this choice among those with equally many nodes; the least is best."""
    workers: dict[int, int]
    """Number of workers by index in `snapshot.nodes`, ascending."""
    domain: str | None


def plan_by_count(snapshot: Snapshot, group: Group, capacity: Ints) -> Plan | None:
    """Plan members whose GPUs NVIDIA's plugin may choose; None where they do not fit.

    Args:
        snapshot: The cluster.
        group: The members.
        capacity: How many members each node fits; if they differ in GPUs, all or none.

    Cost: a few ms for 8 workers on 5,000 nodes.
    """
    counted = node_columns(snapshot).is_counted
    capacity = np.minimum(capacity, group.size)
    choices = (
        _choose(CandidateNodes(snapshot, rows, capacity[rows]), group)
        for rows in (np.flatnonzero(capacity * counted), np.flatnonzero(capacity))
    )
    # At equal numbers the first: counted nodes alone.
    choice = min(filter(None, choices), key=lambda choice: len(choice.workers), default=None)
    if choice is None:
        return None
    placements: list[Placement] = []
    parts = in_parts(group.members, choice.workers.values())
    for row, members in zip(choice.workers, parts, strict=True):
        if counted[row]:
            name = snapshot.nodes[row].node.name
            placements += (Placement(member, name, member.counted_gpus) for member in members)
        else:
            assignment = _exact(snapshot, row, len(members), members[0].gpus)
            placements += placements_on(members, assignment, linked=False)
    return new_plan(
        snapshot,
        placements,
        exact=len(choice.workers) == 1,
        domain=choice.domain,
    )


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


def _choose(nodes: CandidateNodes, group: Group) -> _Choice | None:
    count = nodes.min_nodes(group.size)
    if count is None:
        return None
    domains = nodes.nearest_domains(group.size, count)
    choices = (_tightest(domain, inside, group, count) for domain, inside in domains)
    return min(choices, key=lambda choice: choice.order)


def _tightest(domain: str | None, nodes: CandidateNodes, group: Group, count: int) -> _Choice:
    """Choose so many nodes of a domain: the smallest ones that suffice together."""
    snapshot, workers, slowest = nodes.snapshot, group.size, 0
    if group.gpus > 1:
        nodes, slowest = _fastest(nodes, workers, count)
    columns = node_columns(snapshot)
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
    broken, left = int((~used)[list(chosen)].sum()), int(free[list(chosen)].sum())
    by_name = dict(sorted(chosen.items()))
    return _Choice((-slowest, left, broken, list(by_name)), by_name, domain)


def _fastest(nodes: CandidateNodes, workers: int, count: int) -> tuple[CandidateNodes, int]:
    """Return the fastest machines that suffice with as many nodes, and the speed of the slowest."""
    speed = node_columns(nodes.snapshot).speed[nodes.rows]
    for slowest in np.unique(speed)[::-1].tolist():
        fast = replace(
            nodes, rows=nodes.rows[speed >= slowest], capacity=nodes.capacity[speed >= slowest]
        )
        if fast.min_nodes(workers) == count:
            return fast, slowest
    return nodes, 0


def _exact(snapshot: Snapshot, row: int, workers: int, each: int) -> NodeAssignment:
    """Choose GPUs on a node of a plan over nodes of both kinds."""
    here = candidate(snapshot, row, workers)
    options = SelectionOptions(snapshot.preferences.mode, multi_node=True)
    selection = select_gpus(here.table, here.node.free_mask, (each,) * workers, options)
    # The capacity of the node is its number of free GPUs, so there is such a set.
    return NodeAssignment(here, workers, selection.mask if selection else 0)
