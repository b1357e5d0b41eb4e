"""What people are told of gangs: the Gang with its plan and status, and an Event for each change.

A plan is recorded before any pod is let go. All else is told when there is time, the latest only:
a gang that is placed within a second is never said to wait.
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
from runtime.clock import Clock, loop_time
from runtime.kube import ApiError, Kube, KubeError
from runtime.reflector import Key
from scorer.event import About, News, event_of, evicted, partial, placed, pod_waiting, waiting
from scorer.faults import Faults
from scorer.gangobject import (
    Gang,
    GangPlan,
    Phase,
    gangs_of,
    name_of,
    new_gang,
    owners_of,
    plan_steps,
    status_of,
    status_steps,
)
from scorer.gangs import Unit
from scorer.measures import Stage
from scorer.settle import GRANTING

_PATIENCE = 1.0
"""A gang has waited so long before anybody is told [s]."""
_PAUSE = 5.0
"""Between two words about one gang that waits [s]."""
_AT_ONCE = 8
"""Writes about gangs under way."""
_WAITS = frozenset({Phase.ASSEMBLING, Phase.WAITING})

_log = structlog.get_logger()


class _Ignored(Struct, frozen=True):
    """Of an answer, nothing."""


@dataclass(frozen=True, slots=True)
class Word:
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

    @property
    def news(self) -> News | None:
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


class Teller:
    """Writes Gangs and Events, for one tenure of the Lease."""

    def __init__(
        self,
        kube: Kube,
        gangs: Callable[[], Mapping[Key, Gang]],
        faults: Faults,
        clock: Clock,
        instance: str,
    ) -> None:
        """Say where to write.

        Args:
            kube: The API server.
            gangs: The Gangs that the watch shows.
            faults: Contains faults of ours.
            clock: The wall clock [s since 1970].
            instance: This replica's name, for events.
        """
        self._kube, self._gangs, self._clock, self._instance = kube, gangs, clock, instance
        self._faults = faults
        self._written: dict[Key, Gang] = {}
        """As they were answered: newer than what the watch shows."""
        self._words: dict[GangKey, Word] = {}
        self._told_at: dict[GangKey, float] = {}
        """When the last word about it was told [s, of the loop's clock]."""
        self._speaking: dict[GangKey, asyncio.Task[None]] = {}
        self._few = asyncio.Semaphore(_AT_ONCE)

    async def record(self, unit: Unit, plan: GangPlan) -> None:
        """Write a gang's plan, before it is carried out.

        Raises:
            KubeError: It could not be written.
        """
        # That it waits is no longer so.
        self._words.pop(unit.key, None)
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
            self.say(Word(unit, Phase.COMMITTING, (bound, unit.needed), plan))

    def say(self, word: Word) -> None:
        """Tell people how a gang stands, soon. A pod on its own tells itself, by its events."""
        key = word.unit.key
        if self._words.get(key) == word:
            return
        self._words[key] = word
        if key not in self._speaking:
            self._speaking[key] = asyncio.create_task(self._speak(key))

    def forget(self, key: GangKey) -> None:
        """Drop what is known of a gang that is gone."""
        self._words.pop(key, None)
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
            self._keep(await self._kube.create(path, made, Gang, params=GRANTING))
        elif gang.spec.plan is None or gang.spec.plan.id != plan.id:
            steps = plan_steps(gang, plan, size=unit.needed, link=unit.link)
            path = gang.path
            self._keep(await self._kube.patch(path, steps, Gang, kind="json", params=GRANTING))

    async def _speak(self, key: GangKey) -> None:
        try:
            while True:
                with self._faults.contained(Stage.REPORT, key):
                    await self._speak_up(key)
                    return
                await self._faults.rested(Stage.REPORT, key)
        finally:
            # At once, not by a callback of the task: a word that came before would be lost.
            self._speaking.pop(key, None)

    async def _speak_up(self, key: GangKey) -> None:
        told: Word | None = None
        while (word := self._words.get(key)) is not None and word != told:
            if word.phase in _WAITS:
                due = self._told_at.get(key, -math.inf) + _PAUSE
                await asyncio.sleep(max(_PATIENCE, due - loop_time()))
                word = self._words.get(key)
            if word is None or word == told:
                return
            told, self._told_at[key] = word, loop_time()
            try:
                async with self._few:
                    await self._tell(word)
            except KubeError as error:
                _log.warning("Could not tell of gang", gang="/".join(key[:2]), err=str(error))
                # Once more, from what is there by then, unless there is something newer to tell.
                told = None
                await asyncio.sleep(_PAUSE)
                with suppress(KubeError):
                    await self._refresh(key)

    async def _tell(self, word: Word) -> None:
        now = datetime.fromtimestamp(self._clock(), UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
        try:
            if word.unit.is_gang:
                await self._show(word, now)
        except KubeError:
            # Where no Gang can be written, people have the Event.
            await self._make_event(word, now)
            raise
        await self._make_event(word, now)

    async def _show(self, word: Word, now: str) -> None:
        unit = word.unit
        gang = self._find(unit.key)
        if gang is None:
            owners = owners_of(unit.owner, (*unit.waiting, *unit.settled))
            made = new_gang(unit.key, owners, size=unit.needed, link=unit.link)
            gang = await self._kube.create(gangs_of(unit.key.namespace), made, Gang)
        status = status_of(
            word.phase,
            members=word.members,
            plan=word.plan,
            reason=word.reason,
            before=gang.status,
            now=now,
        )
        if status != gang.status:
            steps = status_steps(gang, status)
            self._keep(await self._kube.patch(f"{gang.path}/status", steps, Gang, kind="json"))

    async def _make_event(self, word: Word, now: str) -> None:
        unit, news = word.unit, word.news
        if news is None:
            return
        owner, pod = unit.owner if unit.is_gang else None, (unit.waiting or unit.settled)[0]
        about = (
            About(owner.api_version, owner.kind, owner.name, owner.uid, unit.key.namespace)
            if owner
            else About("v1", "Pod", pod.name, pod.uid, unit.key.namespace)
        )
        event = event_of(news, about, change=self._change(word), now=now, instance=self._instance)
        try:
            await self._kube.create(f"/api/v1/namespaces/{about.home}/events", event, _Ignored)
        except ApiError as error:
            if error.status != 409:
                raise

    def _change(self, word: Word) -> str:
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
