"""Detect that the GPUs which were planned for a pod went to others before it is bound. Pure.

On a counted node another scheduler may bind pods at the moment of a plan; on a claims node without
a fence, claims of others may get the GPUs. Without this check, the plan would be given up only at
its deadline.
"""

from collections.abc import Iterable

from cluster.allocations.gpus import Counted, Exact
from cluster.keys import NVIDIA_GPU
from scorer.cache.cluster_state import ClusterState
from scorer.gang.plan_record import siblings_of
from scorer.gang.pod_info import PodInfo
from scorer.gang.unit import link_of
from scorer.placement.options import PlanOptions
from scorer.placement.pods.member import Member
from scorer.placement.result import Placement, Plan
from scorer.placement.siblings import plan_with_siblings
from scorer.placement.state.snapshot import Snapshot


def lost_gpus(pod: PodInfo, state: ClusterState) -> str | None:
    """Return why a pod that is not bound yet cannot be bound to its node; None: it may be.

    Args:
        pod: A pod with a record.
        state: The cluster.

    Cost: the pods of its node.
    """
    record = pod.allocation
    if record is None:
        return None
    if isinstance(record.gpus, Counted):
        is_lost = _are_counted_gpus_lost(record.node, record.gpus, state)
    else:
        ledger = state.ledger(record.node)
        free = ledger.free_mask.bit_count() if ledger else 0
        is_lost = len(lost_claim_gpus(pod, state)) > free
    if not is_lost:
        return None
    return f"other pods have taken the GPUs of {record.node} that were planned for pod {pod.name}"


def lost_claim_gpus(pod: PodInfo, state: ClusterState) -> tuple[int, ...]:
    """Return the planned GPUs of a claims node that the claim of a pod cannot get.

    Claims of others hold them, or they are unhealthy. Nothing is known while slices are missing.

    Args:
        pod: A pod with a record, and without a node.
        state: The cluster.
    """
    usage = pod.usage
    node = state.node(usage.target) if usage and usage.claims else None
    if usage is None or node is None or not node.is_claims or node.awaits_slices:
        return ()
    gpus = usage.gpus_on(node, migrate=False)
    if not isinstance(gpus, Exact):
        return ()
    cards = node.cards
    return tuple(i for i in gpus.indices if cards[i].claimed or not cards[i].healthy)


def other_gpus(
    snapshot: Snapshot, pod: PodInfo, member: Member, siblings: Iterable[PodInfo]
) -> Placement | None:
    """Return the free GPUs of its node that suit a pod and its gang best; None: too few are free.

    Its own GPUs are free if they can still be allocated.

    Args:
        snapshot: The cluster.
        pod: A pod with a record.
        member: The same pod.
        siblings: The other pods of its gang that have GPUs.
    """
    node = pod.usage.target if pod.usage else ""
    ledger = snapshot.ledger.nodes.get(node)
    if ledger is None or pod.uid not in ledger.holdings:
        return None
    free = snapshot.without_holdings([(node, ledger.holdings[pod.uid])]).only(node)
    near = [sibling for sibling in siblings_of(siblings) if sibling.node == node]
    options = PlanOptions(link_of([member], is_gang=pod.gang is not None))
    plan = plan_with_siblings(free, [member], near, options)
    return plan.placements[0] if isinstance(plan, Plan) else None


def _are_counted_gpus_lost(name: str, gpus: Counted, state: ClusterState) -> bool:
    """Return whether other pods are bound to too many GPUs of a counted node.

    Compared is the number of GPUs that the node has, healthy or not: while NVIDIA's plugin
    restarts, none is allocatable.
    """
    node = state.node(name)
    if node is None or not node.is_counted:
        return False
    total = max(len(node.cards), node.resources[NVIDIA_GPU])
    others = (other.nvidia for other in state.usages(name) if other.node)
    bound = sum(len(taken) for taken in others if taken and taken.resource == NVIDIA_GPU)
    return bound + len(gpus) > total


def may_lose_gpus(pod: PodInfo) -> bool:
    """Return whether other pods may take the GPUs of a pod until it is bound."""
    record = pod.allocation
    return record is not None and isinstance(record.gpus, Counted) and not pod.bound


def awaits_claim(pod: PodInfo) -> bool:
    """Return whether a pod has no node yet, or it is not known what its claim holds."""
    usage = pod.usage
    if usage is None or not usage.claims or usage.allocation is None:
        return False
    return not usage.node or usage.devices is None
