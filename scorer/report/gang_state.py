"""Compute the state of a gang from its pods, independently of what was planned. Pure."""

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, replace

from msgspec import structs

from linkwise.cluster.account.pod_usage import PodUsage
from linkwise.cluster.allocations.gpus import NO_GPUS, Exact, GPUs
from linkwise.cluster.requests.request import Family
from linkwise.planning.gang.crd import Gang, Phase, placed_size
from linkwise.planning.gang.crd_plan import GangPlan, Held, NodeGPUs, held_nodes
from linkwise.planning.gang.health import unhealthy_gpus, unplanned_gpus, unprepared_pods
from linkwise.planning.gang.lost_members import ended_members
from linkwise.planning.gang.plan_record import tenths
from linkwise.planning.gang.pod_info import PodInfo
from linkwise.planning.gang.whole_plan import gang_bandwidth
from linkwise.planning.state.cluster_state import ClusterState
from linkwise.planning.state.reserved_gpus import Place, Purpose
from linkwise.workloads.paths import path_of
from linkwise.workloads.state import OwnerState
from scorer.cache.informers import Informers


@dataclass(frozen=True, slots=True)
class GangState:
    """The state of a gang."""

    phase: Phase
    members: tuple[int, int | None]
    """Present while some wait, else bound; and how many there must be, None: unknown."""
    held: Held
    reason: str
    """Why it is not placed, as far as its pods show; empty where it is placed."""
    unhealthy: str = ""
    """Its unhealthy GPUs; empty where there are none."""
    unplanned: str = ""
    """Its GPUs that are not the planned ones; empty where there are none."""
    unprepared: str = ""
    """Its pods whose claims their nodes do not prepare; empty where there are none."""
    reserved_until: float | None = None
    """Until when GPUs are reserved for replacements [s since 1970]; None: for none, or only for a
    late launcher."""
    has_surplus: bool = False
    """It has more members than its owner declared when it was read."""
    has_shrunk: bool = False
    """It is placed, and members of its plan were deleted."""
    has_ended_members: bool = False
    """It is placed without members that have succeeded and are gone; its size stays what it was."""
    plan: GangPlan | None = None
    """The plan without these members, once it is known that they are not made again, and with the
    GPUs that members got instead of planned ones; None: as it is recorded."""

    @property
    def is_size_outdated(self) -> bool:
        """Its owner may declare another number of members by now, or none."""
        present, needed = self.members
        is_lacking = self.phase in _INCOMPLETE and (needed is None or present < needed)
        return is_lacking or self.has_surplus or self.has_shrunk


_INCOMPLETE = frozenset({Phase.ASSEMBLING, Phase.GONE, Phase.SUSPENDED})


def gang_state(gang: Gang, needed: int | None, informers: Informers, now: float) -> GangState:
    """Return the state of a gang.

    Args:
        gang: Its object.
        needed: How many members it was last known to need; None: unknown.
        informers: The pods and owners.
        now: Seconds since 1970.

    Cost: the pods of all gangs of its name.
    """
    key, state, owners = gang.key, informers.state, informers.owners
    pods = [pod for pod in state.groups.of(key[:2]) if owners.key(pod) == key]
    declared, needed = owners.declared_of(key), needed or gang.spec.size
    needed = owners.size(key, pods, needed, state.groups.kin(key[:2]))
    ended = ended_members(gang, pods, informers.replacements.succeeded(key))
    found = _state_of(gang, pods, needed, ended, informers)
    present = sum(pod.settled or pod.waiting is not None for pod in pods)
    found = replace(
        found,
        held=structs.replace(
            found.held,
            reserved=_reserved(informers.replacements.places(key)),
            nominated=_reserved(state.reserved.of(key, Purpose.NOMINATION)),
        ),
        reserved_until=informers.replacements.until(key),
        has_surplus=declared is not None and present > declared,
        unhealthy=unhealthy_gpus(pods, state.ledger),
        unplanned=unplanned_gpus(pods, state.ledger, state.links),
        unprepared=unprepared_pods(pods, now, informers.preparation_errors.of),
    )
    if found.phase is not Phase.PLACED or gang.spec.plan is None:
        return found
    repaired = _with_repairs(gang.spec.plan, pods, state)
    plan = _without_deleted(repaired, pods, state)
    if plan is gang.spec.plan or not plan.members:
        return found
    if plan is repaired:
        return replace(found, plan=plan)
    is_read = gang.owner is not None and path_of(gang.owner, key.namespace) is not None
    is_complete = not is_read if declared is None else present + ended >= declared
    return replace(
        found, has_shrunk=not ended, plan=plan if is_complete else None, has_ended_members=ended > 0
    )


def with_fault_note(state: GangState, note: str) -> GangState:
    """Return a state that says why its gang is not moved off its faults; empty: nothing."""
    if note and state.unhealthy:
        return replace(state, unhealthy=f"{state.unhealthy}; {note}")
    if note and state.unplanned:
        return replace(state, unplanned=f"{state.unplanned}; {note}")
    return state


def _with_repairs(plan: GangPlan, pods: Collection[PodInfo], state: ClusterState) -> GangPlan:
    """Return a plan with the GPUs that members with claims got instead of planned ones.

    The same where there are none.
    """
    records = {
        pod.uid: pod.allocation.gpus.indices
        for pod in pods
        if pod.usage and pod.usage.claims and pod.allocation
    }
    members = tuple(
        structs.replace(member, indices=records.get(member.uid, member.indices))
        for member in plan.members
    )
    if members == plan.members:
        return plan
    changed = structs.replace(plan, members=members)
    return structs.replace(changed, bandwidth=_bandwidth(changed.held.nodes, state))


def _without_deleted(plan: GangPlan, pods: Collection[PodInfo], state: ClusterState) -> GangPlan:
    """Return a plan without members that do not exist any more; the same where all exist.

    The bandwidths of other placements are left out: they are those of more members.
    """
    present = {pod.uid for pod in pods}
    members = tuple(member for member in plan.members if member.uid in present)
    if len(members) == len(plan.members):
        return plan
    left = structs.replace(
        plan,
        members=members,
        best_possible=None,
        best_possible_nodes=None,
        index_order=None,
        index_order_nodes=None,
    )
    bandwidth = None if plan.bandwidth is None else _bandwidth(left.held.nodes, state)
    return structs.replace(left, bandwidth=bandwidth)


def _bandwidth(nodes: Sequence[NodeGPUs], state: ClusterState) -> float | None:
    nic = state.preferences.nic_bandwidth
    return tenths(gang_bandwidth(nodes, state.ledger, state.table, nic).value)


def _state_of(
    gang: Gang, pods: Collection[PodInfo], needed: int | None, ended: int, informers: Informers
) -> GangState:
    key, state = gang.key, informers.state
    settled = [pod for pod in pods if pod.settled]
    waiting = sum(pod.waiting is not None for pod in pods)
    running = [pod for pod in settled if pod.usage is not None]
    held = _held(running, gang.spec.plan, state)
    if running and needed is not None:
        placed = placed_size(gang)
        was_whole = placed is not None and placed[1] >= needed
        needed = max(needed - ended, 1)
        if was_whole and waiting:
            return GangState(Phase.WAITING, (len(settled) + waiting, needed), held, "queued")
    if waiting:
        return _waiting(len(settled) + waiting, needed, held)
    if not running:
        return _without_pods(len(settled), needed, informers.workloads.state(key.owner))
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


def _without_pods(succeeded: int, needed: int | None, owner: OwnerState) -> GangState:
    """Return the state of a gang without a member that has GPUs or waits for them."""
    members = succeeded, needed
    if owner is OwnerState.FAILED:
        return GangState(Phase.FINISHED, members, Held(), "its owner has failed")
    if owner is OwnerState.SUCCEEDED or succeeded >= (needed or 1):
        return GangState(Phase.FINISHED, members, Held(), "")
    if owner is OwnerState.SUSPENDED:
        reason = "its owner is suspended, or makes no pods"
        return GangState(Phase.SUSPENDED, members, Held(), reason)
    ended = f"; {succeeded} of its members have succeeded" if succeeded else ""
    return GangState(Phase.GONE, members, Held(), f"none of its pods is there{ended}")


def _reserved(places: Iterable[Place]) -> tuple[NodeGPUs, ...]:
    return held_nodes((node, holding.gpus) for node, holding in places)


def _held(running: Sequence[PodInfo], plan: GangPlan | None, state: ClusterState) -> Held:
    usages = [pod.usage for pod in running if pod.usage and pod.usage.target]
    nodes = held_nodes((usage.target, _gpus(usage, state)) for usage in usages)
    if plan is not None and plan.held.nodes == nodes:
        # The same GPUs; the plan may include the NICs in its bandwidth.
        return plan.held
    if not all(usage.family is Family.WHOLE for usage in usages):
        return Held(nodes)
    return Held(nodes, _bandwidth(nodes, state))


def _gpus(usage: PodUsage, state: ClusterState) -> GPUs:
    """Return the GPUs of a pod: those of its claim, its record, or their number."""
    node = state.node(usage.target)
    claimed = usage.claimed_gpus(node) if node else None
    if isinstance(claimed, Exact):
        return claimed
    return usage.allocation.gpus if usage.allocation else usage.nvidia or NO_GPUS
