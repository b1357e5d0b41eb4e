"""Preemption: whole units of lower priority are evicted for a unit that fits nowhere.

1. A unit is refused. A set of units is searched whose eviction gives it a plan.
2. The GPUs of this plan are reserved, and the set is written into the unit's Gang.
3. All pods of the set are evicted. Those that the API server refuses are tried again.
4. The unit is planned like any other once its GPUs are free, or the reservation ends and the unit
   backs off.

No set is evicted that the disruption budgets do not allow as a whole: a part of a gang is of no
use. A set that was begun is carried on by the next leader.
"""

import math
from collections.abc import Coroutine, Iterable
from dataclasses import replace
from typing import Any

import structlog

from cluster.gang import GangKey
from runtime.kube.client import KubeError
from runtime.kube.event_recorder import Event, ObjectReference
from runtime.process.backoff import Backoff
from runtime.process.clock import rfc3339
from scorer.cache.reserved_gpus import Purpose
from scorer.commit.evict import evict
from scorer.commit.handle import Handle
from scorer.gang.crd import Nomination
from scorer.gang.placed_units import PlacedUnit, is_of_kueue
from scorer.gang.pod_info import PodInfo
from scorer.gang.unit import Unit
from scorer.metrics import EvictionReason, PreemptionOutcome, Stage
from scorer.placement.options import PlanOptions
from scorer.placement.preemption.search import Eviction, find_victims
from scorer.placement.preemption.victim import Disruptions
from scorer.placement.result import Plan
from scorer.placement.schedule import plan
from scorer.placement.state.node_cache import DeadlineExceeded
from scorer.placement.state.snapshot import Snapshot
from scorer.preemption import nomination
from scorer.preemption.nomination import (
    Nominated,
    new_nomination,
    places_of,
    record_of,
    restored,
    restored_places,
    with_places,
)
from scorer.preemption.units import (
    ending_soon,
    lowest_priority,
    placed_in,
    places_held,
)
from scorer.report.events import EventMessage, preempted, preempting

Call = Coroutine[Any, Any, object]

_SEARCH_AGAIN, _SEARCH_AGAIN_MAX = 5.0, 60.0
"""Delay of a unit for which no victims were found, or whose preemption failed [s]."""
_EVICT_AGAIN_MAX = 10.0
"""The longest delay before refused evictions are tried again [s]."""

_log = structlog.get_logger()


class Preemptor:
    """The preemptions of one term of the Lease."""

    def __init__(self, handle: Handle) -> None:
        """Start without preemptions."""
        self._kube, self._informers, self._clock = handle.kube, handle.informers, handle.clock
        self._state, self._metrics = handle.informers.state, handle.metrics
        self._status_reporter, self._faults = handle.status_reporter, handle.faults
        changed = handle.informers.changed.set
        self._backoff = Backoff(_SEARCH_AGAIN, _SEARCH_AGAIN_MAX, changed)
        """Units for which nothing is searched for now."""
        self._evict_again = Backoff(handle.timings.commit_retry, _EVICT_AGAIN_MAX, changed)
        """Units for which an eviction was refused."""
        self._nominated: dict[GangKey, Nominated] = {}
        self._records: dict[GangKey, Nomination] = {}
        """Nominations that are to be written."""
        self._busy: set[GangKey] = set()
        """Units for which a call is under way."""
        self._due = math.inf
        """When the next unit has waited long enough [s since 1970]."""
        self._lowest: int | None = None
        self._units: list[PlacedUnit] | None = None
        self._has_searched = False

    def start_cycle(self) -> None:
        """Forget what was computed for the last scheduling cycle."""
        self._lowest, self._units, self._has_searched = None, None, False
        self._due = math.inf

    def preempts_for(self, key: GangKey) -> bool:
        """Return whether others are evicted for a unit."""
        return key in self._nominated

    def reason(self, key: GangKey) -> str | None:
        """Return what is done for a unit that waits, or why nothing is; None: nothing to say."""
        nominated = self._nominated.get(key)
        if nominated is not None and not nominated.is_served:
            return nominated.summary(self._state)
        return self._backoff.reason(key) or None

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
        if policy.mode == "never" or key in self._nominated or key in self._backoff:
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
        pods = [member.pod for member in unit.members]
        if any(pod.spec.preemption_policy == "Never" for pod in pods):
            return False
        if any(is_of_kueue(pod.metadata.labels) for pod in pods):
            return False
        if self._lowest is None:
            self._lowest = lowest_priority(self._state)
        return self._lowest is not None and self._lowest < unit.priority

    def _search(self, unit: Unit, snapshot: Snapshot, options: PlanOptions) -> str | None:
        """Nominate a unit for the GPUs of others; return why not, or None."""
        now = self._clock()
        soon = self._once_evicted(unit, snapshot, now)
        if soon is not snapshot and isinstance(plan(soon, unit.members, options), Plan):
            return "it fits once pods that are ending have ended"
        evicting = {
            uid for each in self._nominated.values() for pods in each.victims for _, uid in pods
        }
        others = [
            each
            for each in self._placed(now)
            if each.key != unit.key and not any(pod.uid in evicting for pod in each.pods)
        ]
        disruptions = Disruptions(now, self._informers.budgets.allowed)
        victims = (each.victim for each in others)
        found = find_victims(soon, unit.members, victims, disruptions, options)
        if not isinstance(found, Eviction):
            _log.info("Nothing to preempt", unit="/".join(unit.key[:2]), reason=found.reason)
            return "no units of lower priority may be evicted so that it fits"
        if found.cost.violated_budgets:
            return "disruption budgets do not allow to evict units of lower priority for it"
        if found.cost.pods > nomination.PODS_MAX:
            return f"more than {nomination.PODS_MAX} pods would have to be evicted for it"
        chosen = set(map(id, found.victims))
        self._nominate(unit, [one for one in others if id(one.victim) in chosen], found.plan)
        return None

    def _once_evicted(self, unit: Unit, snapshot: Snapshot, now: float) -> Snapshot:
        """Return the cluster once pods that are ending or being evicted have ended.

        What they leave belongs to the units for which they are evicted.
        """
        others = [each for key, each in self._nominated.items() if key != unit.key]
        evicting = (pod for each in others for pod in each.remaining(self._state))
        leaving = [*ending_soon(self._state, now), *places_held(self._state, evicting)]
        soon = snapshot.without_holdings(leaving)
        for each in others:
            if each.unit.priority >= unit.priority:
                places = self._state.reserved.of(each.unit.key, Purpose.NOMINATION)
                soon = with_places(soon, places)
        return soon

    def _placed(self, now: float) -> list[PlacedUnit]:
        if self._units is None:
            min_run = self._informers.policy.policy.gangs.preemption.min_run_minutes * 60
            self._units = placed_in(self._informers, now, min_run)
        return self._units

    def _nominate(self, unit: Unit, victims: list[PlacedUnit], made: Plan) -> None:
        nominated = new_nomination(unit, victims, self._clock())
        self._nominated[unit.key] = nominated
        self._records[unit.key] = record_of(nominated, made, rfc3339(nominated.until))
        places = places_of(made)
        self._state.reserved.set(unit.key, unit.priority, places, Purpose.NOMINATION)
        self._metrics.preempted(PreemptionOutcome.STARTED)
        names = [each.victim.name for each in victims]
        _log.warning("Preempting", unit="/".join(unit.key[:2]), victims=names[:10], of=len(names))

    def restore(self, units: Iterable[Unit]) -> None:
        """Carry on the preemptions of the last leader."""
        now = self._clock()
        for unit in units:
            gang = self._informers.gang(unit.key) if unit.is_gang else None
            record = gang.spec.nomination if gang else None
            if record is None:
                continue
            nominated = restored(record, unit, self._placed(now), now)
            if nominated is not None:
                self._nominated[unit.key] = nominated
                places = restored_places(record, unit, self._state)
                self._state.reserved.set(unit.key, unit.priority, places, Purpose.NOMINATION)

    def placed(self, key: GangKey) -> None:
        """End the preemption for a unit that is placed."""
        if self._end(key):
            self._metrics.preempted(PreemptionOutcome.PLACED)
        self._backoff.reset(key)

    def forget(self, key: GangKey) -> None:
        """End the preemption for a unit that has no pods left."""
        self._end(key)
        self._backoff.reset(key)

    def _end(self, key: GangKey) -> bool:
        """Release the reservation of a unit; return whether there was one.

        Gangs of which a part was evicted are still evicted as a whole.
        """
        nominated = self._nominated.get(key)
        if nominated is None or nominated.is_served:
            return False
        self._state.reserved.set(key, 0, (), Purpose.NOMINATION)
        served = replace(nominated, is_served=True)
        if nominated.is_recorded and served.remaining(self._state):
            self._nominated[key] = served
        else:
            self._drop(key)
        return True

    def _drop(self, key: GangKey) -> None:
        self._nominated.pop(key, None)
        self._records.pop(key, None)
        self._evict_again.reset(key)

    def reconcile(self) -> list[Call]:
        """End preemptions that took too long; return the evictions that are due."""
        calls: list[Call] = []
        for key, nominated in list(self._nominated.items()):
            left = nominated.remaining(self._state)
            if self._clock() >= nominated.until:
                self._fail(key, self._overdue(nominated, left))
            elif nominated.is_served and not left:
                self._drop(key)
            elif left and key not in self._busy and key not in self._evict_again:
                self._busy.add(key)
                calls.append(self._carry_out(key))
        return calls

    def time_left(self) -> float | None:
        """Return the time until a reservation ends or a search is due [s]; None: neither is."""
        due = min((each.until for each in self._nominated.values()), default=math.inf)
        due = min(due, self._due)
        return None if due == math.inf else max(0.0, due - self._clock())

    def _overdue(self, nominated: Nominated, left: list[PodInfo]) -> str:
        if left:
            return f"not all pods could be evicted for it: {nominated.refusal or 'no answer'}"
        return "the GPUs of units that were evicted for it did not become free in time"

    def _fail(self, key: GangKey, reason: str) -> None:
        """End a preemption in vain, and let the unit back off."""
        nominated = self._nominated[key]
        self._state.reserved.set(key, 0, (), Purpose.NOMINATION)
        self._drop(key)
        if nominated.is_served:
            return
        self._backoff.start(key, reason, at_maximum=True)
        self._metrics.preempted(PreemptionOutcome.FAILED)
        _log.warning("Preemption failed", unit="/".join(key[:2]), err=reason)
        self._informers.changed.set()

    async def _carry_out(self, key: GangKey) -> None:
        try:
            with self._faults.isolate(Stage.PREEMPT, key):
                if await self._record(key):
                    await self._evict(key)
        finally:
            self._busy.discard(key)
            self._informers.changed.set()

    async def _record(self, key: GangKey) -> bool:
        """Write a nomination, unless it is; return whether the evictions may begin."""
        nominated, record = self._nominated.get(key), self._records.get(key)
        if nominated is None or nominated.is_recorded:
            return nominated is not None
        if nominated.unit.is_gang and record:
            try:
                await self._status_reporter.record_nomination(nominated.unit, record)
            except KubeError as error:
                self._fail(key, f"the API server refused to record what is evicted: {error}")
                return False
        if self._nominated.get(key) is not nominated:
            return False
        self._records.pop(key, None)
        self._nominated[key] = replace(nominated, is_recorded=True)
        self._announce(nominated)
        return True

    async def _evict(self, key: GangKey) -> None:
        pods = self._nominated[key].remaining(self._state)
        refused = await evict(self._kube, pods, self._faults, only_unchanged=False)
        self._metrics.evicted(len(pods) - len(refused), EvictionReason.PREEMPTED)
        nominated = self._nominated.get(key)
        if nominated is not None:
            why = _refusal(next(iter(refused.values()))) if refused else ""
            self._nominated[key] = replace(nominated, refusal=why)
            # A pod that was evicted is shown by the watch within this time.
            self._evict_again.start(key)

    def _announce(self, nominated: Nominated) -> None:
        """Create an Event about the unit, and one about each unit that is evicted."""
        unit, state = nominated.unit, self._state
        message = preempting(unit.key.name, nominated.summary(state))
        pod = (unit.waiting or unit.settled)[0]
        self._status_reporter.announce(_event(pod, message, unit.key.name))
        for victim in nominated.victims:
            first = next((there for key, _ in victim if (there := state.pod(key))), None)
            if first is not None:
                message = preempted(first.gang or first.name, len(victim), unit.priority)
                self._status_reporter.announce(_event(first, message, unit.key.name))


def _refusal(status: int) -> str:
    """Return why a pod was not evicted. The answer itself may name pods of other namespaces."""
    if status == 429:
        return "a disruption budget does not allow it now"
    return f"the API server refused it (status {status})" if status else "no answer"


def _event(pod: PodInfo, message: EventMessage, change: str) -> Event:
    """Return an Event about the controller of a pod, else about the pod."""
    owner = pod.controller
    about = (
        ObjectReference(owner.api_version, owner.kind, owner.name, owner.uid, pod.namespace)
        if owner
        else ObjectReference("v1", "Pod", pod.name, pod.uid, pod.namespace)
    )
    return Event(about, message.reason, message.text, f"{pod.uid} {change}")
