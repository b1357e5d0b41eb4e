"""Pods placed one after another, all or nothing: shares, replicas, counted or unequal GPUs."""

from collections import Counter
from collections.abc import Callable, Iterable

import numpy as np

from cluster.node_ledger import NodeLedger
from cluster.record import GPUShare
from cluster.request import Family
from scorer.placement.feasibility import (
    Ints,
    feasibility_of,
    feasibility_of_all,
    preferred_node,
)
from scorer.placement.group import Group, new_group
from scorer.placement.member import Member
from scorer.placement.messages import label_hint, member_refusal, together_refusal
from scorer.placement.node_assignment import (
    Candidate,
    NodeAssignment,
    SelectionOptions,
    bandwidth_over,
)
from scorer.placement.reasons import Reason
from scorer.placement.result import Placement, Plan, Refusal
from scorer.placement.shares import cards_for, has_enough, preference
from scorer.placement.single_node import best_node_of_pod
from scorer.placement.snapshot import Snapshot
from topology.machine import gpus_of, mask_of


def place_each(snapshot: Snapshot, group: Group, *, linked: bool = False) -> Plan | Refusal:
    """Place every member on what the ones before it left; the ones that ask for most go first.

    Args:
        snapshot: The cluster.
        group: The members.
        linked: Sets of whole GPUs must be connected by NVLink alone.

    Cost: one look at each node for each member.
    """
    placed: dict[int, Placement] = {}
    """By place among the members."""
    considered: set[int] = set()
    rows = {node.node.name: row for row, node in enumerate(snapshot.nodes)}
    used: dict[int, None] = {}
    """The nodes that others go to, as places in `snapshot.nodes`."""
    later = snapshot
    for place, member in sorted(enumerate(group.members), key=lambda pair: _most_first(pair[1])):
        seen = feasibility_of(later, new_group([member]))
        able = seen.feasible
        found = _place(later, member, able, [r for r in used if seen.capacity[r]], linked=linked)
        if found is None:
            blocked = seen.blocked + Counter({Reason.LINK: len(able)})
            reason = member_refusal(member, len(placed), group.size, blocked)
            return Refusal(reason + label_hint(member, snapshot.nodes, blocked))
        placed[place] = found
        used.setdefault(rows[found.node])
        considered.update(able.tolist())
        later = later.hold_all([(found.node, member.holding(found.shares))])
    placements = tuple(placed[place] for place in range(group.size))
    assignments = assignments_of(snapshot, placements)
    if (
        linked
        and len(assignments) == 1
        and not assignments[0].candidate.table.linked[assignments[0].mask]
    ):
        return Refusal(together_refusal(group, "NVLink alone does not connect them there"))
    return Plan(
        placements,
        bandwidth=bandwidth_over(assignments, snapshot.nic_bandwidth),
        exact=not assignments,
        one_by_one=group.size > 1,
        nodes_considered=len(considered),
        nic_unknown=len(assignments) > 1 and snapshot.nic_bandwidth is None,
    )


def place_together(snapshot: Snapshot, group: Group) -> Plan | Refusal:
    """Place all members on one node: the first, in the order for one of them, that takes all.

    Cost: a plan on each node that has as much as all of them ask for, however it is cut, until one
    takes them.
    """
    first = min(group.members, key=_most_first)
    seen = feasibility_of(snapshot, new_group([first]))
    if not len(seen.feasible):
        return Refusal(member_refusal(first, 0, group.size, seen.blocked))
    able = np.flatnonzero((seen.capacity > 0) & (feasibility_of_all(snapshot, group).capacity > 0))
    nodes = (snapshot.nodes[row] for row in able.tolist())
    asked = [member.request for member in group.members]
    enough = (node for node in nodes if has_enough(node, asked))
    for node in sorted(enough, key=_order(snapshot, first)):
        plan = place_each(snapshot.only(node.node.name), group)
        if isinstance(plan, Plan):
            return plan
    return Refusal(together_refusal(group, "no node takes all of them"))


def _most_first(member: Member) -> tuple[int, int, int]:
    asked = member.request
    return -asked.memory_per_card, -asked.core_per_card, -asked.gpus


def _place(
    snapshot: Snapshot, member: Member, able: Ints, near: list[int], *, linked: bool
) -> Placement | None:
    """Place one pod on one of the nodes that have room for it.

    Args:
        snapshot: The cluster.
        member: The pod.
        able: The nodes, as places in `snapshot.nodes`.
        near: Those of them that others of its gang go to.
        linked: As in `place_each`.
    """
    if not len(able):
        return None
    if member.request.family is Family.WHOLE:
        return _whole(snapshot, member, able, near, linked=linked)
    node = snapshot.nodes[preferred_node(snapshot, member, able)]
    shares = cards_for(node, member.request) if member.request.places else ()
    return Placement(member, node.node.name, shares)


def _order(snapshot: Snapshot, member: Member) -> Callable[[NodeLedger], tuple[object, ...]]:
    """Return how nodes that could take a pod are ordered, the best first."""
    return lambda node: (
        *preference(node, member.request, snapshot.placement),
        node.node.name,
    )


def _whole(
    snapshot: Snapshot, member: Member, able: Ints, near: list[int], *, linked: bool
) -> Placement | None:
    """Place a member whose gang asks for unequal numbers of GPUs, near the others if possible."""
    options, layout = (
        SelectionOptions(snapshot.mode, linked=linked, multi_node=True),
        snapshot.placement,
    )
    assignments = (
        best_node_of_pod(snapshot, rows, member.gpus, options, layout)
        for rows in (np.array(near, dtype=np.int64), able)
    )
    assignment = next((assignment for assignment in assignments if assignment is not None), None)
    if assignment is None:
        return None
    cards = assignment.candidate.node.node.cards
    shares = tuple(GPUShare(i, cards[i].uuid) for i in gpus_of(assignment.mask))
    return Placement(member, assignment.name, shares)


def assignments_of(snapshot: Snapshot, placements: Iterable[Placement]) -> list[NodeAssignment]:
    """Return what the members with whole GPUs take of each node, together."""
    gpus: dict[str, list[tuple[int, ...]]] = {}
    for placement in placements:
        if placement.member.gpus:
            gpus.setdefault(placement.node, []).append(placement.gpus)
    return [
        NodeAssignment(
            Candidate(snapshot.ledger.nodes[name], snapshot.tables[name], len(members)),
            len(members),
            mask_of([i for member in members for i in member]),
        )
        for name, members in gpus.items()
    ]
