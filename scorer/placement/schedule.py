"""Plan a group of pods, all or nothing; a single pod is a group of one.

A plan is made on one snapshot and changes nothing. Members that ask for the same whole GPUs are
planned together: on one node (`single_node`), else over several (`multi_node`). Others are planned
one after another (`pod_by_pod`), each on what the ones before it left.
"""

from collections import Counter
from collections.abc import Iterable, Sequence

import numpy as np

from cluster.gang import Link
from cluster.record import GPUShare
from scorer.placement.candidates import CandidateNodes, candidate
from scorer.placement.feasibility import (
    Feasibility,
    Ints,
    feasibility_of,
    feasibility_of_all,
    free_gpus,
    states,
)
from scorer.placement.group import Group, new_group
from scorer.placement.member import Member
from scorer.placement.messages import gang_refusal, one_node_refusal
from scorer.placement.multi_node import best_assignment
from scorer.placement.node_assignment import NodeAssignment, SelectionOptions, bandwidth_over
from scorer.placement.partition import linked_capacity, split
from scorer.placement.pod_by_pod import place_each, place_together
from scorer.placement.reasons import Reason
from scorer.placement.result import Placement, Plan, Refusal
from scorer.placement.single_node import best_node, best_node_of_pod
from scorer.placement.snapshot import Snapshot
from topology.machine import gpus_of


def plan(
    snapshot: Snapshot, members: Sequence[Member], *, link: Link = Link.BEST
) -> Plan | Refusal:
    """Place all members, or none.

    Args:
        snapshot: The cluster.
        members: Pods that ask for GPUs, at least one, in rank order.
        link: How strictly they insist on links (`linkwise.dev/link`).

    Cost: one look at each node that changed since the last plan; a few ms for 8 workers on 5 000
    nodes, 15 ms for 256 workers on 1 000.
    """
    group = new_group(members)
    if not group.gpus:
        place = place_together if link is Link.ONE_NODE else place_each
        return place(snapshot, group)
    on_one_node = link is Link.ONE_NODE or group.size == 1
    if on_one_node or group.gpus <= free_gpus(snapshot).max(initial=0):
        feasibility = feasibility_of_all(snapshot, group)
        together = _on_one_node(snapshot, group, feasibility, link)
        if together is not None:
            return together
        if on_one_node:
            return Refusal(one_node_refusal(feasibility, group, link))
    linked = link is Link.NVLINK
    if group.gpus_each is not None:
        planned = _over_nodes(snapshot, group, group.gpus_each, linked=linked)
        # The capacity of nodes was computed for the most demanding member: one by one more may fit.
        if isinstance(planned, Plan) or len(group.representatives) == 1:
            return planned
    return place_each(snapshot, group, linked=linked)


def feasible_nodes(
    snapshot: Snapshot, members: Sequence[Member], *, link: Link = Link.BEST
) -> frozenset[str]:
    """Return the nodes that fit at least one of the members, or all where these stay together.

    Args:
        snapshot: The cluster.
        members: As in `plan`.
        link: As in `plan`.
    """
    group = new_group(members)

    def capacity_for(member: Member) -> Ints:
        capacity = feasibility_of(snapshot, new_group([member])).capacity
        linked = link is Link.NVLINK and member.gpus
        return np.minimum(capacity, _linked_capacity(snapshot, member.gpus)) if linked else capacity

    capacities = np.stack([capacity_for(member) for member in group.representatives])
    capacity = capacities.max(axis=0)
    if link is Link.ONE_NODE:
        capacity = capacities.min(axis=0)
        if group.gpus:
            capacity = np.minimum(capacity, feasibility_of_all(snapshot, group).capacity)
    return frozenset(snapshot.nodes[row].node.name for row in np.flatnonzero(capacity).tolist())


def plan_near(
    snapshot: Snapshot,
    members: Sequence[Member],
    assigned_nodes: Iterable[str],
    *,
    link: Link = Link.BEST,
) -> Plan | Refusal:
    """Plan members of a gang whose other members are placed: on the node of these, if they fit.

    Args:
        snapshot: The cluster.
        members: As in `plan`.
        assigned_nodes: The node of each of the others; the one with most of them is tried first.
        link: As in `plan`.

    Cost: a plan on one node for each home, and one on all.
    """
    counts = Counter(node for node in assigned_nodes if node in snapshot.ledger.nodes)
    for node in sorted(counts, key=lambda node: (-counts[node], node)):
        near = plan(snapshot.only(node), members, link=link)
        if isinstance(near, Plan):
            return near
    return plan(snapshot, members, link=link)


def _on_one_node(
    snapshot: Snapshot, group: Group, feasibility: Feasibility, link: Link
) -> Plan | None:
    """Plan all members on one node, or return None where none fits them all."""
    linked, rows = link is Link.NVLINK, feasibility.feasible
    options, placement = SelectionOptions(snapshot.mode, linked=linked), snapshot.placement
    if group.size == 1:
        assignment = best_node_of_pod(snapshot, rows, group.gpus, options, placement)
    else:
        classes = CandidateNodes(snapshot, rows, feasibility.capacity[rows]).classes()
        candidates = (candidate(snapshot, nodes.rows[0]) for nodes in classes)
        sizes = tuple(member.gpus for member in group.members)
        assignment = best_node(candidates, sizes, options, placement)
    if assignment is None:
        return None
    return Plan(
        placements=_placements(group.members, assignment, linked=linked),
        bandwidth=bandwidth_over([assignment], snapshot.nic_bandwidth),
        exact=assignment.candidate.table.exact,
        nodes_considered=len(rows),
    )


def _over_nodes(snapshot: Snapshot, group: Group, each: int, *, linked: bool) -> Plan | Refusal:
    """Plan members that ask for the same GPUs over several nodes."""
    feasibility = feasibility_of(snapshot, group)
    # All members on one node were tried before, and there NVLink had to connect all of them.
    capacity = np.minimum(feasibility.capacity, group.size - 1)
    if linked:
        capacity = np.minimum(capacity, _linked_capacity(snapshot, each))
    rows = np.flatnonzero(capacity)
    blocked = feasibility.blocked
    blocked[Reason.LINK] += len(feasibility.feasible) - len(rows)
    nodes = CandidateNodes(snapshot, rows, capacity[rows])
    options = SelectionOptions(snapshot.mode, linked=linked, multi_node=True)
    best = best_assignment(nodes, group.size, each, options, snapshot.domains)
    if best is None:
        return Refusal(gang_refusal(group, nodes.capacity.tolist(), +blocked, linked=linked))
    placements: list[Placement] = []
    for assignment in best.assignments:
        members = group.members[len(placements) : len(placements) + assignment.workers]
        placements += _placements(members, assignment, linked=linked)
    return Plan(
        placements=tuple(placements),
        bandwidth=bandwidth_over(best.assignments, snapshot.nic_bandwidth),
        exact=best.exact and all(found.candidate.table.exact for found in best.assignments),
        domain=best.domain,
        nodes_considered=len(rows),
        nic_unknown=snapshot.nic_bandwidth is None,
    )


def _linked_capacity(snapshot: Snapshot, each: int) -> Ints:
    """Return how many workers find a set on each node that NVLink alone connects."""
    capacity = [linked_capacity(table, free, each) for table, free in snapshot.cache.states]
    # The last one is for nodes without GPUs.
    return np.array([*capacity, 0])[states(snapshot)]


def _placements(
    members: Sequence[Member], assignment: NodeAssignment, *, linked: bool
) -> tuple[Placement, ...]:
    """Split the GPUs of an assignment among its members; it is known that they can be split."""
    node = assignment.candidate.node.node
    sizes = tuple(member.gpus for member in members)
    parts = split(assignment.candidate.table, assignment.mask, sizes, linked=linked) or ()
    return tuple(
        Placement(member, node.name, tuple(GPUShare(i, node.cards[i].uuid) for i in gpus_of(part)))
        for member, part in zip(members, parts, strict=True)
    )
