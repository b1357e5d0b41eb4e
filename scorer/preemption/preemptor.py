"""Preemption: whole units of lower priority are evicted for a unit that fits nowhere.

1. A unit is refused. A set of units is searched whose eviction gives it a plan.
2. The GPUs of this plan are reserved, and the unit is nominated for them.
3. The units of the set are evicted (`nominations`).
4. The unit is planned like any other once its GPUs are free, or the reservation ends and the unit
   backs off. If the API server lets a unit not be evicted, another set is searched at once.
"""

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace

import structlog

from linkwise.cluster.gang import GangKey
from linkwise.cluster.scorer_lease import ScorerLease
from linkwise.planning.gang.placed_units import PlacedUnit
from linkwise.planning.gang.pod_info import PodInfo
from linkwise.planning.gang.unit import Unit
from linkwise.planning.gang.victim_choice import (
    Promise,
    RunningUnits,
    choose_victims,
    may_preempt,
    places_held,
)
from linkwise.planning.placement.options import PlanOptions
from linkwise.planning.placement.preemption.search import Eviction
from linkwise.planning.placement.preemption.victim import Disruptions
from linkwise.planning.placement.state.node_cache import DeadlineExceeded
from linkwise.planning.placement.state.snapshot import Snapshot
from linkwise.planning.state.reserved_gpus import Purpose
from scorer.commit.binding.vain_preemptions import VainPreemptions
from scorer.commit.handle import Handle
from scorer.commit.removal.removals import Call, Removals
from scorer.metrics import PreemptionOutcome
from scorer.preemption.nomination import (
    Failure,
    new_nomination,
    places_of,
    restored,
    restored_places,
)
from scorer.preemption.nominations import Nominations
from scorer.preemption.record import Record, records_of
from scorer.preemption.search_delays import SearchDelays
from scorer.preemption.units import ending_soon, placed_in
from scorer.preemption.victim_owners import VictimOwners
from scorer.queue.gang_size import GangSizeResolver

_log = structlog.get_logger()


class Preemptor:
    """The preemptions of one term of the Lease."""

    def __init__(
        self,
        handle: Handle,
        sizes: GangSizeResolver,
        removals: Removals,
        is_moving: Callable[[GangKey], bool],
        vain: VainPreemptions,
    ) -> None:
        """Start without preemptions.

        Args:
            handle: The dependencies.
            sizes: Reads how many pods an elastic gang can do without.
            removals: Evicts units. One that is being evicted is no victim.
            is_moving: Returns whether a gang is being moved off a fault. It is not evicted twice.
            vain: The nodes on which nobody is evicted for a unit again.
        """
        self._vain = vain
        self._removals, self._is_moving = removals, is_moving
        self._informers, self._clock = handle.informers, handle.clock
        self._state, self._metrics = handle.informers.state, handle.metrics
        self._delays = SearchDelays(handle.informers.changed.set)
        self._owners = VictimOwners(handle.informers, sizes)
        self._nominations = Nominations(handle, removals, self._failed)
        self._last: tuple[Record, ...] = ()
        """The nominations of the last leader, until they are restored."""
        self._due = math.inf
        """When the next unit has waited long enough [s since 1970]."""
        self._units: list[PlacedUnit] | None = None
        self._has_searched = False

    def start_cycle(self) -> None:
        """Forget what was computed for the last scheduling cycle."""
        self._units, self._has_searched = None, False
        self._due = math.inf

    def preempts_for(self, key: GangKey) -> bool:
        """Return whether others are evicted for a unit."""
        return key in self._nominations

    def reason(self, key: GangKey) -> str | None:
        """Return what is done for a unit that waits, or why nothing is; None: nothing to say."""
        return self._nominations.reason(key) or self._delays.reason(key)

    def consider(
        self, unit: Unit, snapshot: Snapshot, options: PlanOptions, *, waited: float
    ) -> None:
        """Search victims for a unit that fits nowhere; at most one unit of a cycle has a search.

        Args:
            unit: The unit.
            snapshot: The cluster as the unit may use it.
            options: Of its plan.
            waited: For how long it could be planned [s].
        """
        policy = self._informers.policy.policy.gangs.preemption
        key = unit.key
        if policy.mode == "never" or key in self._nominations or key in self._delays:
            return
        if self._owners.is_reading(key) or not self._may_preempt(unit):
            return
        if (left := policy.after_seconds - waited) > 0:
            self._due = min(self._due, self._clock() + left)
            return
        if self._has_searched:
            self._informers.changed.set()
            return
        self._has_searched = True
        vain = self._vain.nodes(unit)
        try:
            why = self._search(unit, snapshot.without(vain), options)
        except DeadlineExceeded:
            why = "it takes too long to find units of lower priority to evict"
        if why is not None:
            self._delays.start(key, f"{why}; {_vain_text(vain)}" if vain else why)

    def _may_preempt(self, unit: Unit) -> bool:
        """Return whether anything has a lower priority, as far as a look at all pods tells."""
        policy = self._informers.policy.policy.gangs.preemption
        lowest = self._state.usages.lowest_priority(others=policy.others == "lowerPriority")
        return lowest is not None and lowest < unit.priority and may_preempt(unit)

    def _search(self, unit: Unit, snapshot: Snapshot, options: PlanOptions) -> str | None:
        """Nominate a unit for the GPUs of others; return why not, or None."""
        now = self._clock()
        others = [
            each
            for each in self._placed(now)
            if each.key != unit.key and not self._is_moving(each.key)
            if each.key not in self._removals
        ]
        running = replace(self.under_way(now), units=[each.victim for each in others])
        found = choose_victims(unit, snapshot, running, options)
        if not isinstance(found, Eviction):
            name, detail = "/".join(unit.key[:2]), found.detail or found.reason
            _log.info("Nothing to preempt", unit=name, reason=detail)
            return found.reason
        victims = _units_of(found, others)
        if self._owners.read(unit.key, victims):
            return None
        return self._nominate(unit, victims, found)

    def under_way(self, now: float) -> RunningUnits:
        """Return the evictions under way, and what budgets allow; no units to evict.

        Args:
            now: [s since 1970]
        """
        state, nominated = self._state, self._nominations.all
        evicting = (
            pod for each in nominated for unit in each.victims for pod in self._removals.left(unit)
        )
        places_of = state.reserved.of
        return RunningUnits(
            (),
            Disruptions(now, self._informers.budgets.allowed),
            [*ending_soon(self._informers, now), *places_held(evicting, state.ledger)],
            [
                Promise(each.key, each.priority, places_of(each.key, Purpose.NOMINATION))
                for each in nominated
            ]
            + [Promise(*each) for each in state.reserved.by_scheduler],
        )

    def _placed(self, now: float) -> list[PlacedUnit]:
        if self._units is None:
            self._units = placed_in(self._informers, now, self._removals.protection)
        return self._units

    def _nominate(self, unit: Unit, victims: list[PlacedUnit], found: Eviction) -> str | None:
        """Nominate a unit for the GPUs of some others; return why not, or None."""
        pods = _pods_of(found, victims)
        longest = self._informers.policy.policy.gangs.preemption.max_wait_seconds
        nominated = new_nomination(unit, pods, found.plan, self._clock(), longest)
        if not self._nominations.has_room_for(nominated):
            return "more pods would have to be evicted at once than can be recorded"
        self._nominations.begin(unit, nominated, places_of(found.plan), pods)
        self._metrics.preempted(PreemptionOutcome.STARTED)
        names = [victim.name for victim in found.victims]
        _log.warning("Preempting", unit="/".join(unit.key[:2]), victims=names[:10], of=len(names))
        return None

    def load(self, lease: ScorerLease) -> None:
        """Take the preemptions of the last leader."""
        self._last = records_of(lease)

    def restore(self, units: Iterable[Unit]) -> None:
        """Carry on the preemptions of the last leader.

        Args:
            units: All units that wait.

        Cost: linear in all pods, if there are any.
        """
        last, self._last = self._last, ()
        if not last:
            return
        waiting = {unit.key: unit for unit in units}
        pods = {pod.uid: pod for pod in self._state.pods}
        for record in last:
            victims, begun = self._left_of(record, pods)
            if unit := waiting.get(record.unit):
                places = restored_places(record, unit, self._state)
                nomination = restored(record, unit, victims, self._clock())
                self._nominations.begin(unit, nomination, places, victims, begun)
            else:
                self._nominations.finish({key: victims[key] for key in begun})

    def _left_of(
        self, record: Record, pods: Mapping[str, PodInfo]
    ) -> tuple[dict[GangKey, list[PodInfo]], frozenset[GangKey]]:
        """Return the victims that are left of a record, and those of which a part was evicted."""
        victims: dict[GangKey, list[PodInfo]] = {}
        begun = set()
        for uids in record.victims:
            left = [pod for uid in uids if (pod := pods.get(uid)) and pod.settled and pod.usage]
            if left:
                key = self._informers.owners.key(left[0])
                victims[key] = left
                if len(left) < len(uids):
                    begun.add(key)
        return victims, frozenset(begun)

    def placed(self, key: GangKey) -> None:
        """End the preemption for a unit that is placed."""
        if nodes := self._nominations.end(key):
            self._metrics.preempted(PreemptionOutcome.PLACED)
            self._vain.placed(key, nodes)
        self._forget(key)

    def forget(self, key: GangKey) -> None:
        """End the preemption for a unit that has no pods left."""
        self._nominations.end(key)
        self._forget(key)

    def _forget(self, key: GangKey) -> None:
        self._delays.reset(key)
        self._owners.forget(key)

    def reconcile(self) -> list[Call]:
        """End preemptions that took too long; return the calls that are due."""
        return self._nominations.reconcile()

    def time_left(self) -> float | None:
        """Return the time until a reservation ends or a search is due [s]; None: neither is."""
        due = min(self._nominations.due, self._due)
        return None if due == math.inf else max(0.0, due - self._clock())

    def _failed(self, key: GangKey, reason: str, failure: Failure) -> None:
        """Search other victims for a unit whose nomination has ended in vain, at once or later."""
        self._delays.failed(key, reason, failure)
        self._metrics.preempted(PreemptionOutcome.FAILED)
        _log.warning("Preemption failed", unit="/".join(key[:2]), err=reason)


def _vain_text(nodes: frozenset[str]) -> str:
    """Return on which nodes nobody is evicted for a unit, for users."""
    first, more = min(nodes), f" and {len(nodes) - 1} more" if len(nodes) > 1 else ""
    where = f"nobody is evicted for it on {first}{more} before that changes"
    return f"{where}: after the last time it was not bound there"


def _units_of(found: Eviction, units: Iterable[PlacedUnit]) -> list[PlacedUnit]:
    """Return the units of which pods are evicted."""
    chosen = {id(victim.whole or victim) for victim in found.victims}
    return [unit for unit in units if id(unit.victim) in chosen]


def _pods_of(found: Eviction, units: Iterable[PlacedUnit]) -> dict[GangKey, Sequence[PodInfo]]:
    """Return the pods to evict, by their unit; of an elastic gang some may stay."""
    uids = {pod.holding.uid for victim in found.victims for pod in victim.pods}
    return {unit.key: [pod for pod in unit.pods if pod.uid in uids] for unit in units}
