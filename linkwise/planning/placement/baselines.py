"""Baselines for a plan: the empty cluster, and filling nodes in index order."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import islice
from operator import attrgetter

import numpy as np

from linkwise.cluster.account.node_ledger import NodeLedger
from linkwise.cluster.allocations.gpus import Exact, GPUShare
from linkwise.cluster.gang import Link
from linkwise.planning.placement.bandwidth import UNDEFINED, Bandwidth
from linkwise.planning.placement.filtering.feasibility import feasibility_of
from linkwise.planning.placement.options import PlanOptions
from linkwise.planning.placement.placements import new_plan
from linkwise.planning.placement.pods.group import new_group
from linkwise.planning.placement.pods.member import Member
from linkwise.planning.placement.result import Placement, Plan, Refusal
from linkwise.planning.placement.schedule import plan
from linkwise.planning.placement.state.node_cache import Value
from linkwise.planning.placement.state.selected_nodes import selected_by
from linkwise.planning.placement.state.snapshot import Snapshot
from linkwise.topology.choice import ChoiceMode
from linkwise.topology.machine import gpus_of


@dataclass(frozen=True, slots=True)
class IndexOrder:
    """A plan that takes nodes by name and the lowest free indices."""

    gpus: dict[str, tuple[int, ...]]
    """The GPUs of each node, nodes by name; empty where NVIDIA's plugin chooses."""
    bandwidth: Bandwidth


def best_possible(
    snapshot: Snapshot,
    members: Sequence[Member],
    planned: Bandwidth = UNDEFINED,
    order: IndexOrder | None = None,
) -> Bandwidth:
    """Return the best bandwidth that is known of the same members on the empty cluster.

    It is planned there by the bandwidth alone. The plan and index order are possible there, too,
    and may be faster: the planner prefers few nodes and even splits to bandwidth.

    It is undefined while link tables of a node are being computed: it may be the best one.

    Args:
        snapshot: The cluster.
        members: The pods.
        planned: The bandwidth of their plan.
        order: Their placement in index order; it counts only on as many nodes.
    """
    if sum(member.gpus for member in members) < 2:
        # No plan of one GPU, shares, replicas or counted GPUs has a bandwidth.
        return UNDEFINED
    empty = snapshot.without_pods()
    if _is_preparing(empty):
        return UNDEFINED
    preferences = replace(empty.preferences, mode=ChoiceMode.FAST)
    best = plan(replace(empty, preferences=preferences), _alone(members))
    found = [best.bandwidth if isinstance(best, Plan) else UNDEFINED, planned]
    known = [bandwidth for bandwidth in found if bandwidth.value is not None]
    if order and order.bandwidth.nodes in {each.nodes for each in known}:
        known.append(order.bandwidth)
    return max(known, key=attrgetter("value"), default=UNDEFINED)


def never_fits(snapshot: Snapshot, members: Sequence[Member], link: Link) -> bool:
    """Return whether a gang, or a pod on its own, would not fit if nothing else ran.

    False while link tables of a node are being computed: it may fit there.

    Cost: a plan.
    """
    empty = snapshot.without_pods()
    if _is_preparing(empty):
        return False
    return isinstance(plan(empty, _alone(members), PlanOptions(link)), Refusal)


def _alone(members: Sequence[Member]) -> list[Member]:
    """Return the members without affinity to other pods, of which the empty cluster has none."""
    return [
        replace(member, rules=replace(member.rules, affinity=())) if member.is_follower else member
        for member in members
    ]


def index_order(snapshot: Snapshot, members: Sequence[Member]) -> IndexOrder | None:
    """Fill nodes by name with the lowest free indices.

    Returns None where the members do not all ask for the same whole GPUs, do not fit that way, or
    have constraints, which such sets may not satisfy.
    """
    group = new_group(members)
    each, left = group.gpus_each, list(members)
    if each is None or len(group.needs) > 1 or group.is_matched:
        return None
    snapshot = selected_by(snapshot, group.representatives[0].needs)
    placements: list[Placement] = []
    capacity = feasibility_of(snapshot, group).capacity
    # Each node fits at least one, so no more nodes than members are needed.
    for row in np.flatnonzero(capacity)[: group.size].tolist():
        node, here = snapshot.nodes[row], left[: int(capacity[row])]
        free = iter(gpus_of(node.free_mask))
        for member in here:
            lowest = tuple(map(GPUShare, islice(free, each)))
            gpus = member.counted_gpus if node.is_counted else Exact(lowest)
            placements.append(Placement(member, node.node.name, gpus))
        left = left[len(here) :]
    if left:
        return None
    plan = new_plan(snapshot, placements, exact=False)
    return IndexOrder(plan.gpus, plan.bandwidth)


def _is_preparing(snapshot: Snapshot) -> bool:
    def compute(node: NodeLedger) -> Value:
        return (node.node.preparing,)

    nodes = snapshot.nodes
    return bool(
        nodes and snapshot.cache.get_or_compute("preparing", nodes, compute, np.int64).any()
    )
