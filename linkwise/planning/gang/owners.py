"""The known facts about objects that own pods, and the gangs that follow from them. Pure."""

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

from linkwise.cluster.gang import GangKey
from linkwise.cluster.objects.metadata import Owner
from linkwise.planning.gang.pod_info import PodInfo
from linkwise.workloads.members import ExpectedPods

_LEVELS_MAX = 8
"""Owners above each other that are followed; no controllers make more."""


class Joint(NamedTuple):
    """A gang of the pods of several owners that share its mark."""

    key: GangKey
    """That of one of its parts."""
    parts: tuple[GangKey, ...]
    """The keys that the pods of each owner would have alone, in the order of age."""
    is_certain: bool = True
    """What its owners make is known, as far as it can be."""


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
    """By gang: how many members its PodGroup requires; 0: there is none. An earlier job of the same
    name may have had another PodGroup."""
    totals: Mapping[str, int] = field(default_factory=dict)
    """By uid of a top owner: how many pods it has declared at most, also without GPUs; 0: it was
    read in vain."""
    joint: Mapping[GangKey, Joint] = field(default_factory=dict)
    """By the key that the pods of one owner would have alone: the gang of several owners."""
    placed: Mapping[GangKey, int] = field(default_factory=dict)
    """By gang: how many members it needed when it was planned as a whole."""
    is_read_on_demand: bool = False
    """Owners and PodGroups that are not known yet are being read."""

    def top(self, owner: Owner | None) -> Owner | None:
        """Return the top owner; the given one where nothing above it is known."""
        # Users can write owners that form a circle, or a chain of any length.
        for _ in range(_LEVELS_MAX):
            higher = self.controllers.get(owner.uid) if owner else None
            if higher is None:
                break
            owner = higher
        return owner

    def size(
        self,
        key: GangKey,
        pods: Collection[PodInfo],
        known: int | None,
        beside: Iterable[PodInfo] = (),
    ) -> int | None:
        """Return how many members a gang needs now; None where it is unknown.

        Args:
            key: Of the gang.
            pods: Its pods.
            known: How many it was last known to need.
            beside: Pods of its owner that are placed by themselves.
        """
        size = self._size(key, pods, known)
        is_by_owner = any(pod.is_by_owner for pod in pods)
        if not (size and is_by_owner):
            return size
        return self.without_kin(key, size, sum(self.kin_key(pod) == key for pod in beside))

    def without_kin(self, key: GangKey, size: int, kin: int) -> int:
        """Return how many members a gang by its owner needs.

        One of which the owner makes pods only when others are ready starts with any of them.

        Args:
            key: Of the gang.
            size: The number of pods that its owner needs.
            kin: How many of these are placed by themselves.
        """
        expected = self.expected_of(key)
        if expected and expected.ordered:
            return 1
        return max(size - kin, 1)

    def _size(self, key: GangKey, pods: Iterable[PodInfo], known: int | None) -> int | None:
        declared, total = self.declared_of(key), self.total_of(key)
        if declared is None:
            return known
        is_stated = bool(self.groups.get(key)) or any(pod.stated for pod in pods)
        if known is None or not is_stated:
            return self.sufficient_of(key)
        # A larger size counts pods of other owners.
        return known if total is not None and total < known else min(known, declared)

    def key(self, pod: PodInfo) -> GangKey:
        """Return the key of a member's gang; of a pod on its own its name and uid."""
        key = self.own_key(pod)
        joint = self.joint.get(key) if self.joint else None
        return joint.key if joint else key

    def own_key(self, pod: PodInfo) -> GangKey:
        """Return the key of the gang that the pods of a pod's owner would be alone."""
        if pod.gang is None:
            return GangKey(*pod.key, pod.uid)
        owner = self.top(pod.controller)
        return GangKey(pod.namespace, pod.gang, owner.uid if owner else "")

    def kin_key(self, pod: PodInfo) -> GangKey:
        """Return the key of the gang of a pod's owner, of which it is no member."""
        owner = self.top(pod.controller)
        return GangKey(pod.namespace, pod.kin or "", owner.uid if owner else "")

    def parts(self, key: GangKey) -> tuple[GangKey, ...]:
        """Return the keys of a gang's parts, one for each owner; its own where it has one."""
        joint = self.joint.get(key) if self.joint else None
        return joint.parts if joint else (key,)

    def declared_of(self, key: GangKey) -> int | None:
        """Return how many pods with GPUs the owners of a gang declare; None: it is unknown."""
        counts = [self.declared.get(part.owner) for part in self.parts(key)]
        return None if None in counts else sum(count or 0 for count in counts)

    def sufficient_of(self, key: GangKey) -> int | None:
        """Return how many of these suffice to start; None: it is unknown."""
        expected, declared = self.expected_of(key), self.declared_of(key)
        fewest = expected.starts_with if expected else None
        return declared if fewest is None or declared is None else min(fewest, declared)

    def total_of(self, key: GangKey) -> int | None:
        """Return how many pods the owners of a gang declare at most; None: it is unknown."""
        parts = self.parts(key)
        counts = [self.totals.get(part.owner) or None for part in parts]
        total = None if None in counts else sum(count or 0 for count in counts)
        # An owner that was scaled down has made all members of its gang before.
        return max(total, self.placed.get(key, 0)) if total and len(parts) == 1 else total

    def expected_of(self, key: GangKey) -> ExpectedPods | None:
        """Return the pods that the only owner of a gang makes; None: they are unknown."""
        return self.expected.get(key.owner) if len(self.parts(key)) == 1 else None
