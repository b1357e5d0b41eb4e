"""The members that a running gang lacks, and the GPUs that are kept for them.

Both follow from the plan in the Gang and from the pods, so that each leader finds the same. Pure.
"""

from collections.abc import Collection, Set

from linkwise.cluster.account.node_ledger import Holding
from linkwise.cluster.account.pod_usage import PodUsage
from linkwise.cluster.allocations.gpus import Counted, Exact, GPUs, GPUShare
from linkwise.cluster.gang import GangKey
from linkwise.cluster.nodes.node import Node
from linkwise.planning.gang.crd import Gang
from linkwise.planning.gang.crd_plan import GangPlan, PlannedPod
from linkwise.planning.gang.pod_info import PodInfo


def running_member(pods: Collection[PodInfo]) -> PodUsage | None:
    """Return the usage of a member that has its GPUs and stays; None: there is none."""
    settled = (pod.usage for pod in pods if pod.settled)
    return next((usage for usage in settled if usage is not None and usage.target), None)


def lost_members(
    plan: GangPlan, pods: Collection[PodInfo], needed: int, succeeded: Set[str] = frozenset()
) -> tuple[PlannedPod, ...]:
    """Return the planned members that have no GPUs, in the order of ranks.

    They are at most as many as the gang lacks: it may have shrunk.

    Args:
        plan: Of the gang.
        pods: Of the gang.
        needed: How many members it needs.
        succeeded: Uids of the members that have succeeded: they need no GPUs, also once they are
            gone.
    """
    settled = {pod.uid for pod in pods if pod.settled}
    # A pod that is being deleted has its GPUs until it has ended.
    ending = {pod.uid for pod in pods if pod.is_ending}
    present = settled | ending | succeeded
    lost = [member for member in plan.members if member.uid not in present]
    gone = sum(member.uid in succeeded - settled for member in plan.members)
    return tuple(lost[: max(needed - len(settled) - len(ending) - gone, 0)])


def ended_members(gang: Gang, pods: Collection[PodInfo], succeeded: Set[str]) -> int:
    """Return how many members of a gang have succeeded and are gone: they are needed no more.

    A plan is without them once its Gang was written again, and the size stays what it was.

    Args:
        gang: Its object.
        pods: Of the gang.
        succeeded: Uids of the members of its plan that have succeeded.
    """
    plan = gang.spec.plan
    if plan is None:
        return 0
    present = {pod.uid for pod in pods}
    planned = {member.uid for member in plan.members}
    settled = {pod.uid for pod in pods if pod.settled}
    left_out = max((gang.spec.size or 0) - len(planned | settled), 0)
    return left_out + len((planned & succeeded) - present)


def reserved_holding(
    member: PlannedPod, gang: GangKey, node: Node, sibling: PodUsage
) -> Holding | None:
    """Return the GPUs of a member as an entry of the ledger; None: the node has fewer now.

    Args:
        member: The member, as it was planned.
        gang: Its gang.
        node: Its node.
        sibling: Another member. It says how much of each GPU a member has, which no plan does.
    """
    gpus = _reserved_gpus(member, node, sibling)
    if gpus is None:
        return None
    return Holding(
        f"{gang.namespace}/{member.pod}",
        # A late launcher has none yet.
        member.uid or f"{gang.owner}/{member.pod}",
        gpus,
        gang=f"{gang.namespace}/{gang.name}",
    )


def _reserved_gpus(member: PlannedPod, node: Node, sibling: PodUsage) -> GPUs | None:
    if isinstance(member.gpus, Counted):
        resource = sibling.nvidia.resource if sibling.nvidia else member.gpus.resource
        return Counted(resource, len(member.gpus))
    shares = sibling.allocation.gpus.shares if sibling.allocation else ()
    memory, core = (shares[0].mem, shares[0].core) if shares else (None, None)
    if any(i >= len(node.cards) for i in member.indices):
        return None
    return Exact(tuple(GPUShare(i, node.cards[i].uuid, memory, core) for i in member.indices))
