"""Assemble waiting pods into units: each gang is one unit, every other pod is one of its own."""

from collections import Counter
from collections.abc import Collection, Hashable, Iterable, Sequence
from dataclasses import dataclass, replace
from itertools import chain

from msgspec import structs

from linkwise.cluster.gang import GangKey, Link, is_of_group, link_alone, link_strictness
from linkwise.cluster.objects.metadata import Owner
from linkwise.planning.gang.blocked import (
    foreign_gate,
    member_without_claim,
    member_without_volume,
    missing_members,
    shared_exclusive_volume,
    too_many_resources,
    unplannable_member,
    violation,
)
from linkwise.planning.gang.needed_members import needed_members
from linkwise.planning.gang.owners import Owners
from linkwise.planning.gang.pod_info import PodInfo
from linkwise.planning.placement.pods.member import Member
from linkwise.workloads.members import ExpectedPods
from linkwise.workloads.rank import rank_order


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
    co_owners: tuple[Owner, ...] = ()
    """The other top owners of its pods."""
    is_repair: bool = False
    """It runs, and its waiting pods replace members that it had when it was planned as a whole."""

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
    def fewest(self) -> int:
        """How many of its waiting members it needs to start, or to go on."""
        if self.needed is None or self.late:
            return len(self.members)
        return min(max(self.needed - len(self.settled), 1), len(self.members))

    @property
    def least(self) -> "Unit":
        """The unit with those members that it needs."""
        return self.first(self.fewest)

    def first(self, count: int) -> "Unit":
        """Return the unit with so many of its waiting members, the first ones by rank."""
        if count >= len(self.members):
            return self
        return replace(self, waiting=self.waiting[:count], members=self.members[:count])

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
    def turn(self) -> str:
        """Orders the units of one priority: one that repairs a running gang, then by age."""
        return "" if self.is_repair else self.since

    @property
    def priority(self) -> int:
        """The lowest priority of its pods, also of those that have GPUs.

        It waits, and others are evicted for it, by this one: else one pod of a high class, for
        which its namespace has quota, would be enough for a gang of any size.
        """
        settled = (pod.usage.priority for pod in self.settled if pod.usage)
        return min(chain((member.pod.spec.priority or 0 for member in self.members), settled))


def units_of(pods: Iterable[PodInfo], owners: Owners, beside: Iterable[PodInfo] = ()) -> list[Unit]:
    """Return the units that wait for GPUs.

    Args:
        pods: All pods of each gang among them, and those without GPUs that have its mark.
        owners: The owners of these pods.
        beside: Other pods of the owners of these gangs, which are units of their own.
    """
    everything = tuple(pods)
    # Of a large cluster few gangs wait, and the key of a pod needs its owners.
    waiting = {(pod.namespace, pod.gang) for pod in everything if pod.member}
    gangs: dict[GangKey, list[PodInfo]] = {}
    alone: list[tuple[PodInfo, Member]] = []
    followers = Counter[tuple[str, str | None]]()
    kin = Counter(
        owners.kin_key(pod)
        for pod in chain(everything, beside)
        if pod.kin is not None and (pod.namespace, pod.kin) in waiting
    )
    for pod in everything if waiting else ():
        if pod.follows is not None:
            followers[pod.namespace, pod.follows] += 1
        if (pod.namespace, pod.gang) not in waiting:
            continue
        if pod.gang is not None:
            gangs.setdefault(owners.key(pod), []).append(pod)
        elif pod.member:
            alone.append((pod, pod.member))
    together = [
        _gang(key, members, owners, followers[key[:2]], kin[key])
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
        needed=owners.declared_of(key),
        link=Link.BEST,
        owner=owners.top(first.controller),
        blocked=None,
    )


def link_of(members: Sequence[Member], *, is_gang: bool) -> Link:
    """Return how strictly a gang, or a pod on its own, insists on fast links."""
    first = members[0]
    return link_strictness(first.pod)[0] if is_gang else link_alone(first.pod, first.request)


def _gang(
    key: GangKey,
    pods: list[PodInfo],
    owners: Owners,
    followers: int,
    kin: int,
) -> Unit:
    pairs = [(pod, pod.member) for pod in pods if pod.member]
    pairs.sort(key=lambda pair: (*rank_order(pair[1].pod), pair[0].name))
    waiting, members = tuple(pod for pod, _ in pairs), tuple(member for _, member in pairs)
    owner, *co_owners = _owners(key, pods, waiting[0], owners)
    # Until it is followed to its LeaderWorkerSet, a StatefulSet declares only a part.
    is_part = is_of_group(members[0].pod) and owner is not None and owner.kind == "StatefulSet"
    known = replace(owners, declared={}) if is_part else owners
    needed = needed_members(key, waiting, known, followers, kin)
    if needed == 1:
        members = tuple(member.sufficient for member in members)
    settled = _settled(key, pods, needed)
    is_running = any(pod.usage and pod.usage.target for pod in settled)
    whole = owners.placed.get(key, 0) if is_running else 0
    expected = owners.expected_of(key)
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
        or (None if needed and whole >= needed else missing)
        or foreign_gate(members)
        or member_without_claim(waiting)
        or member_without_volume(members)
        or shared_exclusive_volume(members),
        co_owners=tuple(filter(None, co_owners)),
        is_repair=len(waiting) + len(settled) <= whole,
    )


def _owners(
    key: GangKey, pods: Iterable[PodInfo], first: PodInfo, owners: Owners
) -> list[Owner | None]:
    """Return the top owners of a gang, the one of its key first."""
    if not owners.parts(key)[1:]:
        return [owners.top(first.controller)]
    tops = {owner.uid: owner for pod in pods if (owner := owners.top(pod.controller))}
    own = tops.pop(key.owner, None)
    return [*([own] if own else ()), *tops.values()] or [None]


def _settled(key: GangKey, pods: Collection[PodInfo], needed: int | None) -> tuple[PodInfo, ...]:
    """Return the pods that have GPUs, or had them and succeeded.

    Pods without an owner of which as many have ended as a gang needs, and of which none has GPUs,
    were an earlier gang of the name.
    """
    settled = tuple(pod for pod in pods if pod.settled)
    if key.owner or needed is None or any(pod.usage for pod in settled):
        return settled
    return settled if sum(pod.usage is None for pod in pods) < needed else ()


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
