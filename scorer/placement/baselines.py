"""Baselines for a plan: the empty cluster, and filling nodes in index order."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from cluster.gang import Link
from cluster.node_ledger import NodeLedger
from scorer.placement.feasibility import feasibility_of
from scorer.placement.group import new_group
from scorer.placement.member import Member
from scorer.placement.node_assignment import Candidate, NodeAssignment, bandwidth_over
from scorer.placement.node_cache import Value
from scorer.placement.result import JobBandwidth, Plan, Refusal
from scorer.placement.schedule import plan
from scorer.placement.snapshot import Snapshot
from topology.machine import gpus_of, mask_of


@dataclass(frozen=True, slots=True)
class IndexOrder:
    """A plan that takes nodes by name and the lowest free indices."""

    gpus: dict[str, tuple[int, ...]]
    """The GPUs of each node, nodes by name."""
    bandwidth: JobBandwidth | None
    """None where it is not defined."""


def best_possible(snapshot: Snapshot, members: Sequence[Member]) -> JobBandwidth | None:
    """Return the bandwidth of the same members on the empty cluster, or None.

    None is also returned while link tables of a node are being computed: it may be the best one.
    """
    if sum(member.gpus for member in members) < 2:
        # No plan of one GPU, shares, replicas or counted GPUs has a bandwidth.
        return None
    empty = snapshot.without_pods()
    if _is_preparing(empty):
        return None
    planned = plan(empty, members)
    return planned.job_bandwidth if isinstance(planned, Plan) else None


def never_fits(snapshot: Snapshot, members: Sequence[Member], link: Link) -> bool:
    """Return whether a gang, or a pod on its own, would not fit if nothing else ran.

    False while link tables of a node are being computed: it may fit there.

    Cost: a plan.
    """
    empty = snapshot.without_pods()
    return not _is_preparing(empty) and isinstance(plan(empty, members, link=link), Refusal)


def index_order(snapshot: Snapshot, members: Sequence[Member]) -> IndexOrder | None:
    """Fill nodes by name with the lowest free indices.

    Returns None where the members do not all ask for the same whole GPUs, or do not fit that way.
    """
    group = new_group(members)
    each, left = group.gpus_each, group.size
    if each is None:
        return None
    assignments: list[NodeAssignment] = []
    capacity = feasibility_of(snapshot, group).capacity
    # Each node fits at least one, so no more nodes than members are needed.
    for row in np.flatnonzero(capacity)[:left].tolist():
        node, workers = snapshot.nodes[row], min(int(capacity[row]), left)
        if not workers:
            break
        mask = mask_of(gpus_of(node.free_mask)[: workers * each])
        candidate = Candidate(node, snapshot.tables[node.node.name], workers)
        assignments.append(NodeAssignment(candidate, workers, mask))
        left -= workers
    if left:
        return None
    gpus = {assignment.name: gpus_of(assignment.mask) for assignment in assignments}
    bandwidth = bandwidth_over(assignments, snapshot.nic_bandwidth)
    if bandwidth is None:
        return IndexOrder(gpus, None)
    nic_unknown = len(gpus) > 1 and snapshot.nic_bandwidth is None
    return IndexOrder(gpus, JobBandwidth(bandwidth, len(gpus), nic_unknown))


def _is_preparing(snapshot: Snapshot) -> bool:
    def compute(node: NodeLedger) -> Value:
        return (node.node.preparing,)

    nodes = snapshot.nodes
    return bool(
        nodes and snapshot.cache.get_or_compute("preparing", nodes, compute, np.int64).any()
    )
