"""Decide which pods of several owners that share a mark are one gang. Pure.

A mark that pods of several live owners share is one gang of the stated size. An owner that makes
as many pods as that by itself is a gang of its own: a job that was submitted again does not join
the one before it. So does an owner whose pods have all ended not join those that live.
"""

from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field
from itertools import chain

from linkwise.cluster.gang import GangKey, is_of_group
from linkwise.cluster.objects.metadata import Owner
from linkwise.planning.gang.crd import Gang
from linkwise.planning.gang.owners import Joint, Owners
from linkwise.planning.gang.pod_info import PodInfo
from linkwise.workloads.paths import path_of
from linkwise.workloads.pod_group import group_paths

_OPEN_MAX = 8
"""Incomplete gangs of one mark that an owner is compared with."""


@dataclass(slots=True, eq=False)
class _Part:
    """The pods of one owner that exist, and wait or have their GPUs, or had them."""

    key: GangKey
    top: Owner | None
    """The owner."""
    pods: list[PodInfo] = field(default_factory=list)
    size: int | None = None
    """The stated size of its gang; None: it is not known yet; 0: none is stated."""
    total: int | None = None
    """How many pods its owner makes; None: unknown."""
    was_whole: bool = False
    """It runs, and was planned as a gang of its own."""
    is_of_pod_group: bool = False
    """Its size is that of a PodGroup, which counts the pods of all owners."""
    is_read: bool = True
    """What its owner makes is known, as far as it can be."""

    @property
    def age(self) -> tuple[str, str]:
        return min(pod.created for pod in self.pods), self.key.owner

    @property
    def is_running(self) -> bool:
        return any(pod.settled and pod.usage for pod in self.pods)

    @property
    def is_live(self) -> bool:
        return any(pod.member or pod.usage for pod in self.pods)

    @property
    def most(self) -> int:
        """How many members it may have, as far as is known."""
        return max(self.total or 0, len(self.pods))

    @property
    def is_whole(self) -> bool:
        """It needs no other owner; also where no size is stated."""
        return self.was_whole or (self.size is not None and self.most >= self.size)

    @property
    def lineage(self) -> tuple[str, str] | None:
        """What its owner shares with those that come before and after it; None: it has no owner.

        An object that is created again has the same name, a new revision of a Deployment a
        ReplicaSet of another hash.
        """
        if self.top is None:
            return None
        kind, name = self.top.kind, self.top.name
        return kind, name.rpartition("-")[0] if kind == "ReplicaSet" else name


class _Gang:
    """The parts of one gang, while others may still join it."""

    def __init__(self, parts: Iterable[_Part], before: Joint | None = None) -> None:
        self.before = before
        self.parts: list[_Part] = []
        self._lineages: set[tuple[str, str]] = set()
        self._most = self._size = 0
        self._is_sized = True
        for part in parts:
            self.add(part)

    @property
    def is_whole(self) -> bool:
        was_whole = len(self.parts) == 1 and self.parts[0].was_whole
        return was_whole or (self._is_sized and self._most >= self._size)

    def add(self, part: _Part) -> None:
        self.parts.append(part)
        self._most += part.most
        self._size = max(self._size, part.size or 0)
        self._is_sized &= part.size is not None
        if lineage := part.lineage:
            self._lineages.add(lineage)

    def takes(self, part: _Part) -> bool:
        """Return whether the owner of a part does not come before or after one that it has."""
        return part.lineage not in self._lineages


def joint_gangs(
    pods: Collection[PodInfo],
    owners: Owners,
    recorded: Iterable[Joint] = (),
    first: Iterable[GangKey] = (),
) -> dict[GangKey, Joint]:
    """Return the gangs of several owners, by the keys of their parts.

    Args:
        pods: All pods of one namespace and gang name.
        owners: What is known of their owners, and which of these were a gang before.
        recorded: Gangs of several owners that their objects show.
        first: Parts that were there before others: a gang has the key of one of them.

    Cost: linear in the pods; owners are sorted, and compared with a few gangs.
    """
    parts = _parts(pods, owners)
    known = _known(parts, owners, recorded)
    live = {key: part for key, part in parts.items() if part.is_live}
    if len(live) < 2 and not known:
        return {}
    _measure(live.values(), owners)
    gangs, joint = _kept(live, known)
    taken = {part.key for gang in gangs for part in gang.parts}
    left = sorted((part for key, part in live.items() if key not in taken), key=lambda p: p.age)
    gangs += [_Gang([part]) for part in left if part.is_whole]
    _join([part for part in left if not part.is_whole], gangs)
    first = tuple(first)
    for gang in gangs:
        if gang.before or len(gang.parts) > 1:
            found = _joint(gang, owners, first)
            joint.update(dict.fromkeys(found.parts, found))
    return joint


def all_joint(
    pods: Iterable[PodInfo], owners: Owners, gangs: Iterable[Gang] = ()
) -> dict[GangKey, Joint]:
    """Return the gangs of several owners among pods of any gangs, by the keys of their parts."""
    groups: dict[tuple[str, str], list[PodInfo]] = defaultdict(list)
    for pod in pods:
        if pod.gang is not None:
            groups[pod.namespace, pod.gang].append(pod)
    recorded: dict[tuple[str, str], list[Joint]] = defaultdict(list)
    for joint in filter(None, map(recorded_joint, gangs)):
        recorded[joint.key[:2]].append(joint)
    found: dict[GangKey, Joint] = {}
    for group, members in groups.items():
        found |= joint_gangs(members, owners, recorded.get(group, ()))
    return found


def recorded_joint(gang: Gang) -> Joint | None:
    """Return the gang of several owners that an object shows; None: it has one owner or none."""
    key = gang.key
    uids = [each.uid for each in gang.metadata.owner_references if each.kind != "Pod"]
    if not key.owner or len(uids) < 2:
        return None
    return Joint(key, tuple(key._replace(owner=uid) for uid in uids))


def _parts(pods: Iterable[PodInfo], owners: Owners) -> dict[GangKey, _Part]:
    """Return the pods by owner; none where only their top owners have them all."""
    parts: dict[GangKey, _Part] = {}
    for pod in pods:
        if pod.settled or pod.member:
            if pod.member and is_of_group(pod.member.pod):
                # Until it is followed to its LeaderWorkerSet, each owner declares only a part.
                return {}
            key = owners.own_key(pod)
            if (part := parts.get(key)) is None:
                part = parts[key] = _Part(key, owners.top(pod.controller))
            part.pods.append(pod)
    return parts


def _measure(parts: Collection[_Part], owners: Owners) -> None:
    """Find out how many members each part may have, and how many its gang needs."""
    groups = (owners.groups.get(part.key) for part in parts)
    of_others = max((size for size in groups if size is not None), default=None)
    for part in parts:
        part.size = _size(part, owners, of_others)
        part.is_of_pod_group = bool(part.size) and not any(pod.stated for pod in part.pods)
        part.total = owners.totals.get(part.key.owner) or None
        placed = owners.placed.get(part.key)
        is_alone = part.key not in owners.joint
        part.was_whole = bool(
            placed and placed >= (part.size or 0) and is_alone and part.is_running
        )
        part.is_read = part.is_whole or _is_read(part, owners)


def _size(part: _Part, owners: Owners, of_others: int | None) -> int | None:
    """Return the stated size of a part's gang; 0: none is stated; None: it is not read yet."""
    if stated := max(pod.stated or 0 for pod in part.pods):
        return stated
    if (group := owners.groups.get(part.key, of_others)) is not None:
        return group
    waiting = next((pod.member.pod for pod in part.pods if pod.member), None)
    names_group = waiting is not None and group_paths(waiting, part.key.namespace)
    return None if names_group and owners.is_read_on_demand and not part.is_running else 0


def _is_read(part: _Part, owners: Owners) -> bool:
    owner = part.top
    if not owners.is_read_on_demand or owner is None or owner.uid in owners.totals:
        return True
    return path_of(owner, part.key.namespace) is None


def _known(
    parts: Iterable[GangKey], owners: Owners, recorded: Iterable[Joint]
) -> dict[GangKey, Joint]:
    """Return the gangs of several owners that some of these parts were before, by their keys."""
    before = (owners.joint.get(key) for key in parts)
    known: dict[GangKey, Joint] = {}
    for joint in dict.fromkeys((*recorded, *filter(None, before))):
        keys = known[joint.key].parts if joint.key in known else ()
        known[joint.key] = joint._replace(parts=tuple(dict.fromkeys((*keys, *joint.parts))))
    return known


def _kept(
    live: Mapping[GangKey, _Part], known: Mapping[GangKey, Joint]
) -> tuple[list[_Gang], dict[GangKey, Joint]]:
    """Return the gangs of before that go on, and by their parts those that have ended."""
    gangs: list[_Gang] = []
    ended: dict[GangKey, Joint] = {}
    taken: set[GangKey] = set()
    for key, joint in known.items():
        present = [live[each] for each in joint.parts if each in live and each not in taken]
        if not present:
            ended.update(dict.fromkeys(joint.parts, joint))
        elif key not in live or any(part.is_running for part in present):
            gangs.append(_Gang(present, joint))
            taken.update(part.key for part in present)
    return gangs, {key: joint for key, joint in ended.items() if key not in live}


def _join(short: Iterable[_Part], gangs: list[_Gang]) -> None:
    """Let parts that are no gang by themselves join one that lacks members, or each other.

    One that is left over waits for its own members: it neither joins nor delays a whole gang. A
    PodGroup that has its members has it as one more.
    """
    newest = gangs[-1] if gangs else None
    lacking = [gang for gang in gangs if not gang.is_whole]
    for part in short:
        place = next((i for i, gang in enumerate(lacking[:_OPEN_MAX]) if gang.takes(part)), None)
        if place is not None:
            lacking[place].add(part)
            if lacking[place].is_whole:
                del lacking[place]
        elif part.is_of_pod_group and newest and newest.takes(part):
            newest.add(part)
        else:
            gangs.append(_Gang([part]))
            lacking.append(gangs[-1])


def _joint(gang: _Gang, owners: Owners, first: Iterable[GangKey]) -> Joint:
    known = gang.before.parts if gang.before else ()
    keys = dict.fromkeys((*known, *(part.key for part in gang.parts)))
    is_certain = all(part.is_read for part in gang.parts)
    if gang.before:
        return Joint(gang.before.key, tuple(keys), is_certain)
    before = (owners.joint.get(part.key) for part in gang.parts)
    candidates = chain((joint.key for joint in before if joint), first)
    key = next((key for key in candidates if key in keys), None)
    oldest = min(gang.parts, key=lambda part: part.age)
    return Joint(key or oldest.key, tuple(keys), is_certain)
