"""Place pods one after another, all or none: shares, replicas, counted or unequal GPUs."""

from collections import Counter
from collections.abc import Callable

import numpy as np

from linkwise.cluster.account.node_ledger import NodeLedger
from linkwise.cluster.allocations.gpus import Exact
from linkwise.cluster.mode import PackingStrategy
from linkwise.cluster.requests.request import Family
from linkwise.planning.placement.assignment.by_count import linked_by_count
from linkwise.planning.placement.assignment.node_assignment import SelectionOptions
from linkwise.planning.placement.assignment.single_node import best_node_of_pod
from linkwise.planning.placement.filtering.feasibility import (
    feasibility_of,
    feasibility_of_all,
    preferred_node,
)
from linkwise.planning.placement.filtering.reasons import Cause, set_reason
from linkwise.planning.placement.filtering.shares import (
    cards_for,
    has_enough,
    preference,
    whole_gpus,
)
from linkwise.planning.placement.messages import label_hint, member_refusal, together_refusal
from linkwise.planning.placement.placements import assignments_of, new_plan
from linkwise.planning.placement.pods.group import Group, new_group
from linkwise.planning.placement.pods.member import Member
from linkwise.planning.placement.result import Placement, Plan, Refusal
from linkwise.planning.placement.state.node_columns import Ints, node_columns
from linkwise.planning.placement.state.selected_nodes import selected_by
from linkwise.planning.placement.state.snapshot import Snapshot
from linkwise.topology.machine import gpus_of


def place_each(snapshot: Snapshot, group: Group) -> Plan | Refusal:
    """Place every member on what the ones before it left; the largest requests first.

    Args:
        snapshot: The cluster.
        group: The members.

    Cost: one look at each node for each member.
    """
    linked, placed = group.options.is_linked, dict[int, Placement]()
    """By index among the members."""
    considered = np.zeros(len(snapshot.nodes), dtype=np.bool_)
    # A pod alone is near no others. On many nodes this takes a fifth of the time of its plan.
    nodes = snapshot.nodes if group.size > 1 else ()
    rows = {node.node.name: row for row, node in enumerate(nodes)}
    used: dict[int, None] = {}
    """The nodes of placed members, as indices in `snapshot.nodes`."""
    # The largest first: a small request fits into what a large one leaves, not the reverse. Each is
    # placed on a later snapshot, so nothing must be undone where one does not fit.
    later = snapshot
    for place, member in sorted(enumerate(group.members), key=lambda pair: _most_first(pair[1])):
        seen = selected_by(later, member.needs)
        alone = group if group.size == 1 else new_group([member], group.options)
        feasibility = feasibility_of(seen, alone)
        feasible = feasibility.feasible
        near = [row for row in used if feasibility.capacity[row]]
        found = _place(seen, member, feasible, near, linked=linked)
        if found is None:
            blocked = feasibility.blocked + Counter[Cause]({set_reason(alone): len(feasible)})
            reason = member_refusal(member, len(placed), group.size, blocked)
            return Refusal(reason + label_hint(member, snapshot.nodes, blocked))
        placed[place] = found
        if rows:
            used.setdefault(rows[found.node])
        considered[feasible] = True
        if len(placed) < group.size:
            later = later.hold_all([(found.node, found.holding)])
    placements = tuple(placed[place] for place in range(group.size))
    assignments = assignments_of(snapshot, placements) or []
    # On one node NVLink must connect the whole set, which is known only when all are placed.
    only = assignments[0] if len(assignments) == 1 else None
    if linked and only and not only.table.linked[only.mask]:
        return Refusal(together_refusal(group, "NVLink alone does not connect them there"))
    return new_plan(
        snapshot,
        placements,
        exact=not group.gpus,
        one_by_one=group.size > 1,
        nodes_considered=int(considered.sum()),
    )


def place_together(snapshot: Snapshot, group: Group) -> Plan | Refusal:
    """Place all members on one node: the first that fits them, in the order for the largest member.

    Cost: a plan on each node that has the total of all requests, until one fits.
    """
    first = min(group.members, key=_most_first)
    seen = selected_by(snapshot, first.needs)
    feasibility = feasibility_of(seen, new_group([first], group.options))
    if not len(feasibility.feasible):
        return Refusal(member_refusal(first, 0, group.size, feasibility.blocked))
    # Sums are a lower bound of what a node needs: shares may still not fit its cards, which only a
    # plan shows. The largest member orders the nodes, since it is the hardest to place.
    together = feasibility_of_all(snapshot, group)
    rows = np.flatnonzero((feasibility.capacity > 0) & (together.capacity > 0))
    nodes = (snapshot.nodes[row] for row in rows.tolist())
    requests = [member.request for member in group.members]
    enough = (node for node in nodes if has_enough(node, requests))
    for node in sorted(enough, key=_order(snapshot, first)):
        plan = place_each(snapshot.only(node.node.name), group)
        if isinstance(plan, Plan):
            return plan
    return Refusal(together_refusal(group, "no node takes all of them"))


def _most_first(member: Member) -> tuple[bool, int, int, int, bool]:
    request = member.request
    amounts = -request.memory_per_card, -request.core_per_card, -request.gpus
    # Of equal ones those that fit few nodes, before others take these.
    is_free = member.volumes is None or not member.volumes.is_tied
    return member.is_follower, *amounts, is_free


def _place(
    snapshot: Snapshot, member: Member, rows: Ints, near: list[int], *, linked: bool
) -> Placement | None:
    """Place one pod on one of the nodes that fit it.

    Args:
        snapshot: The cluster.
        member: The pod.
        rows: The nodes, as indices in `snapshot.nodes`.
        near: Those of them with other members of its gang.
        linked: Sets of whole GPUs must be connected by NVLink alone.
    """
    if not len(rows):
        return None
    if member.request.family is Family.WHOLE:
        # Known sets first, even on another node: their bandwidth is known.
        counted = node_columns(snapshot).is_counted
        here = [row for row in near if not counted[row]]
        placement = _whole(snapshot, member, rows[~counted[rows]], here, linked=linked)
        return placement or _counted(snapshot, member, rows[counted[rows]], near, linked=linked)
    node = snapshot.nodes[preferred_node(snapshot, member, rows)]
    is_chosen = member.request.places
    gpus = Exact(cards_for(node, member.request)) if is_chosen else member.counted_gpus
    return Placement(member, node.node.name, gpus)


def _counted(
    snapshot: Snapshot, member: Member, rows: Ints, near: list[int], *, linked: bool
) -> Placement | None:
    """Place a member on a node where NVIDIA's plugin chooses its GPUs, near others if possible."""
    if linked:
        rows = rows[linked_by_count(snapshot, np.ones(len(snapshot.nodes), np.int64))[rows] > 0]
    close = rows[np.isin(rows, near)]
    rows = close if len(close) else rows
    if not len(rows):
        return None
    free, layout = node_columns(snapshot).free[rows], snapshot.preferences.placement
    fullest = np.argmin(free) if layout is PackingStrategy.BINPACK else np.argmax(free)
    node = snapshot.nodes[rows[fullest]]
    return Placement(member, node.node.name, member.counted_gpus)


def _order(snapshot: Snapshot, member: Member) -> Callable[[NodeLedger], tuple[object, ...]]:
    """Return the key that orders feasible nodes for a pod, the best first."""
    layout = snapshot.preferences.placement
    return lambda node: (*preference(node, member.request, layout), node.node.name)


def _whole(
    snapshot: Snapshot, member: Member, rows: Ints, near: list[int], *, linked: bool
) -> Placement | None:
    """Place a member of a gang with unequal numbers of GPUs, near the others if possible."""
    options = SelectionOptions(snapshot.preferences.mode, linked=linked, multi_node=True)
    tried = (
        best_node_of_pod(snapshot, some, member.gpus, options)
        for some in (np.array(near, dtype=np.int64), rows)
    )
    assignment = next((found for found in tried if found is not None), None)
    if assignment is None:
        return None
    node = assignment.ledger.node
    return Placement(member, assignment.name, whole_gpus(node, gpus_of(assignment.mask)))
