"""Carry out preemptions: a nomination is recorded, its victims are evicted, and it ends.

Evictions that the API server refuses are tried again until the time of the nomination is over. A
gang of which a part was evicted is evicted as a whole, even if the unit does not need it any more.
"""

import math
from collections.abc import Callable, Coroutine
from dataclasses import replace
from typing import Any, TypeAlias

from cluster.gang import GangKey
from runtime.kube.event_recorder import Event, ObjectReference
from runtime.process.backoff import Backoff
from scorer.cache.reserved_gpus import Place, Purpose
from scorer.commit.evict import evict
from scorer.commit.handle import Handle
from scorer.gang.pod_info import PodInfo
from scorer.gang.unit import Unit
from scorer.metrics import EvictionReason, Stage
from scorer.preemption.nominated_pods import NominatedPods
from scorer.preemption.nomination import Nomination
from scorer.preemption.record import LONGEST, text_of, write_records
from scorer.queue.fault_isolation import FAULT
from scorer.report.events import EventMessage, preempted, preempting

Call: TypeAlias = Coroutine[Any, Any, object]

_AGAIN_MAX = 10.0
"""The longest delay before refused evictions, or the record, are tried again [s]."""
_RECORD = "record"
_RECORD_PAUSE = 0.2
"""The least time between two writes of the record [s]. Each may delay a renewal of the Lease."""


class Evictions:
    """The nominations of one term of the Lease, and the evictions for them."""

    def __init__(self, handle: Handle, on_failure: Callable[[GangKey, str], None]) -> None:
        """Start without nominations.

        Args:
            handle: The dependencies.
            on_failure: Called with a unit for which units were evicted in vain, and the reason.
        """
        self._handle, self._clock = handle, handle.clock
        self._informers, self._metrics = handle.informers, handle.metrics
        self._state = handle.informers.state
        self._status_reporter, self._faults = handle.status_reporter, handle.faults
        self._on_failure = on_failure
        self._pods = NominatedPods(handle)
        self._evict_again = Backoff(
            handle.timings.commit_retry, _AGAIN_MAX, handle.informers.changed.set
        )
        """Units for which an eviction was refused."""
        self._record_again = Backoff(_RECORD_PAUSE, _AGAIN_MAX, handle.informers.changed.set)
        """The record of all nominations, after each write; longer after one that was refused."""
        self._nominations: dict[GangKey, Nomination] = {}
        self._unannounced: dict[GangKey, Unit] = {}
        """Units whose nominations are not recorded yet."""
        self._recorded: str | None = ""
        """The record of all nominations as it is written; None: that is not known."""
        self._is_recording = False
        self._busy: set[GangKey] = set()
        """Units for which pods are being evicted."""

    def __contains__(self, key: GangKey) -> bool:
        """Return whether others are evicted for a unit."""
        return key in self._nominations

    @property
    def victims(self) -> frozenset[str]:
        """The uids of all pods that are evicted."""
        every = self._nominations.values()
        return frozenset(uid for each in every for pods in each.victims for _, uid in pods)

    @property
    def gangs(self) -> frozenset[GangKey]:
        """The gangs, and single pods, of which pods are still to be evicted."""
        left = (pod for each in self._nominations.values() for pod in each.remaining(self._state))
        return frozenset(map(self._informers.owners.key, left))

    @property
    def due(self) -> float:
        """When the next nomination ends [s since 1970]; infinite: there is none."""
        return min((each.until for each in self._nominations.values()), default=math.inf)

    @property
    def nominations(self) -> tuple[Nomination, ...]:
        """All nominations."""
        return tuple(self._nominations.values())

    def reason(self, key: GangKey) -> str | None:
        """Return what is done for a unit that waits; None: nothing."""
        nomination = self._nominations.get(key)
        if nomination is None or nomination.is_served:
            return None
        return nomination.summary(self._state)

    def has_room_for(self, nomination: Nomination) -> bool:
        """Return whether the record of all nominations has room for another one."""
        every = (*self._nominations.values(), nomination)
        return len(text_of(each.record for each in every)) <= LONGEST

    def begin(self, unit: Unit, nomination: Nomination, places: tuple[Place, ...]) -> None:
        """Reserve GPUs for a unit, and evict the victims once this is recorded."""
        self._unannounced[unit.key] = unit
        self.carry_on(nomination, places)

    def carry_on(self, nomination: Nomination, places: tuple[Place, ...]) -> None:
        """Reserve GPUs for a nomination, which may be one of the last leader."""
        key = nomination.key
        self._nominations[key], self._recorded = nomination, None
        self._state.reserved.set(key, nomination.priority, places, Purpose.NOMINATION)

    def end(self, key: GangKey) -> bool:
        """End the reservation of a unit that needs none; return whether there was one.

        Gangs of which a part was evicted are still evicted as a whole.
        """
        nomination = self._nominations.get(key)
        if nomination is None or nomination.is_served:
            return False
        self._state.reserved.set(key, 0, (), Purpose.NOMINATION)
        served = replace(nomination, is_served=True)
        if nomination.is_recorded and served.remaining(self._state):
            self._nominations[key] = served
        else:
            self._drop(key)
        return True

    def _drop(self, key: GangKey) -> None:
        self._nominations.pop(key, None)
        self._unannounced.pop(key, None)
        self._evict_again.reset(key)

    def reconcile(self) -> list[Call]:
        """End nominations that took too long; return the calls that are due."""
        calls: list[Call] = []
        for key, nomination in list(self._nominations.items()):
            left = nomination.remaining(self._state)
            if self._clock() >= nomination.until:
                self._fail(key, self._overdue(nomination, left))
            elif nomination.is_served and not left:
                self._drop(key)
            elif left and nomination.is_recorded and self._may_evict(key):
                self._busy.add(key)
                calls.append(self._evict(key))
        if self._may_record() and self._text() != self._recorded:
            self._is_recording = True
            calls.append(self._record())
        return calls + self._pods.reconcile(self._nominations.values())

    def _may_record(self) -> bool:
        return not self._is_recording and _RECORD not in self._record_again

    def _may_evict(self, key: GangKey) -> bool:
        return key not in self._busy and key not in self._evict_again

    def _text(self) -> str:
        return text_of(each.record for each in self._nominations.values())

    def _overdue(self, nomination: Nomination, left: list[PodInfo]) -> str:
        if left:
            return f"not all pods could be evicted for it: {nomination.refusal or 'no answer'}"
        return "the GPUs of units that were evicted for it did not become free in time"

    def _fail(self, key: GangKey, reason: str) -> None:
        """End a nomination in vain."""
        nomination = self._nominations[key]
        self._state.reserved.set(key, 0, (), Purpose.NOMINATION)
        self._drop(key)
        if nomination.is_served:
            return
        self._on_failure(key, reason)
        self._informers.changed.set()

    async def _record(self) -> None:
        """Write all nominations; those that are new may then be carried out, or fail."""
        text, records = self._text(), [each.record for each in self._nominations.values()]
        why: str | None = FAULT
        with self._faults.isolate(Stage.PREEMPT, "record"):
            why = await write_records(self._handle.kube, text, self._handle.term)
        self._is_recording, self._recorded = False, text if why is None else None
        if why is None:
            self._record_again.reset(_RECORD)
        self._record_again.start(_RECORD)
        for record in records:
            nomination = self._nominations.get(record.unit)
            if nomination is None or nomination.record is not record or nomination.is_recorded:
                continue
            if why is None:
                self._nominations[record.unit] = replace(nomination, is_recorded=True)
                self._announce(nomination)
            else:
                self._fail(record.unit, f"it could not be recorded what is evicted: {why}")
        self._informers.changed.set()

    async def _evict(self, key: GangKey) -> None:
        """Evict the pods that are left of a nomination."""
        try:
            with self._faults.isolate(Stage.PREEMPT, key):
                await self._evict_remaining(key)
        finally:
            self._busy.discard(key)
            self._informers.changed.set()

    async def _evict_remaining(self, key: GangKey) -> None:
        if why := await self._pods.nominate(self._nominations[key]):
            self._refused(key, why)
            return
        if key not in self._nominations:
            return
        pods = self._nominations[key].remaining(self._state)
        refused = await evict(self._handle, pods, only_unchanged=False)
        self._metrics.evicted(len(pods) - len(refused), EvictionReason.PREEMPTED)
        self._refused(key, _refusal(next(iter(refused.values()))) if refused else "")

    def _refused(self, key: GangKey, why: str) -> None:
        """Note why pods were not evicted; empty: all were. They are evicted again later."""
        nomination = self._nominations.get(key)
        if nomination is not None:
            self._nominations[key] = replace(nomination, refusal=why)
            # A pod that was evicted is shown by the watch within this time.
            self._evict_again.start(key)

    def _announce(self, nomination: Nomination) -> None:
        """Create an Event about the unit, and one about each unit that is evicted."""
        unit, state = self._unannounced.pop(nomination.key), self._state
        message = preempting(unit.key.name, nomination.summary(state))
        pod = (unit.waiting or unit.settled)[0]
        self._status_reporter.announce(_event(pod, message, unit.key.name))
        for victim in nomination.victims:
            first = next((there for key, _ in victim if (there := state.pod(key))), None)
            if first is not None:
                name, total = first.gang or first.name, self._size(first)
                message = preempted(name, len(victim), total, unit.priority)
                self._status_reporter.announce(_event(first, message, unit.key.name))

    def _size(self, pod: PodInfo) -> int:
        """Return the number of pods of a unit that have GPUs."""
        if pod.gang is None:
            return 1
        key_of, pods = self._informers.owners.key, self._state.group((pod.namespace, pod.gang))
        key = key_of(pod)
        return sum(each.settled and each.usage is not None and key_of(each) == key for each in pods)


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
