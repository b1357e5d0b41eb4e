"""Pods that wait for GPUs, put together: each gang as one unit, every other pod as its own."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from cluster.gang import (
    GangKey,
    Link,
    gang_mark,
    is_of_group,
    link_alone,
    link_strictness,
    rank_order,
)
from cluster.keys import GANG
from cluster.pod import Owner, Pod
from scorer.gang.missing_members import assembling
from scorer.gang.owners import GROUPS, ORDERED, ExpectedPods
from scorer.gang.pod_info import PodInfo
from scorer.placement.member import Member, new_member

MEMBERS_MAX = 4096
"""As many members has a Gang at most: no plan of more could be recorded."""


@dataclass(frozen=True, slots=True)
class Unit:
    """Pods that are placed at once, or not at all."""

    key: GangKey
    """Of a pod on its own its name and uid."""
    is_gang: bool
    group: tuple[str, str]
    """Where the state has its pods."""
    waiting: tuple[PodInfo, ...]
    """Those that have no GPUs yet, in rank order; at least one."""
    members: tuple[Member, ...]
    """The same, as placement looks at them."""
    settled: tuple[PodInfo, ...]
    """Those that have theirs, or had them and succeeded."""
    needed: int | None
    """How many there must be; None where nothing told so far."""
    link: Link
    owner: Owner | None
    """The top owner."""
    blocked: str | None
    """Why it is not its turn to be planned, whatever is free; None when it is."""

    @property
    def present(self) -> int:
        """How many members there are."""
        return len(self.waiting) + len(self.settled)

    @property
    def alike(self) -> bool:
        """Those that wait all ask for the same, as members of a gang should."""
        return len({member.signature for member in self.members}) == 1

    @property
    def since(self) -> str:
        """When the first of those that wait was created."""
        return min(pod.created for pod in self.waiting)

    @property
    def priority(self) -> int:
        """The highest of its pods' priorities."""
        return max(member.pod.spec.priority or 0 for member in self.members)


@dataclass(frozen=True, slots=True)
class Owners:
    """What is known of the objects that own pods."""

    above: Mapping[str, Owner | None]
    """By uid of a batch Job, of a StatefulSet or the leader of a LeaderWorkerSet: its own
    controller, None where it has none."""
    declared: Mapping[str, int]
    """By uid of a top owner: how many pods with GPUs it declares."""
    makes: Mapping[str, ExpectedPods] = field(default_factory=dict)
    """By uid of a top owner: which pods these are."""
    groups: Mapping[GangKey, int] = field(default_factory=dict)
    """By gang: how many members its PodGroup says there must be. That of a job before it, of the
    same name, may have said something else."""

    def top(self, owner: Owner | None) -> Owner | None:
        """Return the top owner; the one given where nothing above it is known."""
        # Anybody may write owners that go round in a circle.
        passed: set[str] = set()
        while owner and owner.uid not in passed and (higher := self.above.get(owner.uid)):
            passed.add(owner.uid)
            owner = higher
        return owner

    def key(self, pod: PodInfo) -> GangKey:
        """Return what tells a member's gang; of a pod on its own its name and uid."""
        if pod.gang is None:
            return GangKey(*pod.key, pod.uid)
        owner = self.top(pod.controller)
        return GangKey(pod.namespace, pod.gang, owner.uid if owner else "")


def units_of(pods: Iterable[PodInfo], owners: Owners, before: Iterable[Unit] = ()) -> list[Unit]:
    """Return what waits for GPUs of some pods, among which are all of each gang.

    Args:
        pods: Those of one gang's name, or of all.
        owners: Who owns them.
        before: What waited of them before: pods that did not change are not read again.
    """
    known = {
        id(pod): member
        for unit in before
        for pod, member in zip(unit.waiting, unit.members, strict=True)
    }
    gangs: dict[GangKey, list[PodInfo]] = {}
    alone: list[PodInfo] = []
    for pod in pods:
        if pod.gang is not None:
            gangs.setdefault(owners.key(pod), []).append(pod)
        elif pod.waiting:
            alone.append(pod)
    together = [
        _gang(key, found, owners, known)
        for key, found in gangs.items()
        if any(pod.waiting for pod in found)
    ]
    return together + [_single(pod, owners) for pod in alone]


def _gang(key: GangKey, pods: list[PodInfo], owners: Owners, known: Mapping[int, Member]) -> Unit:
    waiting = sorted((pod for pod in pods if pod.waiting), key=_order)
    first = _pod(waiting[0])
    owner = owners.top(waiting[0].controller)
    # Before that is followed to its LeaderWorkerSet, a StatefulSet tells of a part.
    is_part = is_of_group(first) and owner is not None and owner.kind != GROUPS
    declared = None if is_part else owners.declared.get(key.owner)
    needed = _needed(first, owners.groups.get(key), declared)
    settled = tuple(pod for pod in pods if pod.settled)
    gang = f"{key.namespace}/{key.name}"
    members = tuple(
        known.get(id(pod)) or new_member(_pod(pod), pod.namespace, gang) for pod in waiting
    )
    return Unit(
        key=key,
        is_gang=True,
        group=(key.namespace, key.name),
        waiting=tuple(waiting),
        members=members,
        settled=settled,
        needed=needed,
        link=link_strictness(first)[0],
        owner=owner,
        blocked=_unplannable(waiting)
        or _broken(members)
        or _missing((*waiting, *settled), needed, owner, owners)
        or _foreign_gate(waiting),
    )


def _single(pod: PodInfo, owners: Owners) -> Unit:
    members = (new_member(_pod(pod), pod.namespace),)
    return Unit(
        key=owners.key(pod),
        is_gang=False,
        group=(pod.namespace, pod.group or ""),
        waiting=(pod,),
        members=members,
        settled=(),
        needed=1,
        link=link_alone(_pod(pod), members[0].request),
        owner=owners.top(pod.controller),
        blocked=pod.unplannable or _broken(members) or _foreign_gate([pod]),
    )


def settled_unit(key: GangKey, pods: Iterable[PodInfo], owners: Owners) -> Unit:
    """Return a unit of which nobody waits: what is left to do is to bind it."""
    settled = tuple(pod for pod in pods if pod.settled)
    first = settled[0]
    return Unit(
        key=key,
        is_gang=first.gang is not None,
        group=(first.namespace, first.group or ""),
        waiting=(),
        members=(),
        settled=settled,
        needed=owners.declared.get(key.owner),
        link=Link.BEST,
        owner=owners.top(first.controller),
        blocked=None,
    )


def _needed(pod: Pod, group: int | None, declared: int | None) -> int | None:
    """Return how many members there must be, as the mark, its PodGroup or the owner says.

    A minimum above what the owner declares is cut to it: mpi-operator counts the launcher too.
    """
    mark, _ = gang_mark(pod)
    stated = (mark.min_available or mark.total or group) if mark else None
    if stated is None or declared is None:
        return stated or declared
    return min(stated, declared)


def _unplannable(waiting: Iterable[PodInfo]) -> str | None:
    """Say which member is not planned, whatever is free."""
    for pod in waiting:
        if pod.unplannable:
            return f"pod {pod.name}: {pod.unplannable}"
    return None


def _broken(members: Iterable[Member]) -> str | None:
    """Say which member asks for what no pod may ask for."""
    for member in members:
        if found := member.violation:
            return (
                f"pod {member.pod.metadata.name} makes a request for GPUs that breaks a rule: "
                f"{found.field}: {found.message}; {found.fix} [{found.code}]; or make the pod anew"
            )
    return None


def _missing(
    pods: Sequence[PodInfo], needed: int | None, owner: Owner | None, owners: Owners
) -> str | None:
    """Say who is missing, and what keeps them away where that is known; None: enough are there."""
    if needed is None:
        return "nothing tells how many members it has: neither its labels nor what owns its pods"
    if max(needed, len(pods)) > MEMBERS_MAX:
        return f"a gang has at most {MEMBERS_MAX} members: split it"
    if len(pods) >= needed:
        return None
    makes = owners.makes.get(owner.uid) if owner else None
    reason = assembling([pod.name for pod in pods], needed, makes)
    if owner and makes and makes.ordered:
        return f"{reason}; {owner.kind} {owner.name} {ORDERED[owner.kind]}"
    return reason


def _foreign_gate(waiting: Iterable[PodInfo]) -> str | None:
    """Say which gate of others still holds a member: they may not have decided yet."""
    for pod in waiting:
        for gate in _pod(pod).spec.scheduling_gates or ():
            if gate.name != GANG:
                return f"pod {pod.name} waits for the scheduling gate {gate.name} of another system"
    return None


def _order(pod: PodInfo) -> tuple[object, ...]:
    return *rank_order(_pod(pod)), pod.name


def _pod(pod: PodInfo) -> Pod:
    if pod.waiting is None:
        raise ValueError(f"{pod.name} does not wait")
    return pod.waiting
