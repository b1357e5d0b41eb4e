"""Compute the state of a gang from its pods, independently of what was planned. Pure."""

from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace

from cluster.record import Allocation
from cluster.request import Family
from scorer.cache.cluster_state import ClusterState
from scorer.cache.informers import Informers
from scorer.gang.crd import Gang, GangPlan, Held, Phase, held_nodes
from scorer.gang.pod_info import PodInfo
from scorer.gang.whole_plan import gang_bandwidth


@dataclass(frozen=True, slots=True)
class GangState:
    """The state of a gang."""

    phase: Phase
    members: tuple[int, int | None]
    """Present while some wait, else bound; and how many there must be, None: unknown."""
    held: Held
    reason: str
    """Why it is not placed, as far as its pods show; empty where it is placed."""
    has_surplus: bool = False
    """It has more members than its owner declared when it was read."""

    @property
    def is_size_outdated(self) -> bool:
        """Its owner may declare another number of members by now, or none."""
        present, needed = self.members
        is_lacking = self.phase in _INCOMPLETE and (needed is None or present < needed)
        return is_lacking or self.has_surplus


_INCOMPLETE = frozenset({Phase.ASSEMBLING, Phase.GONE, Phase.SUSPENDED})


def gang_state(gang: Gang, needed: int | None, informers: Informers) -> GangState:
    """Return the state of a gang.

    Args:
        gang: Its object.
        needed: How many members it was last known to need; None: unknown.
        informers: The pods and owners.

    Cost: the pods of all gangs of its name.
    """
    key, state, owners = gang.key, informers.state, informers.owners
    pods = [pod for pod in state.group(key[:2]) if owners.key(pod) == key]
    needed, declared = needed or gang.spec.size, owners.declared.get(key.owner)
    if declared is not None:
        is_stated = key in owners.groups or any(pod.states_size for pod in pods)
        needed = min(needed or declared, declared) if is_stated else declared
    found = _state_of(gang, pods, needed, informers)
    present = sum(pod.settled or pod.waiting is not None for pod in pods)
    return replace(found, has_surplus=declared is not None and present > declared)


def _state_of(
    gang: Gang, pods: Collection[PodInfo], needed: int | None, informers: Informers
) -> GangState:
    key, state = gang.key, informers.state
    settled = [pod for pod in pods if pod.settled]
    waiting = sum(pod.waiting is not None for pod in pods)
    running = [pod for pod in settled if pod.usage is not None]
    held = _held(running, gang.spec.plan, state)
    if waiting:
        return _waiting(len(settled) + waiting, needed, held)
    if not running:
        is_suspended = informers.workloads.is_suspended(key.owner)
        return _without_pods(len(settled), needed, is_suspended=is_suspended)
    return _allocated(settled, needed, held)


def _waiting(present: int, needed: int | None, held: Held) -> GangState:
    if needed is None or present < needed:
        reason = f"{present} of {needed or '?'} members"
        return GangState(Phase.ASSEMBLING, (present, needed), held, reason)
    return GangState(Phase.WAITING, (present, needed), held, "queued")


def _allocated(settled: Collection[PodInfo], needed: int | None, held: Held) -> GangState:
    bound = sum(pod.bound for pod in settled)
    if bound < len(settled):
        return GangState(Phase.COMMITTING, (bound, needed), held, "")
    if needed is not None and bound < needed:
        reason = f"{bound} of {needed} members are there"
        return GangState(Phase.ASSEMBLING, (bound, needed), held, reason)
    return GangState(Phase.PLACED, (bound, needed), held, "")


def _without_pods(succeeded: int, needed: int | None, *, is_suspended: bool) -> GangState:
    """Return the state of a gang without a member that has GPUs or waits for them."""
    members = succeeded, needed
    if succeeded >= (needed or 1):
        return GangState(Phase.FINISHED, members, Held(), "")
    if is_suspended:
        reason = "its owner is suspended, or makes no pods"
        return GangState(Phase.SUSPENDED, members, Held(), reason)
    ended = f"; {succeeded} of its members have succeeded" if succeeded else ""
    return GangState(Phase.GONE, members, Held(), f"none of its pods is there{ended}")


def _held(running: Sequence[PodInfo], plan: GangPlan | None, state: ClusterState) -> Held:
    usages = [pod.usage for pod in running if pod.usage and pod.usage.target]
    nodes = held_nodes(
        (usage.target, [share.i for share in usage.record.gpus], usage.record.count)
        if isinstance(usage.record, Allocation)
        else (usage.target, (), 0)
        for usage in usages
    )
    if plan is not None and plan.held.nodes == nodes:
        # The same GPUs; the plan may include the NICs in its bandwidth.
        return plan.held
    if not all(usage.family is Family.WHOLE for usage in usages):
        return Held(nodes)
    nic = state.preferences.nic_bandwidth
    return Held(nodes, gang_bandwidth(nodes, state.ledger, state.table, nic))
