"""What a plan is measured against: the empty cluster, and filling nodes in index order."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from cluster.gang import Link
from scorer.placement.feasibility import feasibility_of
from scorer.placement.group import new_group
from scorer.placement.member import Member
from scorer.placement.node_assignment import Candidate, NodeAssignment, bandwidth_over
from scorer.placement.result import Plan, Refusal
from scorer.placement.schedule import plan
from scorer.placement.snapshot import Snapshot
from topology.machine import gpus_of, mask_of


@dataclass(frozen=True, slots=True)
class IndexOrder:
    """What nodes by name and lowest free indices would have given."""

    gpus: dict[str, tuple[int, ...]]
    """The GPUs of each node, nodes by name."""
    bandwidth: float | None
    """[GB/s]"""


def best_possible(snapshot: Snapshot, members: Sequence[Member]) -> float | None:
    """Return the bandwidth of the same members on the empty cluster [GB/s], or None."""
    if sum(member.gpus for member in members) < 2:
        # Of one GPU, shares, replicas and counted GPUs no plan has a bandwidth.
        return None
    planned = plan(snapshot.emptied(), members)
    return planned.bandwidth if isinstance(planned, Plan) else None


def never_fits(snapshot: Snapshot, members: Sequence[Member], link: Link) -> bool:
    """Say whether a gang, or a pod on its own, would have no place if nothing else ran.

    Cost: a plan.
    """
    return isinstance(plan(snapshot.emptied(), members, link=link), Refusal)


def index_order(snapshot: Snapshot, members: Sequence[Member]) -> IndexOrder | None:
    """Return what filling nodes by name with the lowest free indices would have given.

    None where the members do not all ask for the same whole GPUs, or do not fit that way.
    """
    group = new_group(members)
    each, left = group.each, group.size
    if each is None:
        return None
    seats: list[NodeAssignment] = []
    room = feasibility_of(snapshot, group).room
    # Each takes one at least, so that no more of them are looked at.
    for row in np.flatnonzero(room)[:left].tolist():
        node, workers = snapshot.nodes[row], min(int(room[row]), left)
        if not workers:
            break
        mask = mask_of(gpus_of(node.free_mask)[: workers * each])
        candidate = Candidate(node, snapshot.tables[node.node.name], workers)
        seats.append(NodeAssignment(candidate, workers, mask))
        left -= workers
    if left:
        return None
    gpus = {seat.name: gpus_of(seat.mask) for seat in seats}
    return IndexOrder(gpus, bandwidth_over(seats, snapshot.nic_bandwidth))
