"""Preemption: whole units of lower priority are evicted for a unit that fits nowhere.

1. A unit is refused. A set of units is searched whose eviction gives it a plan.
2. The GPUs of this plan are reserved, and the unit is nominated for them.
3. The units of the set are evicted (`evictions`).
4. The unit is planned like any other once its GPUs are free, or the reservation ends and the unit
   backs off.
"""

import math
from collections.abc import Callable, Iterable
from dataclasses import replace

import structlog

from cluster.gang import GangKey
from cluster.objects.pod import Owner
from runtime.process.backoff import Backoff
from scorer.cache.reserved_gpus import Purpose
from scorer.commit.handle import Handle
from scorer.gang.placed_units import PlacedUnit
from scorer.gang.pod_info import PodInfo
from scorer.gang.unit import Unit
from scorer.gang.victim_choice import (
    Promise,
    RunningUnits,
    choose_victims,
    may_preempt,
    places_held,
)
from scorer.metrics import PreemptionOutcome
from scorer.placement.options import PlanOptions
from scorer.placement.preemption.search import Eviction
from scorer.placement.preemption.victim import Disruptions
from scorer.placement.state.node_cache import DeadlineExceeded
from scorer.placement.state.snapshot import Snapshot
from scorer.preemption.evictions import Call, Evictions
from scorer.preemption.nomination import (
    new_nomination,
    places_of,
    restored,
    restored_places,
)
from scorer.preemption.record import Record, read_records
from scorer.preemption.units import (
    ending_soon,
    placed_in,
)
from scorer.queue.gang_size import GangSizeResolver
from workloads.registry import kind_of

_SEARCH_AGAIN, _SEARCH_AGAIN_MAX = 5.0, 60.0
"""Delay of a unit for which no victims were found, or whose preemption failed [s]."""

_READ = 2.0
"""The longest wait for owners that are read [s]."""
_READ_AGAIN = 1.0
"""Delay before the preemptions of the last leader are read again [s]."""

_log = structlog.get_logger()


class Preemptor:
    """The preemptions of one term of the Lease."""

    def __init__(
        self, handle: Handle, sizes: GangSizeResolver, is_moving: Callable[[GangKey], bool]
    ) -> None:
        """Start without preemptions.

        Args:
            handle: The dependencies.
            sizes: Reads how many pods an elastic gang can do without.
            is_moving: Returns whether a gang is being moved off a fault. It is not evicted twice.
        """
        self._sizes, self._is_moving = sizes, is_moving
        self._kube, self._informers, self._clock = handle.kube, handle.informers, handle.clock
        self._state, self._metrics = handle.informers.state, handle.metrics
        self._backoff = Backoff(_SEARCH_AGAIN, _SEARCH_AGAIN_MAX, handle.informers.changed.set)
        """Units for which nothing is searched for now."""
        self._reading = Backoff(_READ, _READ, handle.informers.changed.set)
        """Units that wait until owners of their victims are read."""
        self._read: dict[GangKey, set[str]] = {}
        """By unit that preempts: the uids of these owners. None is waited for twice."""
        self._evictions = Evictions(handle, self._failed)
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
        return key in self._evictions

    @property
    def evicting(self) -> frozenset[GangKey]:
        """The gangs, and single pods, that are being evicted."""
        return self._evictions.gangs

    def reason(self, key: GangKey) -> str | None:
        """Return what is done for a unit that waits, or why nothing is; None: nothing to say."""
        return self._evictions.reason(key) or self._backoff.reason(key) or None

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
        if policy.mode == "never" or key in self._evictions or key in self._backoff:
            return
        if key in self._reading and self._read[key] - self._informers.owners.expected.keys():
            return
        if not self._may_preempt(unit):
            return
        if (left := policy.after_seconds - waited) > 0:
            self._due = min(self._due, self._clock() + left)
            return
        if self._has_searched:
            self._informers.changed.set()
            return
        self._has_searched = True
        try:
            why = self._search(unit, snapshot, options)
        except DeadlineExceeded:
            why = "it takes too long to find units of lower priority to evict"
        if why is not None:
            self._backoff.start(key, why)

    def _may_preempt(self, unit: Unit) -> bool:
        """Return whether anything has a lower priority, as far as a look at all pods tells."""
        policy = self._informers.policy.policy.gangs.preemption
        lowest = self._state.lowest_priority(others=policy.others == "lowerPriority")
        return lowest is not None and lowest < unit.priority and may_preempt(unit)

    def _search(self, unit: Unit, snapshot: Snapshot, options: PlanOptions) -> str | None:
        """Nominate a unit for the GPUs of others; return why not, or None."""
        now = self._clock()
        evicting = self._evictions.victims
        others = [
            each
            for each in self._placed(now)
            if each.key != unit.key and not self._is_moving(each.key)
            if not any(pod.uid in evicting for pod in each.pods)
        ]
        running = replace(self.under_way(now), units=[each.victim for each in others])
        found = choose_victims(unit, snapshot, running, options)
        if not isinstance(found, Eviction):
            name, detail = "/".join(unit.key[:2]), found.detail or found.reason
            _log.info("Nothing to preempt", unit=name, reason=detail)
            return found.reason
        victims = _units_of(found, others)
        if self._reads_owners(unit, victims):
            return None
        return self._nominate(unit, victims, found)

    def under_way(self, now: float) -> RunningUnits:
        """Return the evictions under way, and what budgets allow; no units to evict.

        Args:
            now: [s since 1970]
        """
        state, nominated = self._state, self._evictions.nominations
        evicting = (pod for each in nominated for pod in each.remaining(state))
        places_of = state.reserved.of
        return RunningUnits(
            (),
            Disruptions(now, self._informers.budgets.allowed),
            [*ending_soon(state, now), *places_held(evicting, state.ledger)],
            [
                Promise(each.key, each.priority, places_of(each.key, Purpose.NOMINATION))
                for each in nominated
            ]
            + [Promise(*each) for each in state.reserved.by_scheduler],
        )

    def _placed(self, now: float) -> list[PlacedUnit]:
        if self._units is None:
            self._units = placed_in(self._informers, now)
        return self._units

    def _reads_owners(self, unit: Unit, victims: Iterable[PlacedUnit]) -> bool:
        """Read owners of victims that may be elastic; return whether one was not read before."""
        read = self._read.setdefault(unit.key, set())
        owners = self._informers.owners
        unread = [
            (owner, victim.key.namespace)
            for victim in victims
            if (owner := owners.top(victim.pods[0].controller)) and _may_shrink(owner)
            if owner.uid not in owners.expected and owner.uid not in read
        ]
        for owner, namespace in unread:
            read.add(owner.uid)
            self._sizes.resolve_owner(owner, namespace)
        if unread:
            self._reading.start(unit.key)
        return bool(unread)

    def _nominate(self, unit: Unit, victims: list[PlacedUnit], found: Eviction) -> str | None:
        """Nominate a unit for the GPUs of some others; return why not, or None."""
        nominated = new_nomination(unit, _pods_of(found, victims), found.plan, self._clock())
        if not self._evictions.has_room_for(nominated):
            return "more pods would have to be evicted at once than can be recorded"
        self._evictions.begin(unit, nominated, places_of(found.plan))
        self._metrics.preempted(PreemptionOutcome.STARTED)
        names = [victim.name for victim in found.victims]
        _log.warning("Preempting", unit="/".join(unit.key[:2]), victims=names[:10], of=len(names))
        return None

    async def load(self) -> None:
        """Read the preemptions of the last leader, however long that takes."""
        self._last = await read_records(self._kube, _READ_AGAIN)

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
        keys = {pod.uid: pod.key for pod in self._state.pods}
        for record in last:
            unit = waiting.get(record.unit)
            places = restored_places(record, unit, self._state) if unit else ()
            self._evictions.carry_on(restored(record, unit, keys), places)

    def placed(self, key: GangKey) -> None:
        """End the preemption for a unit that is placed."""
        if self._evictions.end(key):
            self._metrics.preempted(PreemptionOutcome.PLACED)
        self._forget(key)

    def forget(self, key: GangKey) -> None:
        """End the preemption for a unit that has no pods left."""
        self._evictions.end(key)
        self._forget(key)

    def _forget(self, key: GangKey) -> None:
        self._backoff.reset(key)
        self._reading.reset(key)
        self._read.pop(key, None)

    def reconcile(self) -> list[Call]:
        """End preemptions that took too long; return the calls that are due."""
        return self._evictions.reconcile()

    def time_left(self) -> float | None:
        """Return the time until a reservation ends or a search is due [s]; None: neither is."""
        due = min(self._evictions.due, self._due)
        return None if due == math.inf else max(0.0, due - self._clock())

    def _failed(self, key: GangKey, reason: str) -> None:
        """Let a unit back off for which units were evicted in vain."""
        self._backoff.start(key, reason, at_maximum=True)
        self._metrics.preempted(PreemptionOutcome.FAILED)
        _log.warning("Preemption failed", unit="/".join(key[:2]), err=reason)


def _may_shrink(owner: Owner) -> bool:
    """Return whether an owner is of a kind that may be elastic."""
    kind = kind_of(owner.api_version, owner.kind)
    return kind is not None and kind.may_shrink


def _units_of(found: Eviction, units: Iterable[PlacedUnit]) -> list[PlacedUnit]:
    """Return the units of which pods are evicted."""
    chosen = {id(victim.whole or victim) for victim in found.victims}
    return [unit for unit in units if id(unit.victim) in chosen]


def _pods_of(found: Eviction, units: Iterable[PlacedUnit]) -> list[list[PodInfo]]:
    """Return the pods to evict of each of these units; of an elastic gang some may stay."""
    uids = {pod.holding.uid for victim in found.victims for pod in victim.pods}
    return [[pod for pod in unit.pods if pod.uid in uids] for unit in units]
