"""Place pods that are about to be created, one unit after another. Pure.

Nothing is reserved. The result is what the cluster would give them now, without the nodes that are
reserved for a unit that has waited too long.
"""

from collections.abc import Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from dataclasses import replace as replaced
from functools import cached_property
from typing import TypeAlias

from msgspec.structs import replace

from cluster.gang import gang_mark, is_member, rank_order
from cluster.pod import Pod
from cluster.request import Request, read_request
from scorer.gang.compact_pod import oversize_reason
from scorer.gang.pod_info import PodInfo
from scorer.gang.unit import link_of, needed_members
from scorer.placement.baselines import IndexOrder, best_possible, index_order
from scorer.placement.member import Member, new_member
from scorer.placement.result import Plan, Refusal
from scorer.placement.schedule import plan, plan_near
from scorer.placement.snapshot import Snapshot
from scorer.queue.cycle import Reservation

GangName: TypeAlias = tuple[str, str, str]
"""Namespace and name of a gang, and the uid of its pods' controller, which differs for a job that
is submitted again."""

Settled: TypeAlias = Mapping[GangName, Sequence[str]]
"""The node of each member that has its GPUs already; empty for one that has succeeded."""


@dataclass(frozen=True, slots=True)
class Intended:
    """A pod that asks for GPUs and is about to be created, as admission let it pass."""

    pod: Pod
    namespace: str
    owner: str = ""
    """Uid of its top owner: it distinguishes gangs of the same name."""
    declared: int | None = None
    """Number of pods with GPUs that the owner declares; None where it is unknown."""


@dataclass(frozen=True)
class UnitPlacement:
    """Node and GPUs of a gang, or of a pod on its own."""

    name: str
    namespace: str
    places: tuple[int, ...]
    """The indices of its pods among the given ones, in rank order."""
    members: tuple[Member, ...]
    """The same pods, as the input of placement."""
    plan: Plan | None
    reason: str | None
    """Why it is not placed; None where it is."""
    is_gang: bool
    """False for a single pod."""
    seen: Snapshot
    """The cluster when this was decided."""


@dataclass(frozen=True)
class GangResult(UnitPlacement):
    """The placement of a unit, to be compared with other placements."""

    @cached_property
    def best_possible(self) -> float | None:
        """The same members on the empty cluster [GB/s]."""
        return best_possible(self.seen, self.members)

    @cached_property
    def index_order(self) -> IndexOrder | None:
        """Nodes by name and lowest free indices."""
        return index_order(self.seen, self.members)


@dataclass(frozen=True, slots=True)
class _Parsed:
    """A pod that is about to be created, parsed once."""

    place: int
    intended: Intended
    gang: GangName | None
    member: Member

    @property
    def group(self) -> object:
        """Equal for the members of one gang."""
        return (self.gang[:2], self.intended.owner) if self.gang else self.place


def simulate(
    snapshot: Snapshot,
    pods: Sequence[Intended],
    settled: Settled,
    reserved: Reservation | None = None,
) -> tuple[list[GangResult], Snapshot]:
    """Place pods in the order of priority, creation, and as given; a gang at its first pod.

    Each unit sees the cluster as the units before it left it.

    Args:
        snapshot: The cluster.
        pods: The pods that are created.
        settled: The members of gangs that have their GPUs already.
        reserved: Nodes that are reserved for a waiting unit: the planner places nothing there of
            the same or a lower priority. None: there are none.

    Returns:
        The result of each unit, in the order of decisions; the cluster afterwards.

    Cost: a plan for each unit.
    """
    results: list[GangResult] = []
    for result, after in simulate_each(snapshot, pods, settled, reserved):
        results.append(result)
        snapshot = after
    return results, snapshot


def simulate_each(
    snapshot: Snapshot,
    pods: Sequence[Intended],
    settled: Settled,
    reserved: Reservation | None = None,
) -> Iterator[tuple[GangResult, Snapshot]]:
    """Yield the result of each unit and the cluster after it; as `simulate`.

    A result refers to the whole cluster of its moment, about 0.3 MB for 5,000 nodes.
    """
    refused: dict[Hashable, Refusal] = {}
    for unit in _in_order(pods):
        result = _decided(snapshot, unit, settled, reserved, refused)
        if result.plan is not None:
            snapshot = result.plan.applied_to(snapshot)
            refused.clear()
        yield result, snapshot


def settled_of(pods: Iterable[PodInfo]) -> dict[GangName, list[str]]:
    """Return the members of gangs that have their GPUs already, as the planner counts them."""
    settled: dict[GangName, list[str]] = {}
    for pod in pods:
        if pod.gang is not None and pod.settled:
            owner = pod.controller.uid if pod.controller else ""
            nodes = settled.setdefault((pod.namespace, pod.gang, owner), [])
            nodes.append(pod.usage.target if pod.usage else "")
    return settled


def gang_name(pod: Pod, namespace: str, request: Request | None = None) -> GangName | None:
    """Return the name of a pod's gang; None for a pod that is not a member of a gang.

    Args:
        pod: The pod.
        namespace: Its namespace.
        request: Its request, if it was read already.
    """
    mark = gang_mark(pod)[0]
    if mark is None or not is_member(pod, request or read_request(pod)[0], mark):
        return None
    controllers = [owner.uid for owner in pod.metadata.owner_references or () if owner.controller]
    return namespace, mark.name, "".join(controllers)


def _decided(
    snapshot: Snapshot,
    unit: Sequence[_Parsed],
    settled: Settled,
    reserved: Reservation | None,
    refused: dict[Hashable, Refusal],
) -> GangResult:
    first, gang = unit[0].intended, unit[0].gang
    name = gang[1] if gang else None
    members = tuple(pod.member for pod in unit)
    assigned_nodes = settled.get(gang, ()) if gang else ()
    outcome: Plan | Refusal
    reason = _blocked(members, first, len(assigned_nodes)) if gang else _oversized(members)
    if reason:
        outcome = Refusal(reason)
    else:
        is_closed = reserved is not None and _waits_after(reserved.priority, members)
        here = replaced(snapshot, reserved=reserved.nodes) if reserved and is_closed else snapshot
        if gang:
            outcome = plan_near(here, members, assigned_nodes, link=link_of(members, is_gang=True))
        else:
            key = is_closed, members[0].signature
            outcome = refused.get(key) or plan(here, members)
            if isinstance(outcome, Refusal):
                refused[key] = outcome
    return GangResult(
        name=name or first.pod.metadata.name,
        namespace=first.namespace,
        places=tuple(pod.place for pod in unit),
        members=members,
        plan=outcome if isinstance(outcome, Plan) else None,
        reason=outcome.reason if isinstance(outcome, Refusal) else None,
        is_gang=gang is not None,
        seen=snapshot,
    )


def _blocked(members: Sequence[Member], first: Intended, settled: int) -> str | None:
    """Return why a gang is not planned, whatever is free."""
    needed = needed_members(first.pod, first.declared)
    present = len(members) + settled
    if needed is not None and present < needed:
        return f"{present} of {needed} members"
    return _oversized(members)


def _oversized(members: Iterable[Member]) -> str | None:
    for member in members:
        if reason := oversize_reason(member.pod, member.demand):
            return f"pod {member.pod.metadata.name} is too large to plan: {reason}"
    return None


def _waits_after(priority: int, members: Sequence[Member]) -> bool:
    """Return whether our planner places a unit, and only after a waiting one of this priority."""
    is_urgent = max(member.pod.spec.priority or 0 for member in members) > priority
    return members[0].request.places and members[0].pod.spec.is_gated and not is_urgent


def _in_order(pods: Iterable[Intended]) -> list[list[_Parsed]]:
    """Return the units in the order of decisions, the members of each in rank order."""
    groups: dict[object, list[_Parsed]] = {}
    for place, intended in enumerate(pods):
        pod = _parsed(place, intended)
        groups.setdefault(pod.group, []).append(pod)
    units = sorted(groups.values(), key=lambda group: _order(group[0]))
    return [sorted(unit, key=lambda pod: rank_order(pod.intended.pod)) for unit in units]


def _order(first: _Parsed) -> tuple[int, str, int]:
    pod = first.intended.pod
    # A pod that is not created yet comes after every pod that is.
    created = pod.metadata.creation_timestamp or "~"
    return -(pod.spec.priority or 0), created, first.place


def _parsed(place: int, intended: Intended) -> _Parsed:
    pod, namespace = intended.pod, intended.namespace
    # Two workloads of a simulation may have pods of the same name.
    member = new_member(
        replace(pod, metadata=replace(pod.metadata, uid=f"created-{place}")), namespace
    )
    gang = gang_name(pod, namespace, member.request)
    full_name = f"{namespace}/{gang[1]}" if gang else None
    return _Parsed(place, intended, gang, replaced(member, gang=full_name))
