"""Everything that waits, put together as pods come and go, and why it was refused."""

from collections.abc import Collection, Iterator, Set
from typing import TypeAlias

from cluster.gang import GangKey
from cluster.pod import Owner
from scorer.cache.cluster_state import ClusterState, Key
from scorer.gang.unit import Owners, Unit, units_of
from scorer.metrics import Stage
from scorer.placement.result import Refusal
from scorer.queue.fault_isolation import FaultIsolation

Nodes: TypeAlias = frozenset[str] | None
Closed: TypeAlias = tuple[Nodes, frozenset[str]]
"""The nodes that one unit avoids, and those that are reserved for another."""

_NEVER = -1
"""Before anything came free."""


class PendingUnits:
    """What waits of a state's pods."""

    def __init__(self, state: ClusterState, owners: Owners, faults: FaultIsolation) -> None:
        """Say whose pods, who owns them, and what contains faults of ours."""
        self._state, self._owners, self._faults = state, owners, faults
        self._failed: set[Key] = set()
        """Groups that could not be put together: nothing of them waits until that goes well."""
        self._units: dict[Key, list[Unit]] = {}
        self._refusals: dict[GangKey, tuple[Unit, int, Closed, Refusal]] = {}
        """With when it was, by what had become free then, and the nodes that were closed."""
        self._known: dict[Key, frozenset[GangKey]] = {}
        """By group, who of it has waited, while pods of theirs are there."""

    def regroup(
        self, dirty_groups: Set[Key], dirty_owners: Set[str] = frozenset()
    ) -> frozenset[GangKey]:
        """Assemble changed groups again; return the keys of which no pod is left.

        Args:
            dirty_groups: Groups of which a pod changed.
            dirty_owners: Uids of owners that changed.
        """
        gone: frozenset[GangKey] = frozenset()
        owned = {at for at in self._units if self._is_of(at, dirty_owners)} if dirty_owners else ()
        for at in self._failed.union(dirty_groups, owned):
            self._failed.add(at)
            if self._faults.is_resting(Stage.GROUP, at):
                continue
            with self._faults.contained(Stage.GROUP, at):
                gone |= self._regroup(at)
                self._failed.discard(at)
        return gone

    def _regroup(self, at: Key) -> frozenset[GangKey]:
        """Put one group together again; return of whom no pod is there any more."""
        before = self._units.pop(at, [])
        units = units_of(self._state.group(at), self._owners, before)
        for past in {unit.key for unit in before} - {unit.key for unit in units}:
            self._refusals.pop(past, None)
        if units:
            self._units[at] = units
        known, there = self._known.pop(at, frozenset()), self._there(at)
        if still := there & (known | {unit.key for unit in units}):
            self._known[at] = still
        return known - there

    def _there(self, at: Key) -> frozenset[GangKey]:
        """Return whose pods a group has, whether any of them waits or not."""
        return frozenset(map(self._owners.key, self._state.group(at)))

    def __iter__(self) -> Iterator[Unit]:
        for units in self._units.values():
            yield from units

    def refuse(self, unit: Unit, refusal: Refusal, closed: Closed) -> None:
        """Note why a unit waits, on the cluster as it is now."""
        freed = self._state.capacity_version if refusal.stands else _NEVER
        self._refusals[unit.key] = unit, freed, closed, refusal

    def learn(self, unit: Unit, refusal: Refusal) -> None:
        """Note more of a refusal that holds still: on the cluster as it was then."""
        _, freed, closed, _ = self._refusals[unit.key]
        self._refusals[unit.key] = unit, freed, closed, refusal

    def accept(self, unit: Unit) -> None:
        """Note that a unit was planned."""
        self._refusals.pop(unit.key, None)

    def standing(self, unit: Unit, since: int, closed: Closed) -> Refusal | None:
        """Return a refusal that holds still: it is the same unit, and nothing has come free.

        Args:
            unit: What waits.
            since: What had become free by then does not count.
            closed: Nodes that are closed to it now.
        """
        before = self._refusals.get(unit.key)
        if not before or before[0] is not unit or before[1] < since:
            return None
        # A refusal holds still where only more nodes are reserved than none.
        (avoided, reserved), now = before[2], closed
        holds = avoided == now[0] and (not reserved or reserved == now[1])
        return before[3] if holds else None

    def reason(self, unit: Unit) -> str:
        """Return why a unit waits."""
        before = self._refusals.get(unit.key)
        return before[3].reason if before else "its turn comes"

    def _is_of(self, at: Key, uids: Collection[str]) -> bool:
        owners = (pod.controller for pod in self._state.group(at) if pod.controller)
        return any(one.uid in uids or self._top(one).uid in uids for one in owners)

    def _top(self, owner: Owner) -> Owner:
        return self._owners.top(owner) or owner
