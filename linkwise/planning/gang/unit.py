"""Assemble waiting pods into units: each gang is one unit, every other pod is one of its own."""

from collections.abc import Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import chain

from msgspec import structs

from linkwise.cluster.gang import GangKey, Link, gang_mark, is_of_group, link_alone, link_strictness
from linkwise.cluster.objects.metadata import Owner
from linkwise.cluster.objects.pod import Pod
from linkwise.planning.gang.blocked import (
    foreign_gate,
    member_without_claim,
    member_without_volume,
    missing_members,
    too_many_resources,
    unplannable_member,
    violation,
)
from linkwise.planning.gang.pod_info import PodInfo
from linkwise.planning.placement.pods.member import Member
from linkwise.workloads.members import ExpectedPods
from linkwise.workloads.rank import rank_order

_LEVELS_MAX = 8
"""Owners above each other that are followed; no controllers make more."""


@dataclass(frozen=True, slots=True)
class Unit:
    """Pods that are placed together or not at all."""

    key: GangKey
    """Of a pod on its own its name and uid."""
    is_gang: bool
    group: tuple[str, str]
    """The key of its pods in `PodGroups`."""
    waiting: tuple[PodInfo, ...]
    """The pods without GPUs, in rank order; at least one."""
    members: tuple[Member, ...]
    """The input of placement: a late launcher that does not exist yet, then the same pods."""
    settled: tuple[PodInfo, ...]
    """The pods that have GPUs, or had them and succeeded."""
    needed: int | None
    """Number of pods that it needs; None where it is unknown."""
    link: Link
    owner: Owner | None
    """The top owner."""
    blocked: str | None
    """Why it is not planned, whatever is free; None when it is."""

    @property
    def late(self) -> tuple[Member, ...]:
        """The members that are planned before their pods exist; they have no uid."""
        return self.members[: len(self.members) - len(self.waiting)]

    @property
    def waiting_members(self) -> tuple[Member, ...]:
        """The waiting pods, as the input of placement."""
        return self.members[len(self.members) - len(self.waiting) :]

    @property
    def present(self) -> int:
        """Number of members that exist."""
        return len(self.waiting) + len(self.settled)

    @property
    def lacks_members(self) -> bool:
        """Members are missing, or their number is unknown."""
        return self.needed is None or self.present < self.needed

    @property
    def is_uniform(self) -> bool:
        """All waiting members ask for the same, as members of a gang should."""
        return len({member.signature for member in self.members}) == 1

    @property
    def signature(self) -> Hashable:
        """Equal for units that fit the same free nodes."""
        return self.link, tuple(member.signature for member in self.members)

    @property
    def since(self) -> str:
        """Creation time of the first waiting pod (RFC 3339)."""
        return min(pod.created for pod in self.waiting)

    @property
    def priority(self) -> int:
        """The lowest priority of its pods, also of those that have GPUs.

        It waits, and others are evicted for it, by this one: else one pod of a high class, for
        which its namespace has quota, would be enough for a gang of any size.
        """
        settled = (pod.usage.priority for pod in self.settled if pod.usage)
        return min(chain((member.pod.spec.priority or 0 for member in self.members), settled))


@dataclass(frozen=True, slots=True)
class Owners:
    """The known facts about objects that own pods."""

    controllers: Mapping[str, Owner | None]
    """By uid of a batch Job, of a StatefulSet or the leader of a LeaderWorkerSet: its own
    controller, None where it has none."""
    declared: Mapping[str, int]
    """By uid of a top owner: how many pods with GPUs it declares."""
    expected: Mapping[str, ExpectedPods] = field(default_factory=dict)
    """By uid of a top owner: the pods with GPUs that it makes."""
    groups: Mapping[GangKey, int] = field(default_factory=dict)
    """By gang: how many members its PodGroup requires. An earlier job of the same name may have had
    another PodGroup."""

    def top(self, owner: Owner | None) -> Owner | None:
        """Return the top owner; the given one where nothing above it is known."""
        # Users can write owners that form a circle, or a chain of any length.
        for _ in range(_LEVELS_MAX):
            higher = self.controllers.get(owner.uid) if owner else None
            if higher is None:
                break
            owner = higher
        return owner

    def size(self, key: GangKey, pods: Iterable[PodInfo], known: int | None) -> int | None:
        """Return how many members a gang needs now; None where it is unknown.

        Args:
            key: Of the gang.
            pods: Its pods.
            known: How many it was last known to need.
        """
        declared = self.declared.get(key.owner)
        if declared is None:
            return known
        is_stated = key in self.groups or any(pod.states_size for pod in pods)
        return min(known or declared, declared) if is_stated else declared

    def key(self, pod: PodInfo) -> GangKey:
        """Return the key of a member's gang; of a pod on its own its name and uid."""
        if pod.gang is None:
            return GangKey(*pod.key, pod.uid)
        owner = self.top(pod.controller)
        return GangKey(pod.namespace, pod.gang, owner.uid if owner else "")


def units_of(pods: Iterable[PodInfo], owners: Owners) -> list[Unit]:
    """Return the units that wait for GPUs.

    Args:
        pods: All pods of each gang among them.
        owners: The owners of these pods.
    """
    everything = tuple(pods)
    # Of a large cluster few gangs wait, and the key of a pod needs its owners.
    waiting = {(pod.namespace, pod.gang) for pod in everything if pod.member}
    gangs: dict[GangKey, list[PodInfo]] = {}
    alone: list[tuple[PodInfo, Member]] = []
    for pod in everything if waiting else ():
        if (pod.namespace, pod.gang) not in waiting:
            continue
        if pod.gang is not None:
            gangs.setdefault(owners.key(pod), []).append(pod)
        elif pod.member:
            alone.append((pod, pod.member))
    together = [
        _gang(key, members, owners)
        for key, members in gangs.items()
        if any(pod.member for pod in members)
    ]
    return together + [_single(pod, member, owners) for pod, member in alone]


def settled_unit(key: GangKey, pods: Iterable[PodInfo], owners: Owners) -> Unit:
    """Return a unit without waiting pods, whose members are still to be bound."""
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


def _needed(pod: Pod, declared: int | None, pod_group: int | None) -> int | None:
    """Return how many members a gang needs; None where neither mark, PodGroup nor owner says it.

    A minimum above the number that the owner declares is lowered to it: mpi-operator counts the
    launcher, too.

    Args:
        pod: One of its members.
        declared: How many pods with GPUs its owner declares.
        pod_group: How many its PodGroup requires.
    """
    mark, _ = gang_mark(pod)
    stated = (mark.min_available or mark.total or pod_group) if mark else None
    if stated is None or declared is None:
        return stated or declared
    return min(stated, declared)


def link_of(members: Sequence[Member], *, is_gang: bool) -> Link:
    """Return how strictly a gang, or a pod on its own, insists on fast links."""
    first = members[0]
    return link_strictness(first.pod)[0] if is_gang else link_alone(first.pod, first.request)


def _gang(key: GangKey, pods: list[PodInfo], owners: Owners) -> Unit:
    pairs = [(pod, pod.member) for pod in pods if pod.member]
    pairs.sort(key=lambda pair: (*rank_order(pair[1].pod), pair[0].name))
    waiting, members = tuple(pod for pod, _ in pairs), tuple(member for _, member in pairs)
    first = members[0].pod
    owner = owners.top(waiting[0].controller)
    # Until it is followed to its LeaderWorkerSet, a StatefulSet declares only a part.
    is_part = is_of_group(first) and owner is not None and owner.kind == "StatefulSet"
    declared = None if is_part else owners.declared.get(key.owner)
    needed = _needed(first, declared, owners.groups.get(key))
    settled = tuple(pod for pod in pods if pod.settled)
    expected = owners.expected.get(owner.uid) if owner else None
    late = _late(members[0], (*waiting, *settled), needed, expected)
    missing = missing_members(waiting, settled, needed, len(late), owner, expected)
    return Unit(
        key=key,
        is_gang=True,
        group=(key.namespace, key.name),
        waiting=waiting,
        members=(*late, *members),
        settled=settled,
        needed=needed,
        link=link_of(members, is_gang=True),
        owner=owner,
        blocked=unplannable_member(waiting)
        or violation(members)
        or too_many_resources(members)
        or missing
        or foreign_gate(members)
        or member_without_claim(waiting)
        or member_without_volume(members),
    )


def _late(
    worker: Member, pods: Sequence[PodInfo], needed: int | None, expected: ExpectedPods | None
) -> tuple[Member, ...]:
    """Return the launcher that is made once the others are ready, if the gang still lacks it."""
    launcher = expected.late_launcher if expected else None
    if launcher is None or needed is None or len(pods) >= needed:
        return ()
    if any(pod.controller and pod.controller.name == launcher.job for pod in pods):
        return ()
    # Its constraints are those that admission has given to a worker.
    metadata = structs.replace(worker.pod.metadata, name=launcher.job, uid="")
    late = replace(
        worker,
        pod=structs.replace(worker.pod, metadata=metadata),
        name=f"{worker.pod.metadata.namespace}/{launcher.job}",
        request=worker.request.of_cards(launcher.gpus),
        demand=launcher.demand,
        volumes=None,
    )
    return (late,)


def _single(pod: PodInfo, member: Member, owners: Owners) -> Unit:
    members = (member,)
    return Unit(
        key=owners.key(pod),
        is_gang=False,
        group=(pod.namespace, pod.group or ""),
        waiting=(pod,),
        members=members,
        settled=(),
        needed=1,
        link=link_of(members, is_gang=False),
        owner=owners.top(pod.controller),
        blocked=pod.unplannable
        or violation(members)
        or foreign_gate(members)
        or member_without_claim((pod,))
        or member_without_volume(members),
    )
