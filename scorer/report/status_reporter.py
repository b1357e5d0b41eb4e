"""What people are told of gangs: the Gang with its plan and status, and an Event for each change.

A plan is recorded before any pod is let go. All else is told when there is time, the latest only:
a gang that is placed within a second is never said to wait. What a status says is read from the
pods at the moment in which it is written; of what was said before only the reason is kept.
"""

import asyncio
import math
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime

import structlog
from msgspec import Struct

from cluster.gang import GangKey
from runtime.kube.client import ApiError, Kube, KubeError
from runtime.kube.reflector import Key
from runtime.process.clock import Clock, loop_time
from scorer.fence import WRITE_TIMEOUT
from scorer.gang.crd import (
    Gang,
    GangPlan,
    GangStatus,
    Phase,
    gangs_of,
    name_of,
    new_gang,
    owners_of,
    plan_steps,
    status_of,
    status_steps,
)
from scorer.gang.unit import Unit
from scorer.metrics import Stage
from scorer.queue.fault_isolation import FaultIsolation
from scorer.report.events import (
    EventMessage,
    ObjectReference,
    event_of,
    evicted,
    partial,
    placed,
    pod_waiting,
    waiting,
)
from scorer.report.gang_state import GangState
from scorer.timings import Timings

_AT_ONCE = 8
"""Writes about gangs under way."""
_WAITS = frozenset({Phase.ASSEMBLING, Phase.WAITING})
_IN_ORDER = frozenset({Phase.PLACED, Phase.FINISHED})

_log = structlog.get_logger()


class _Ignored(Struct, frozen=True):
    """Of an answer, nothing."""


@dataclass(frozen=True, slots=True)
class StatusUpdate:
    """The latest about a gang."""

    unit: Unit
    phase: Phase
    members: tuple[int, int | None]
    plan: GangPlan | None = None
    reason: str = ""
    sent_away: str = ""
    """Why all its members were evicted; empty where they were not."""
    refused: bool = False
    """It could have been placed, and the API server refused that."""

    @property
    def is_partial(self) -> bool:
        """Some members have their GPUs, and others were refused theirs."""
        return self.unit.is_gang and self.refused and bool(self.unit.settled)

    def tells_of(self, phase: Phase) -> bool:
        """Tell whether its reason is why a gang is in this phase."""
        return self.phase is phase or (bool(self.sent_away) and phase is not Phase.SUSPENDED)

    @property
    def news(self) -> EventMessage | None:
        """The same for an Event; None where the scheduler's own tell enough."""
        waits = self.phase in _WAITS or bool(self.reason)
        if not self.unit.is_gang:
            return pod_waiting(self.reason) if waits else None
        if self.phase is Phase.PLACED and self.plan is not None:
            return placed(self.unit.key.name, self.plan, alike=self.unit.alike)
        if self.is_partial:
            return partial(
                self.unit.key.name, len(self.unit.settled), self.unit.needed, self.reason
            )
        if self.sent_away and self.plan is not None:
            return evicted(self.unit.key.name, len(self.plan.members), self.sent_away)
        return waiting(self.unit.key.name, self.reason) if waits else None


class StatusReporter:
    """Writes Gangs and Events, for one term of the Lease."""

    def __init__(  # noqa: PLR0913 - one for each collaborator.
        self,
        kube: Kube,
        gangs: Callable[[], Mapping[Key, Gang]],
        standing: Callable[[Gang, int | None], GangState],
        faults: FaultIsolation,
        clock: Clock,
        instance: str,
        *,
        timings: Timings,
    ) -> None:
        """Say where to write.

        Args:
            kube: The API server.
            gangs: The Gangs that the watch shows.
            standing: How a gang stands now, given how many members it was last known to need.
            faults: Contains faults of ours.
            clock: The wall clock [s since 1970].
            instance: This replica's name, for events.
            timings: Of status updates.
        """
        self._kube, self._gangs, self._clock, self._instance = kube, gangs, clock, instance
        self._standing, self._faults, self._timings = standing, faults, timings
        self._written: dict[Key, Gang] = {}
        """As they were answered: newer than what the watch shows."""
        self._shown: dict[GangKey, GangStatus] = {}
        """The last status of each that was written, whatever the API server kept of it."""
        self._words: dict[GangKey, StatusUpdate] = {}
        """The last of each."""
        self._news: dict[GangKey, StatusUpdate] = {}
        """Of these, what nobody was told yet."""
        self._told_at: dict[GangKey, float] = {}
        """When the last word about it was told [s, of the loop's clock]."""
        self._speaking: dict[GangKey, asyncio.Task[None]] = {}
        self._urgent: dict[GangKey, asyncio.Event] = {}
        """Set where what is to be told of a gang does not wait."""
        self._few = asyncio.Semaphore(_AT_ONCE)

    async def record(self, unit: Unit, plan: GangPlan) -> None:
        """Write a gang's plan, before it is carried out.

        Raises:
            KubeError: It could not be written.
        """
        # That it waits is no longer so.
        self._words.pop(unit.key, None)
        self._news.pop(unit.key, None)
        async with self._few:
            try:
                await self._record(unit, plan)
            except ApiError as error:
                if error.status not in {404, 409, 422}:
                    raise
                # The watch was behind, or the Gang is gone: once more, from what is there now.
                await self._refresh(unit.key)
                await self._record(unit, plan)
        gang = self._find(unit.key)
        if gang and gang.status.phase in _WAITS:
            bound = sum(pod.bound for pod in unit.settled)
            self.enqueue(StatusUpdate(unit, Phase.COMMITTING, (bound, unit.needed), plan))

    def enqueue(self, word: StatusUpdate) -> None:
        """Tell people how a gang stands, soon. A pod on its own tells itself, by its events."""
        key = word.unit.key
        if self._words.get(key) == word:
            return
        self._words[key] = self._news[key] = word
        self._begin(key, is_urgent=word.phase not in _WAITS)

    def look(self, key: GangKey) -> GangState | None:
        """Return how a gang stands; where its Gang says something else, that is mended in a while.

        None where it has no Gang, or something is about to be told of it: then it is looked at.
        """
        gang = self._find(key)
        if gang is None or key in self._speaking:
            return None
        if not self._is_so(key):
            self._begin(key, is_urgent=False)
        return self._standing_of(gang, key)

    def _begin(self, key: GangKey, *, is_urgent: bool) -> None:
        if key not in self._speaking:
            self._urgent[key] = asyncio.Event()
            self._speaking[key] = asyncio.create_task(self._speak(key))
        if is_urgent:
            self._urgent[key].set()

    def forget(self, key: GangKey) -> None:
        """Drop what is known of a gang that is gone."""
        self._words.pop(key, None)
        self._news.pop(key, None)
        self._shown.pop(key, None)
        self._told_at.pop(key, None)
        self._written.pop((key.namespace, name_of(key)), None)

    async def close(self) -> None:
        """Say nothing more."""
        for task in list(self._speaking.values()):
            task.cancel()
        await asyncio.gather(*self._speaking.values(), return_exceptions=True)

    async def _record(self, unit: Unit, plan: GangPlan) -> None:
        gang = self._find(unit.key)
        if gang is None:
            owners = owners_of(unit.owner, (*unit.waiting, *unit.settled))
            made = new_gang(unit.key, owners, size=unit.needed, link=unit.link, plan=plan)
            path = gangs_of(unit.key.namespace)
            self._keep(await self._kube.create(path, made, Gang, params=WRITE_TIMEOUT))
        elif gang.spec.plan is None or gang.spec.plan.id != plan.id:
            steps = plan_steps(gang, plan, size=unit.needed, link=unit.link)
            path = gang.path
            self._keep(await self._kube.patch(path, steps, Gang, kind="json", params=WRITE_TIMEOUT))

    async def _speak(self, key: GangKey) -> None:
        try:
            while True:
                with self._faults.isolate(Stage.REPORT, key):
                    await self._speak_up(key)
                    return
                await self._faults.wait(Stage.REPORT, key)
        finally:
            # At once, not by a callback of the task: a word that came before would be lost.
            self._speaking.pop(key, None)
            self._urgent.pop(key, None)

    async def _speak_up(self, key: GangKey) -> None:
        while key in self._news or not self._is_so(key):
            await self._pause(key)
            word = self._news.pop(key, None)
            if word is None and self._is_so(key):
                return
            self._told_at[key] = loop_time()
            try:
                async with self._few:
                    await self._tell(key, word)
            except KubeError as error:
                _log.warning("Could not report gang", gang="/".join(key[:2]), err=str(error))
                # Once more, from what is there by then, unless there is something newer to tell.
                if word is not None and self._words.get(key) == word:
                    self._news[key] = word
                await asyncio.sleep(self._timings.report_interval)
                with suppress(KubeError):
                    await self._refresh(key)

    async def _pause(self, key: GangKey) -> None:
        """Wait for what may come that makes this word needless; not where it is urgent."""
        due = self._told_at.get(key, -math.inf) + self._timings.report_interval
        urgent = self._urgent[key]
        with suppress(TimeoutError):
            async with asyncio.timeout(max(self._timings.report_delay, due - loop_time())):
                await urgent.wait()
        urgent.clear()

    async def _tell(self, key: GangKey, word: StatusUpdate | None) -> None:
        now = self._now()
        try:
            if word is None or word.unit.is_gang:
                await self._show(key, word, now)
        except KubeError:
            # Where no Gang can be written, people have the Event.
            if word is not None:
                await self._make_event(word, now)
            raise
        if word is not None:
            await self._make_event(word, now)

    def _now(self) -> str:
        return datetime.fromtimestamp(self._clock(), UTC).strftime("%Y-%m-%dT%H:%M:%SZ")

    async def _show(self, key: GangKey, word: StatusUpdate | None, now: str) -> None:
        gang = self._find(key)
        if gang is None:
            if word is None:
                return
            unit = word.unit
            owners = owners_of(unit.owner, (*unit.waiting, *unit.settled))
            made = new_gang(unit.key, owners, size=unit.needed, link=unit.link)
            gang = await self._kube.create(gangs_of(unit.key.namespace), made, Gang)
            self._keep(gang)
        status = self._status(gang, key, now)
        if status != self._last(gang, key):
            steps = status_steps(gang, status)
            self._keep(await self._kube.patch(f"{gang.path}/status", steps, Gang, kind="json"))
            self._shown[key] = status

    def _is_so(self, key: GangKey) -> bool:
        """Tell whether what a Gang says is what its pods say; nobody is wrong where none is."""
        gang = self._find(key)
        return gang is None or self._status(gang, key, self._now()) == self._last(gang, key)

    def _last(self, gang: Gang, key: GangKey) -> GangStatus:
        """Return what was last told: a part of it may be unknown to an older definition."""
        return self._shown.get(key, gang.status)

    def _standing_of(self, gang: Gang, key: GangKey) -> GangState:
        word = self._words.get(key)
        return self._standing(gang, word.unit.needed if word else None)

    def _status(self, gang: Gang, key: GangKey, now: str) -> GangStatus:
        word, standing, last = self._words.get(key), self._standing_of(gang, key), gang.status
        phase = standing.phase
        if phase in _WAITS and word and word.phase in _WAITS:
            # What holds a gang whose members are all there, only the planner knows.
            phase = word.phase
        reason = standing.reason
        if phase not in _IN_ORDER and (told := _reason(phase, word, last)):
            reason = told
        return status_of(
            phase,
            members=standing.members,
            held=standing.held,
            reason=reason,
            before=self._last(gang, key),
            now=now,
        )

    async def _make_event(self, word: StatusUpdate, now: str) -> None:
        unit, news = word.unit, word.news
        if news is None:
            return
        owner, pod = unit.owner if unit.is_gang else None, (unit.waiting or unit.settled)[0]
        about = (
            ObjectReference(
                owner.api_version, owner.kind, owner.name, owner.uid, unit.key.namespace
            )
            if owner
            else ObjectReference("v1", "Pod", pod.name, pod.uid, unit.key.namespace)
        )
        event = event_of(news, about, change=self._change(word), now=now, instance=self._instance)
        try:
            await self._kube.create(f"/api/v1/namespaces/{about.home}/events", event, _Ignored)
        except ApiError as error:
            if error.status != 409:
                raise

    def _change(self, word: StatusUpdate) -> str:
        """Return what tells this change of state from others.

        A new reason to wait is none, but for the first refusal.
        """
        if word.is_partial:
            return f"{len(word.unit.settled)} of {word.unit.needed}"
        if word.plan is not None:
            return word.plan.id
        gang = self._find(word.unit.key)
        before = gang.spec.plan.id if gang and gang.spec.plan else "new"
        state = f"{word.phase}, refused," if word.refused else word.phase
        return f"{state} after {before}"

    def _find(self, key: GangKey) -> Gang | None:
        at = (key.namespace, name_of(key))
        return self._written.get(at) or self._gangs().get(at)

    def _keep(self, gang: Gang) -> None:
        self._written[gang.metadata.namespace, gang.metadata.name] = gang

    async def _refresh(self, key: GangKey) -> None:
        at = (key.namespace, name_of(key))
        self._written.pop(at, None)
        try:
            self._keep(await self._kube.get(f"{gangs_of(key.namespace)}/{at[1]}", Gang))
        except ApiError as error:
            if error.status != 404:
                raise


def _reason(phase: Phase, word: StatusUpdate | None, last: GangStatus) -> str:
    """Return why a gang is in a phase, as far as that was said; of this leader, or one before."""
    if word is not None:
        return word.reason if word.tells_of(phase) else ""
    is_kept = phase is last.phase and phase in {*_WAITS, Phase.COMMITTING}
    return last.reason if is_kept else ""
