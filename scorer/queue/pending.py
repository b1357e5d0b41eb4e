"""The units that wait for GPUs, assembled as pods change, with their cached refusals."""

from collections.abc import Callable, Collection, Iterator, Set
from dataclasses import dataclass
from itertools import chain
from typing import NamedTuple

from linkwise.cluster.gang import GangKey
from linkwise.cluster.objects.metadata import Owner
from linkwise.planning.gang.owners import Owners
from linkwise.planning.gang.pod_info import PodInfo
from linkwise.planning.gang.unit import Unit, units_of
from linkwise.planning.placement.result import Refusal
from linkwise.planning.state.cluster_state import ClusterState
from linkwise.runtime.kube.objects import Key
from scorer.metrics import Stage, WaitReason
from scorer.queue.fault_isolation import FaultIsolation


class ClosedNodes(NamedTuple):
    """The nodes on which a unit is not planned now."""

    excluded: frozenset[str] = frozenset()
    """Those where pods of the unit were not bound."""
    reserved: frozenset[str] = frozenset()
    """Those that are reserved for another unit."""


@dataclass(frozen=True, slots=True)
class _CachedRefusal:
    unit: Unit
    closed: ClosedNodes
    refusal: Refusal

    def holds(self, unit: Unit, closed: ClosedNodes) -> bool:
        """Return whether planning the unit again gives the same, while no capacity is freed."""
        if self.unit is not unit or not self.refusal.is_cacheable:
            return False
        if self.closed.excluded != closed.excluded:
            return False
        # If no node was reserved, reserved nodes only remove options.
        return not self.closed.reserved or self.closed.reserved == closed.reserved


class PendingUnits:
    """The units that wait, by group."""

    def __init__(
        self,
        state: ClusterState,
        owners: Owners,
        faults: FaultIsolation,
        regroup: Callable[[Key], None] = lambda _: None,
    ) -> None:
        """Start without units.

        Args:
            state: Has the pods.
            owners: The owners of the pods.
            faults: Isolates the assembly of each group.
            regroup: Decides which owners have one gang, before a group is assembled.
        """
        self._state, self._owners, self._faults, self._regroup = state, owners, faults, regroup
        self._dirty: set[Key] = set()
        """Groups to assemble; one whose assembly raised has no units until it succeeds."""
        self._units: dict[Key, list[Unit]] = {}
        self._refusals: dict[GangKey, _CachedRefusal] = {}
        self._by_key: dict[GangKey, Unit] = {}
        self._known: dict[Key, frozenset[GangKey]] = {}
        """By group: the units that have waited, while they have pods."""
        self._came: dict[GangKey, Unit] = {}
        self._left: set[GangKey] = set()
        self.partial: dict[GangKey, Unit] = {}
        """Gangs of which some members have their GPUs, or had them, and others wait."""
        self.incomplete: dict[GangKey, Unit] = {}
        """Gangs that lack members, or whose size is unknown."""

    def __iter__(self) -> Iterator[Unit]:
        return iter(self._by_key.values())

    def get(self, key: GangKey) -> Unit | None:
        """Return a unit; None: none of this key waits."""
        return self._by_key.get(key)

    def drain(self) -> tuple[Collection[Unit], Set[GangKey]]:
        """Return the units that came or changed since the last call, and the keys of those left."""
        drained = tuple(self._came.values()), frozenset(self._left)
        self._came, self._left = {}, set()
        return drained

    def assemble(
        self, dirty_groups: Set[Key], dirty_owners: Set[str] = frozenset()
    ) -> frozenset[GangKey]:
        """Assemble changed groups again; return the keys that have no pods left.

        Args:
            dirty_groups: Groups of which a pod changed.
            dirty_owners: Uids of owners that changed.
        """
        gone: set[GangKey] = set()
        owned = (name for name in self._units if self._has_owner(name, dirty_owners))
        self._dirty.update(dirty_groups, owned if dirty_owners else ())
        self._faults.work_off(
            Stage.ASSEMBLE, self._dirty, lambda name: gone.update(self._assemble(name))
        )
        return frozenset(gone)

    def _assemble(self, name: Key) -> frozenset[GangKey]:
        before = self._units.pop(name, [])
        self._regroup(name)
        groups = self._state.groups
        units = units_of(groups.with_followers(name), self._owners, groups.kin(name))
        for past in {unit.key for unit in before} - {unit.key for unit in units}:
            self._refusals.pop(past, None)
            self._index(past, None)
        for unit in units:
            self._index(unit.key, unit)
        if units:
            self._units[name] = units
        known = self._known.pop(name, frozenset())
        present = frozenset(chain.from_iterable(map(self._keys, self._state.groups.of(name))))
        parts = chain.from_iterable(self._owners.parts(unit.key) for unit in units)
        if kept := present & (known | {unit.key for unit in units} | {*parts}):
            self._known[name] = kept
        return known - present

    def _keys(self, pod: PodInfo) -> tuple[GangKey, GangKey]:
        """Return the key of a pod's gang, and that of the part which its owner has of it."""
        return self._owners.key(pod), self._owners.own_key(pod)

    def _index(self, key: GangKey, unit: Unit | None) -> None:
        """Take a unit that came or changed; None: it does not wait any more."""
        for units in (self._by_key, self._came, self.partial, self.incomplete):
            units.pop(key, None)
        self._left.add(key)
        if unit is None:
            return
        self._left.discard(key)
        self._by_key[key] = self._came[key] = unit
        if unit.is_gang and unit.settled:
            self.partial[key] = unit
        if unit.is_gang and unit.lacks_members:
            self.incomplete[key] = unit

    def refuse(self, unit: Unit, refusal: Refusal, closed: ClosedNodes) -> None:
        """Cache why a unit waits, for the cluster as it is now."""
        self._refusals[unit.key] = _CachedRefusal(unit, closed, refusal)

    def update(self, unit: Unit, refusal: Refusal) -> None:
        """Replace a cached refusal by a more detailed one for the same state of the cluster."""
        before = self._refusals[unit.key]
        self._refusals[unit.key] = _CachedRefusal(unit, before.closed, refusal)

    def accept(self, unit: Unit) -> None:
        """Drop the refusal of a unit that was planned."""
        self._refusals.pop(unit.key, None)

    def cached_refusal(self, unit: Unit, closed: ClosedNodes) -> Refusal | None:
        """Return a refusal that holds unless capacity is freed; None: the unit must be planned.

        Args:
            unit: The unit that waits.
            closed: The nodes that are closed to it now.
        """
        cached = self._refusals.get(unit.key)
        holds = cached is not None and cached.holds(unit, closed)
        return cached.refusal if cached and holds else None

    def lacks_capacity(self, unit: Unit) -> bool:
        """Return whether a unit was planned and does not fit, so that more nodes may help."""
        cached = self._refusals.get(unit.key)
        return unit.blocked is None and cached is not None and cached.refusal.is_cacheable

    def wait_reason(self, unit: Unit) -> WaitReason:
        """Return the kind of the reason why a unit waits."""
        if unit.blocked is not None:
            return WaitReason.INCOMPLETE
        if unit.key not in self._refusals:
            return WaitReason.QUEUED
        return WaitReason.CAPACITY if self.lacks_capacity(unit) else WaitReason.RETRY

    def reason(self, unit: Unit) -> str:
        """Return why a unit waits."""
        cached = self._refusals.get(unit.key)
        return cached.refusal.reason if cached else "queued"

    def _has_owner(self, name: Key, uids: Collection[str]) -> bool:
        owners = (pod.controller for pod in self._state.groups.of(name) if pod.controller)
        return any(owner.uid in uids or self._top(owner).uid in uids for owner in owners)

    def _top(self, owner: Owner) -> Owner:
        return self._owners.top(owner) or owner
