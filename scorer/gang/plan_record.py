"""A plan as its Gang keeps it: what is written of it, and what is meant by it when it is read."""

from cluster.node import Node
from cluster.record import GPUShare
from cluster.request import Family
from scorer.gang.crd import GangPlan, PlannedPod
from scorer.placement.member import Member
from scorer.placement.result import Placement, Plan


def plan_of(
    plan: Plan,
    plan_id: str,
    *,
    best_possible: float | None = None,
    index_order: float | None = None,
) -> GangPlan:
    """Return a plan as it is written.

    Args:
        plan: Where the members go.
        plan_id: Another for each plan; it stands in the pods' records.
        best_possible: What the empty cluster would give [GB/s].
        index_order: What nodes by name and lowest free indices would have given [GB/s].
    """
    return GangPlan(
        id=plan_id,
        exact=plan.exact,
        members=tuple(_planned(placement) for placement in plan.placements),
        bandwidth=_tenths(plan.bandwidth),
        best_possible=_tenths(best_possible),
        index_order=_tenths(index_order),
        domain=plan.domain,
    )


def placement_of(planned: PlannedPod, member: Member, node: Node) -> Placement:
    """Return where a member goes by a plan that was read: what the planner meant when it wrote it.

    Args:
        planned: What stands in the plan, of the pod's uid.
        member: The pod.
        node: The one that is named.

    Raises:
        IndexError: The node has fewer GPUs by now.
    """
    request = member.request
    is_share = request.family is Family.SHARE
    memory = request.memory_per_card if is_share else None
    core = (request.core_per_card or None) if is_share else None
    shares = (GPUShare(i, node.cards[i].uuid, memory, core) for i in planned.gpus)
    return Placement(member, planned.node, tuple(shares))


def _planned(placement: Placement) -> PlannedPod:
    metadata = placement.member.pod.metadata
    return PlannedPod(metadata.name, metadata.uid, placement.node, placement.gpus)


def _tenths(bandwidth: float | None) -> float | None:
    return None if bandwidth is None else round(bandwidth, 1)
