"""A queue of keys whose newest state is to be processed, as client-go's `workqueue`.

A key is added at each change of its state. The state is read when its turn comes, so several
changes cost one turn. A key has one worker at a time: what it writes is never older than what was
written before. A key whose processing raises backs off, and the groups of keys take turns.
"""

import asyncio
import random
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Generic, TypeAlias

from linkwise.runtime.process.clock import loop_time, wait_at_most
from linkwise.runtime.process.fair_schedule import URGENT, FairSchedule, K, Limits

_JITTER = 0.8, 1.2
_DOUBLED_MAX = 32
_ONE_WORKER = Limits()

OnError: TypeAlias = Callable[[K, Exception, float | None], None]
"""Called with a key, what its processing raised, and the delay until it is processed again [s];
None: it is not."""


@dataclass(frozen=True, slots=True)
class Retry:
    """When a key is processed again whose processing raised."""

    initial: float
    """Delay after the first failure [s]. Each further failure in a row doubles it."""
    maximum: float
    """The longest delay [s]."""
    attempts: int | None = None
    """After so many failures in a row it is given up; None: never."""

    def delay(self, failures: int) -> float | None:
        """Return the delay after so many failures in a row [s], up to 20 % shorter or longer.

        None: it is given up. Keys that fail together are thus not tried again together.
        """
        if self.attempts is not None and failures >= self.attempts:
            return None
        doubled = self.initial * 2.0 ** min(failures - 1, _DOUBLED_MAX)
        return min(doubled, self.maximum) * random.uniform(*_JITTER)  # noqa: S311


@dataclass(frozen=True, slots=True)
class _Failure:
    count: int
    until: float
    """The end of the backoff [s, of the loop's clock]."""


class WorkQueue(Generic[K]):
    """Keys that are processed by a limited number of workers."""

    def __init__(
        self,
        process: Callable[[K], Awaitable[None]],
        *,
        retry: Retry,
        on_error: OnError[K],
        group: Callable[[K], str] = lambda _: "",
        limits: Limits = _ONE_WORKER,
    ) -> None:
        """Process nothing yet; `run` does.

        Args:
            process: Reads and processes the newest state of a key.
            retry: When a key is processed again whose processing raised.
            on_error: Called when `process` raises; it must not raise.
            group: Returns the group of a key, such as its namespace.
            limits: Of the keys that are processed at the same time.
        """
        self._process, self._retry, self._on_error = process, retry, on_error
        self._schedule = FairSchedule(group, limits)
        self._failures: dict[K, _Failure] = {}
        """Of the keys that back off, or are processed again after it."""
        self._wake = asyncio.Event()

    def add(self, key: K, *, delay: float = 0.0, rank: int = 0) -> None:
        """Let a key be processed after a time [s], and not before the end of its backoff.

        Args:
            key: The key. If it is being processed, it is processed once more.
            delay: A key that is queued keeps the earlier time.
            rank: Keys of a lower rank come first; `URGENT` does without the backoff, too.
        """
        due, failure = loop_time() + delay, self._failures.get(key)
        if failure is not None and rank != URGENT:
            due = max(due, failure.until)
        self._schedule.add(key, due, rank)
        self._wake.set()

    def discard(self, key: K) -> None:
        """Do not process a key any more, and forget its failures."""
        self._schedule.discard(key)
        self._failures.pop(key, None)

    def size(self, group: str) -> int:
        """Return how many keys of a group are queued or being processed."""
        return self._schedule.size(group)

    def rest(self, group: str, seconds: float) -> None:
        """Start to process no key of a group for a time [s]."""
        self._schedule.rest(group, loop_time(), seconds)

    async def run(self) -> None:
        """Process keys until cancelled."""
        async with asyncio.TaskGroup() as workers:
            while True:
                while (key := self._schedule.take(loop_time())) is not None:
                    workers.create_task(self._work(key))
                await wait_at_most(self._schedule.time_left(loop_time()), self._wake)
                self._wake.clear()

    async def _work(self, key: K) -> None:
        try:
            await self._process(key)
        except Exception as error:  # noqa: BLE001 - one key must not end the others.
            self._back_off(key, error)
        else:
            self._failures.pop(key, None)
        finally:
            self._schedule.finish(key)
            self._wake.set()

    def _back_off(self, key: K, error: Exception) -> None:
        before = self._failures.pop(key, None)
        failures = before.count + 1 if before else 1
        delay = self._retry.delay(failures)
        if delay is not None:
            until = loop_time() + delay
            self._failures[key] = _Failure(failures, until)
            self._schedule.postpone(key, until)
        self._on_error(key, error, delay)
