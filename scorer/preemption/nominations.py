"""Carry out preemptions: GPUs are reserved for a unit, its victims are evicted, and it ends.

A nomination whose plan does not hold any more, since a GPU of it failed or a victim may not be
evicted, is void at once: nothing more is evicted for it, and other victims are searched. What is
still good stays reserved until the pods have ended that were evicted. A unit of which a part was
evicted is evicted as a whole, even if nobody needs it any more.
"""

import asyncio
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial

from linkwise.cluster.gang import GangKey
from linkwise.planning.gang.events import EventMessage, partly_preempted, preempted, preempting
from linkwise.planning.gang.pod_info import PodInfo
from linkwise.planning.gang.unit import Unit
from linkwise.planning.state.reserved_gpus import Place, Purpose
from linkwise.runtime.kube.event_recorder import Event, ObjectReference
from scorer.commit.handle import Handle
from scorer.commit.removal.removal_state import Removal, Step
from scorer.commit.removal.removals import Call, Removals, Request
from scorer.metrics import EvictionReason
from scorer.preemption.nominated_pods import NominatedPods
from scorer.preemption.nomination import Failure, Nomination, is_usable
from scorer.preemption.record import LONGEST, Record, RecordWriter, text_of

_NO_UNIT = GangKey("", "", "")
"""Names the record of units that are evicted as a whole although nobody needs them any more."""


class Nominations:
    """The nominations of one term of the Lease."""

    def __init__(
        self,
        handle: Handle,
        removals: Removals,
        on_failure: Callable[[GangKey, str, Failure], None],
    ) -> None:
        """Start without nominations.

        Args:
            handle: The dependencies.
            removals: Evicts the victims.
            on_failure: Called with a unit whose nomination has ended in vain, and the reason.
        """
        self._clock, self._removals = handle.clock, removals
        self._informers, self._state = handle.informers, handle.informers.state
        self._status_reporter, self._on_failure = handle.status_reporter, on_failure
        self._pods, self._pause = NominatedPods(handle), handle.timings.commit_retry
        self._writer = RecordWriter(handle, self._text)
        self._nominations: dict[GangKey, Nomination] = {}
        self._unfinished: dict[GangKey, tuple[str, ...]] = {}
        """By unit that is evicted although nobody needs it any more: the uids of its pods."""

    def __contains__(self, key: GangKey) -> bool:
        """Return whether others are evicted for a unit."""
        nomination = self._nominations.get(key)
        return nomination is not None and not nomination.is_void

    @property
    def due(self) -> float:
        """When the next nomination is to be looked at [s since 1970]; infinite: there is none."""
        return min((each.due for each in self._nominations.values()), default=math.inf)

    @property
    def all(self) -> tuple[Nomination, ...]:
        """All nominations."""
        return tuple(self._nominations.values())

    def reason(self, key: GangKey) -> str | None:
        """Return what is done for a unit that waits; None: nothing."""
        if key not in self:
            return None
        nomination = self._nominations[key]
        left = sum(len(self._removals.left(unit)) for unit in nomination.victims)
        refusals = filter(None, map(self._removals.refusal, nomination.victims))
        late = self._ending(nomination) if nomination.is_late else ()
        return nomination.summary(left, next(refusals, ""), len(late))

    def has_room_for(self, nomination: Nomination) -> bool:
        """Return whether the record of all nominations has room for another one."""
        return len(text_of((*self._records(), nomination.record))) <= LONGEST

    def begin(
        self,
        unit: Unit,
        nomination: Nomination,
        places: tuple[Place, ...],
        victims: Mapping[GangKey, Sequence[PodInfo]],
        begun: frozenset[GangKey] = frozenset(),
    ) -> None:
        """Reserve GPUs for a unit, and evict the victims; the nomination may be the last leader's.

        Args:
            unit: The unit.
            nomination: For this unit.
            places: What is reserved.
            victims: The pods to evict, by their unit.
            begun: Units of which the last leader has evicted a part.
        """
        self._end(unit.key)
        self._nominations[unit.key] = nomination
        self._state.reserved.set(unit.key, nomination.priority, places, Purpose.NOMINATION)
        if victims:
            self._removals.begin(
                Request(
                    victims,
                    EvictionReason.PREEMPTED,
                    on_end=partial(self._removed, unit, nomination.record),
                    record=partial(self._record, unit, nomination.record),
                    is_wanted=lambda: self._current(nomination.record) is not None,
                    begun=begun,
                )
            )

    def finish(self, victims: Mapping[GangKey, Sequence[PodInfo]]) -> None:
        """Evict the rest of units of which the last leader has evicted a part."""
        for key, pods in victims.items():
            self._unfinished[key] = tuple(pod.uid for pod in pods)
            reason, begun = EvictionReason.PREEMPTED, frozenset({key})
            self._removals.begin(Request({key: pods}, reason, on_end=lambda _: None, begun=begun))

    def end(self, key: GangKey) -> frozenset[str]:
        """End the nomination of a unit that needs none; return its nodes, none without one."""
        members = self._nominations[key].record.members if key in self else ()
        self._end(key)
        return frozenset(member.node for member in members)

    def _end(self, key: GangKey) -> None:
        nomination = self._nominations.pop(key, None)
        if nomination is None:
            return
        self._state.reserved.set(key, 0, (), Purpose.NOMINATION)
        if nomination.is_asked:
            self._unfinished |= nomination.uids

    def _current(self, record: Record) -> Nomination | None:
        """Return the nomination of a record; None: it has ended, or its plan does not hold."""
        nomination = self._nominations.get(record.unit)
        is_current = nomination and nomination.record is record and not nomination.is_void
        return nomination if is_current else None

    def reconcile(self) -> list[Call]:
        """End nominations that took too long or do not hold; return the calls that are due."""
        reserved, now = self._state.reserved, self._clock()
        for key, nomination in list(self._nominations.items()):
            is_due = nomination.is_void or now >= nomination.due
            is_over = is_due and not (now < nomination.until and self._is_ending(nomination))
            if nomination.is_void:
                if is_over:
                    self._end(key)
            elif is_over:
                failure = Failure.OVERDUE if self._has_begun(nomination) else Failure.UNTOUCHED
                self._fail(key, self._overdue(nomination), failure)
            elif nomination.is_broken(reserved.of(key, Purpose.NOMINATION), self._state):
                self._void(key, "GPUs that were planned for it failed")
            elif is_due:
                self._nominations[key] = nomination.delayed(now)
        unfinished = self._unfinished.items()
        self._unfinished = {unit: uids for unit, uids in unfinished if unit in self._removals}
        return self._writer.due() + self._pods.reconcile(self.all)

    def _ending(self, nomination: Nomination) -> list[str]:
        """Return the uids of evicted pods that have not ended yet."""
        return [uid for _, uid in nomination.pods if self._state.usages.is_ending(uid)]

    def _has_begun(self, nomination: Nomination) -> bool:
        """Return whether a pod was evicted for a unit, or has ended since."""
        gone = (self._state.pod(pod) is None for pod, _ in nomination.pods)
        return self._is_ending(nomination) or any(gone)

    def _is_ending(self, nomination: Nomination) -> bool:
        """Return whether pods that were evicted for a unit have not ended yet."""
        is_touched = self._removals.is_touched
        return any(map(is_touched, nomination.victims)) or bool(self._ending(nomination))

    def _records(self) -> list[Record]:
        asked = [each for each in self._nominations.values() if each.is_asked]
        unfinished = dict(self._unfinished)
        for each in asked:
            unfinished |= each.uids if each.is_void else {}
        left = [uids for unit, uids in unfinished.items() if self._removals.is_touched(unit)]
        rest = [Record(_NO_UNIT, (), tuple(left), 0.0)] if left else []
        return [each.record for each in asked if not each.is_void] + rest

    def _text(self) -> str:
        return text_of(self._records())

    def _overdue(self, nomination: Nomination) -> str:
        refusals = [self._removals.refusal(unit) for unit in nomination.victims]
        if any(self._removals.left(unit) for unit in nomination.victims):
            why = next(filter(None, (nomination.refusal, *refusals)), "no answer")
            return f"not all pods could be evicted for it: {why}"
        return "the GPUs of units that were evicted for it did not become free in time"

    def _fail(self, key: GangKey, why: str, failure: Failure) -> None:
        """End a nomination in vain; others are searched later."""
        self._end(key)
        self._on_failure(key, why, failure)
        self._informers.changed.set()

    def _void(self, key: GangKey, why: str, stays: Removal | None = None) -> None:
        """Give up a plan that does not hold, and let other victims be searched at once.

        Args:
            key: The unit.
            why: For users.
            stays: A unit that is not evicted after all: nothing is kept on its nodes.
        """
        nomination, reserved = self._nominations[key], self._state.reserved
        victims = dict(nomination.victims)
        closed = set[str]()
        if stays:
            victims.pop(stays.key, None)
            closed = {pod.usage.target for pod in stays.pods if pod.usage}
        good = tuple(
            place
            for place in reserved.of(key, Purpose.NOMINATION)
            if is_usable(place, self._state) and place.node not in closed
        )
        self._nominations[key] = replace(nomination, victims=victims, is_void=True)
        reserved.set(key, nomination.priority, good, Purpose.NOMINATION)
        # Its refusal is not valid any more.
        self._state.capacity_version += 1
        self._on_failure(key, why, Failure.VOID)
        self._informers.changed.set()

    async def _record(self, unit: Unit, record: Record) -> str | None:
        """Write what is evicted for a unit, and nominate its pods; return why not, or None."""
        if (nomination := self._current(record)) is None:
            return ""
        self._nominations[unit.key] = replace(nomination, is_asked=True)
        if why := await self._writer.write():
            why = f"it could not be recorded what is evicted: {why}"
            if self._current(record):
                self._fail(unit.key, why, Failure.UNRECORDED)
            return why
        while nomination := self._current(record):
            why = await self._pods.nominate(nomination)
            if current := self._current(record):
                self._nominations[unit.key] = replace(current, refusal=why or "")
            if not why:
                break
            self._informers.changed.set()
            await asyncio.sleep(self._pause)
        if self._current(record):
            self._announce_unit(unit)
        return None

    def _announce_unit(self, unit: Unit) -> None:
        pod = (unit.waiting or unit.settled)[0]
        message = preempting(unit.key.name, self.reason(unit.key) or "")
        self._status_reporter.announce(_event(pod, message, unit.key.name))

    def _removed(self, unit: Unit, record: Record, removal: Removal) -> None:
        """Say what became of a victim; if it stays, the plan does not hold."""
        if removal.accepted:
            self._announce_victim(unit, removal)
        if removal.step is not Step.GONE and self._current(record):
            why = f"units were not evicted for it: {removal.refusal}"
            self._void(unit.key, why, removal)

    def _announce_victim(self, unit: Unit, removal: Removal) -> None:
        """Create an Event about a unit of which pods were evicted."""
        first, total, evicted = removal.pods[0], self._size(removal), len(removal.accepted)
        name = first.gang or first.name
        if removal.step is Step.GONE:
            message = preempted(name, evicted, total, unit.priority)
        else:
            message = partly_preempted(name, evicted, total, unit.priority, removal.refusal)
        self._status_reporter.announce(_event(first, message, unit.key.name))

    def _size(self, removal: Removal) -> int:
        """Return the number of pods that a unit had with GPUs; an elastic gang keeps some."""
        first, going = removal.pods[0], {pod.uid for pod in removal.pods}
        if first.gang is None:
            return 1
        key_of = self._informers.owners.key
        pods = self._state.groups.of((first.namespace, first.gang))
        others = (each for each in pods if each.uid not in going and each.settled and each.usage)
        return len(going) + sum(key_of(each) == removal.key for each in others)


def _event(pod: PodInfo, message: EventMessage, change: str) -> Event:
    """Return an Event about the controller of a pod, else about the pod."""
    owner = pod.controller
    about = (
        ObjectReference(owner.api_version, owner.kind, owner.name, owner.uid, pod.namespace)
        if owner
        else ObjectReference("v1", "Pod", pod.name, pod.uid, pod.namespace)
    )
    return Event(about, message.reason, message.text, f"{pod.uid} {change}")
