"""Carry out preemptions: a nomination is written, its victims are evicted, and it ends.

Evictions that the API server refuses are tried again until the time of the nomination is over. A
gang of which a part was evicted is evicted as a whole, even if the unit does not need it any more.
"""

import math
from collections.abc import Callable, Coroutine
from dataclasses import replace
from typing import Any, TypeAlias

from cluster.gang import GangKey
from runtime.kube.client import KubeError
from runtime.kube.event_recorder import Event, ObjectReference
from runtime.process.backoff import Backoff
from runtime.process.clock import rfc3339
from scorer.cache.reserved_gpus import Place, Purpose
from scorer.commit.evict import evict
from scorer.commit.handle import Handle
from scorer.gang.crd import Nomination
from scorer.gang.pod_info import PodInfo
from scorer.metrics import EvictionReason, Stage
from scorer.placement.result import Plan
from scorer.preemption.nomination import Nominated, places_of, record_of
from scorer.report.events import EventMessage, preempted, preempting

Call: TypeAlias = Coroutine[Any, Any, object]

_EVICT_AGAIN_MAX = 10.0
"""The longest delay before refused evictions are tried again [s]."""


class Evictions:
    """The nominations of one term of the Lease, and the evictions for them."""

    def __init__(self, handle: Handle, on_failure: Callable[[GangKey, str], None]) -> None:
        """Start without nominations.

        Args:
            handle: The dependencies.
            on_failure: Called with a unit for which units were evicted in vain, and the reason.
        """
        self._kube, self._informers, self._clock = handle.kube, handle.informers, handle.clock
        self._state, self._metrics = handle.informers.state, handle.metrics
        self._status_reporter, self._faults = handle.status_reporter, handle.faults
        self._on_failure = on_failure
        self._evict_again = Backoff(
            handle.timings.commit_retry, _EVICT_AGAIN_MAX, handle.informers.changed.set
        )
        """Units for which an eviction was refused."""
        self._nominated: dict[GangKey, Nominated] = {}
        self._records: dict[GangKey, Nomination] = {}
        """Nominations that are to be written."""
        self._busy: set[GangKey] = set()
        """Units for which a call is under way."""

    def __contains__(self, key: GangKey) -> bool:
        """Return whether others are evicted for a unit."""
        return key in self._nominated

    @property
    def victims(self) -> frozenset[str]:
        """The uids of all pods that are evicted."""
        nominated = self._nominated.values()
        return frozenset(uid for each in nominated for pods in each.victims for _, uid in pods)

    @property
    def due(self) -> float:
        """When the next nomination ends [s since 1970]; infinite: there is none."""
        return min((each.until for each in self._nominated.values()), default=math.inf)

    def of_others(self, key: GangKey) -> list[Nominated]:
        """Return the nominations of other units."""
        return [each for other, each in self._nominated.items() if other != key]

    def reason(self, key: GangKey) -> str | None:
        """Return what is done for a unit that waits; None: nothing."""
        nominated = self._nominated.get(key)
        if nominated is None or nominated.is_served:
            return None
        return nominated.summary(self._state)

    def begin(self, nominated: Nominated, made: Plan) -> None:
        """Reserve the GPUs of a plan, and evict its victims soon."""
        record = record_of(nominated, made, rfc3339(nominated.until))
        self._records[nominated.unit.key] = record
        self.carry_on(nominated, places_of(made))

    def carry_on(self, nominated: Nominated, places: tuple[Place, ...]) -> None:
        """Reserve GPUs for a nomination, which may be of an earlier leader."""
        unit = nominated.unit
        self._nominated[unit.key] = nominated
        self._state.reserved.set(unit.key, unit.priority, places, Purpose.NOMINATION)

    def end(self, key: GangKey) -> bool:
        """End the reservation of a unit that needs none; return whether there was one.

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
        """End nominations that took too long; return the calls that are due."""
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

    def _overdue(self, nominated: Nominated, left: list[PodInfo]) -> str:
        if left:
            return f"not all pods could be evicted for it: {nominated.refusal or 'no answer'}"
        return "the GPUs of units that were evicted for it did not become free in time"

    def _fail(self, key: GangKey, reason: str) -> None:
        """End a nomination in vain."""
        nominated = self._nominated[key]
        self._state.reserved.set(key, 0, (), Purpose.NOMINATION)
        self._drop(key)
        if nominated.is_served:
            return
        self._on_failure(key, reason)
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
