"""What would happen to pods that are about to be created, one unit after another. Pure.

Nothing is held. It is what the cluster would give them now, but for what is kept for one that has
waited too long to be passed.
"""

from collections.abc import Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from dataclasses import replace as replaced
from functools import cached_property
from typing import TypeAlias

from msgspec.structs import replace

from cluster.gang import Link, gang_mark, is_member, link_alone, link_strictness, rank_order
from cluster.pod import Pod
from cluster.request import read_request
from scorer.gang.compact_pod import oversize
from scorer.gang.pod_info import PodInfo
from scorer.placement.baselines import IndexOrder, best_possible, index_order
from scorer.placement.member import Member, new_member
from scorer.placement.result import Plan, Refusal
from scorer.placement.schedule import plan, plan_near
from scorer.placement.snapshot import Snapshot
from scorer.queue.cycle import Reservation

GangName: TypeAlias = tuple[str, str, str]
"""Namespace and name of a gang, and the uid of its pods' controller: a job submitted again is
another."""

Settled: TypeAlias = Mapping[GangName, Sequence[str]]
"""The node of each member that is there already; empty for one that has ended well."""


@dataclass(frozen=True, slots=True)
class Intended:
    """A pod that asks for GPUs and is about to be created, as admission let it pass."""

    pod: Pod
    namespace: str
    owner: str = ""
    """What tells its gang from one of the same name: the uid of its topmost owner."""
    declared: int | None = None
    """How many pods with GPUs that owner makes; None where it does not tell."""


@dataclass(frozen=True)
class GangResult:
    """Where a gang, or a pod on its own, goes as one unit."""

    name: str
    namespace: str
    places: tuple[int, ...]
    """Of its pods, among those that were given; in rank order."""
    members: tuple[Member, ...]
    """The same, as placement looks at them."""
    plan: Plan | None
    reason: str | None
    """Why it is not placed; None where it is."""
    is_gang: bool
    """False for a single pod."""
    seen: Snapshot
    """The cluster when this was decided."""

    @cached_property
    def best_possible(self) -> float | None:
        """The same members on the empty cluster [GB/s]."""
        return best_possible(self.seen, self.members)

    @cached_property
    def index_order(self) -> IndexOrder | None:
        """Nodes by name and lowest free indices."""
        return index_order(self.seen, self.members)


def simulate(
    snapshot: Snapshot,
    pods: Sequence[Intended],
    settled: Settled,
    reserved: Reservation | None = None,
) -> tuple[list[GangResult], Snapshot]:
    """Place pods in the order of priority, then of creation, then as given; a gang at its first.

    Each unit sees what the ones before it took.

    Args:
        snapshot: The cluster.
        pods: Which are created.
        settled: The members of gangs that are there already.
        reserved: Nodes that are reserved for one that waits: the planner places nothing there that
            is not more urgent. None: there are none.

    Returns:
        What became of each unit, in the order in which they were decided; the cluster afterwards.

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
    """Yield what becomes of each unit in turn, and the cluster after it; as `simulate`.

    A result refers to the whole cluster as it was then, about 0.3 MB for 5,000 nodes.
    """
    refused: dict[Hashable, Refusal] = {}
    for places in _in_turn(pods):
        unit = [pods[place] for place in places]
        result = _decided(snapshot, places, unit, settled, reserved, refused)
        if result.plan is not None:
            snapshot = result.plan.applied_to(snapshot)
            # What is refused is so until something changes.
            refused.clear()
        yield result, snapshot


def settled_of(pods: Iterable[PodInfo]) -> dict[GangName, list[str]]:
    """Return the members of gangs that are there already, as the planner counts them."""
    found: dict[GangName, list[str]] = {}
    for pod in pods:
        if pod.gang is not None and pod.settled:
            owner = pod.controller.uid if pod.controller else ""
            nodes = found.setdefault((pod.namespace, pod.gang, owner), [])
            nodes.append(pod.usage.target if pod.usage else "")
    return found


def gang_name(pod: Pod, namespace: str) -> GangName | None:
    """Return what tells a pod's gang from others; None for one that is no member of a gang."""
    mark = gang_mark(pod)[0]
    if mark is None or not is_member(pod, read_request(pod)[0], mark):
        return None
    owners = [one.uid for one in pod.metadata.owner_references or () if one.controller]
    return namespace, mark.name, "".join(owners)


def _decided(
    snapshot: Snapshot,
    places: tuple[int, ...],
    pods: Sequence[Intended],
    settled: Settled,
    reserved: Reservation | None,
    refused: dict[Hashable, Refusal],
) -> GangResult:
    first = pods[0]
    gang = gang_name(first.pod, first.namespace)
    name = gang[1] if gang else None
    full = f"{first.namespace}/{name}" if name else None
    alone = (_told_apart(one.pod, place) for one, place in zip(pods, places, strict=True))
    members = tuple(new_member(pod, first.namespace, full) for pod in alone)
    homes = settled.get(gang, ()) if gang else ()
    present = len(members) + len(homes)
    needed = _needed(first, len(pods)) if gang else 1
    outcome: Plan | Refusal
    oversized = next(filter(None, map(_oversized, members)), None)
    if present < needed:
        outcome = Refusal(f"{present} of {needed} members")
    elif oversized:
        outcome = Refusal(oversized)
    else:
        closed = reserved is not None and _waits_after(reserved.priority, members)
        here = replaced(snapshot, reserved=reserved.nodes) if reserved and closed else snapshot
        if gang:
            link = link_of(members, is_gang=gang is not None)
            outcome = plan_near(here, members, homes, link=link)
        else:
            kind = closed, members[0].signature
            outcome = refused.get(kind) or plan(here, members)
            if isinstance(outcome, Refusal):
                refused[kind] = outcome
    return GangResult(
        name=name or first.pod.metadata.name,
        namespace=first.namespace,
        places=places,
        members=members,
        plan=outcome if isinstance(outcome, Plan) else None,
        reason=outcome.reason if isinstance(outcome, Refusal) else None,
        is_gang=gang is not None,
        seen=snapshot,
    )


def link_of(members: Sequence[Member], *, is_gang: bool) -> Link:
    """Return how strictly a gang, or a pod on its own, holds to fast links."""
    first = members[0]
    return link_strictness(first.pod)[0] if is_gang else link_alone(first.pod, first.request)


def _oversized(member: Member) -> str | None:
    why = oversize(member.pod, member.demand)
    return why and f"pod {member.pod.metadata.name} is too large to plan: {why}"


def _told_apart(pod: Pod, place: int) -> Pod:
    """Return the pod with a uid: two workloads may have pods of one name, in a simulation."""
    return replace(pod, metadata=replace(pod.metadata, uid=f"created-{place}"))


def _waits_after(priority: int, members: Sequence[Member]) -> bool:
    """Tell whether our planner places a unit, and only after one of this priority that waits."""
    urgent = max(one.pod.spec.priority or 0 for one in members) > priority
    return members[0].request.places and members[0].pod.spec.is_gated and not urgent


def _needed(first: Intended, present: int) -> int:
    """Return how many members a gang must have, of which one tells."""
    mark = gang_mark(first.pod)[0]
    stated = (mark.min_available, mark.total) if mark else ()
    needed = next((n for n in (*stated, first.declared) if n is not None), present)
    # A minimum above what the owner makes is cut to it: mpi-operator counts the launcher too.
    return needed if first.declared is None else min(needed, first.declared)


def _in_turn(pods: Iterable[Intended]) -> list[tuple[int, ...]]:
    """Return the units to decide, as places of their pods; first come first served."""
    groups: dict[object, list[tuple[int, Intended]]] = {}
    for place, one in enumerate(pods):
        gang = gang_name(one.pod, one.namespace)
        key = (gang[:2], one.owner) if gang else place
        groups.setdefault(key, []).append((place, one))
    return [_by_rank(group) for group in sorted(groups.values(), key=_turn)]


def _by_rank(group: list[tuple[int, Intended]]) -> tuple[int, ...]:
    return tuple(place for place, _ in sorted(group, key=lambda pair: rank_order(pair[1].pod)))


def _turn(group: list[tuple[int, Intended]]) -> tuple[int, str, int]:
    place, first = group[0]
    # A pod that is not created yet comes after every pod that is.
    created = first.pod.metadata.creation_timestamp or "~"
    return -(first.pod.spec.priority or 0), created, place
