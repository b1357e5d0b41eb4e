"""Detect that the GPUs which were planned for a pod went to others before it is bound. Pure.

On a counted node another scheduler may bind pods at the moment of a plan; on a claims node without
a fence, claims of others may get the GPUs. Without this check, the plan would be given up only at
its deadline.
"""

from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import NamedTuple

from linkwise.cluster.allocations.gpus import Counted, Exact
from linkwise.cluster.keys import NVIDIA_GPU
from linkwise.planning.gang.plan_record import siblings_of
from linkwise.planning.gang.pod_info import PodInfo
from linkwise.planning.gang.unit import link_of
from linkwise.planning.placement.options import PlanOptions
from linkwise.planning.placement.pods.member import Member
from linkwise.planning.placement.result import Placement, Plan
from linkwise.planning.placement.siblings import plan_with_siblings
from linkwise.planning.placement.state.snapshot import Snapshot
from linkwise.planning.state.cluster_state import ClusterState
from linkwise.topology.machine import mask_of


class OtherGPUs(NamedTuple):
    """GPUs that members of a gang can get on the node of their records."""

    placements: tuple[Placement, ...]
    bandwidth: float
    """Of all GPUs of the gang on the node then [GB/s]."""


def lost_gpus(pod: PodInfo, unbound: Iterable[PodInfo], state: ClusterState) -> str | None:
    """Return why a pod that is not bound yet cannot be bound to its node; None: it may be.

    Args:
        pod: A pod with a record.
        unbound: It and the others of its plan that are not bound yet.
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
        here = [one for one in unbound if one.usage and one.usage.target == record.node]
        lost = sum(len(lost_claim_gpus(one, state)) for one in here)
        is_lost = bool(lost_claim_gpus(pod, state)) and lost > free
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
    snapshot: Snapshot,
    node: str,
    members: Sequence[tuple[PodInfo, Member]],
    siblings: Iterable[PodInfo],
) -> OtherGPUs | None:
    """Return the free GPUs of a node that suit members and their gang best; None: too few are free.

    Their own GPUs are free if they can still be allocated.

    Args:
        snapshot: The cluster.
        node: The node of their records.
        members: Members of one gang with a record, or a single pod.
        siblings: The other pods of the gang that have GPUs.
    """
    ledger = snapshot.ledger.nodes.get(node)
    if ledger is None or not all(pod.uid in ledger.holdings for pod, _ in members):
        return None
    own = ((node, ledger.holdings[pod.uid]) for pod, _ in members)
    free = snapshot.without_holdings(own).only(node)
    near = [sibling for sibling in siblings_of(siblings) if sibling.node == node]
    planned = [member for _, member in members]
    is_gang = any(pod.gang is not None for pod, _ in members)
    plan = plan_with_siblings(free, planned, near, PlanOptions(link_of(planned, is_gang=is_gang)))
    if not isinstance(plan, Plan):
        return None
    placements, table = _with_own_sets(plan.placements, members), snapshot.tables[node]
    sets = [*(sibling.gpus for sibling in near), *(placement.gpus for placement in placements)]
    gpus = mask_of({i for each in sets for i in each.indices if i < table.n})
    return OtherGPUs(placements, table.bandwidth(gpus))


def _with_own_sets(
    placements: Sequence[Placement], members: Sequence[tuple[PodInfo, Member]]
) -> tuple[Placement, ...]:
    """Return the same sets so that members which ask for the same keep theirs, where they can."""
    sets = [placement.gpus for placement in placements]
    for place, (pod, member) in enumerate(members):
        own = pod.allocation.gpus.indices if pod.allocation else ()
        other = next((i for i, gpus in enumerate(sets) if gpus.indices == own), place)
        if members[other][1].request == member.request:
            sets[place], sets[other] = sets[other], sets[place]
    return tuple(map(lambda one, gpus: replace(one, gpus=gpus), placements, sets))


def _are_counted_gpus_lost(name: str, gpus: Counted, state: ClusterState) -> bool:
    """Return whether other pods are bound to too many GPUs of a counted node.

    Compared is the number of GPUs that the node has, healthy or not: while NVIDIA's plugin
    restarts, none is allocatable.
    """
    node = state.node(name)
    if node is None or not node.is_counted:
        return False
    total = max(len(node.cards), node.resources[NVIDIA_GPU])
    others = (other.nvidia for other in state.usages.on(name) if other.node)
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
