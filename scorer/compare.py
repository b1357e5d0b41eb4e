"""What a plan is measured against: the empty cluster, and filling nodes in index order."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from scorer.group import group_of
from scorer.member import Member
from scorer.outcome import Plan
from scorer.plan import plan
from scorer.seat import Candidate, Seat, bandwidth_over
from scorer.snapshot import Snapshot
from scorer.survey import survey
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


def index_order(snapshot: Snapshot, members: Sequence[Member]) -> IndexOrder | None:
    """Return what filling nodes by name with the lowest free indices would have given.

    None where the members do not all ask for the same whole GPUs, or do not fit that way.
    """
    group = group_of(members)
    each, left = group.each, group.size
    if each is None:
        return None
    seats: list[Seat] = []
    room = survey(snapshot, group).room
    # Each takes one at least, so that no more of them are looked at.
    for row in np.flatnonzero(room)[:left].tolist():
        node, workers = snapshot.nodes[row], min(int(room[row]), left)
        if not workers:
            break
        mask = mask_of(gpus_of(node.free_mask)[: workers * each])
        candidate = Candidate(node, snapshot.tables[node.node.name], workers)
        seats.append(Seat(candidate, workers, mask))
        left -= workers
    if left:
        return None
    gpus = {seat.name: gpus_of(seat.mask) for seat in seats}
    return IndexOrder(gpus, bandwidth_over(seats, snapshot.nic_bandwidth))
