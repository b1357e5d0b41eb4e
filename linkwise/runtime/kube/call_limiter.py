"""Limit of the calls in flight to an API server: additive increase, multiplicative decrease.

A busy API server answers fewer calls in time the more it gets at once. So a call without an answer
in time halves the limit, and calls that are answered raise it again, up to the initial limit.
Calls beyond the limit wait; the namespaces take turns, so that a gang of thousands of pods does not
delay the writes for others.
"""

import asyncio
from collections import OrderedDict, deque
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from linkwise.runtime.kube.errors import KubeError, is_timeout


class CallLimiter:
    """The calls in flight, and those that wait."""

    def __init__(self, most: int) -> None:
        """Start without calls.

        Args:
            most: The initial limit, which is the highest one, too.
        """
        self._most, self._limit = most, float(most)
        self._running, self._started, self._halved_at = 0, 0, 0
        self._waiting: OrderedDict[str, deque[asyncio.Future[None]]] = OrderedDict()
        """By group, in the order of their turns. Cancelled ones are skipped."""
        self._is_closed = False

    @property
    def limit(self) -> int:
        """The number of calls that may be in flight now."""
        return int(self._limit)

    def close(self) -> None:
        """Cancel the calls that wait, and all later ones; calls in flight go on."""
        self._is_closed = True
        for turns in self._waiting.values():
            for turn in turns:
                turn.cancel()
        self._waiting.clear()

    @asynccontextmanager
    async def slot(self, group: str) -> AsyncIterator[None]:
        """Make one call in the block, once the limit allows it.

        Args:
            group: The groups take turns.

        Raises:
            CancelledError: The limiter was closed before.
        """
        await self._turn(group)
        self._started += 1
        number = self._started
        try:
            yield
        except KubeError as error:
            self._adapt(number, timed_out=is_timeout(error))
            raise
        else:
            self._adapt(number, timed_out=False)
        finally:
            self._end()

    async def _turn(self, group: str) -> None:
        turn = asyncio.get_running_loop().create_future()
        if self._is_closed:
            turn.cancel()
        self._waiting.setdefault(group, deque()).append(turn)
        self._start_next()
        try:
            await turn
        except asyncio.CancelledError:
            if not turn.cancelled():
                # The task was cancelled after its turn had come.
                self._end()
            raise

    def _end(self) -> None:
        self._running -= 1
        self._start_next()

    def _start_next(self) -> None:
        while self._waiting and self._running < self.limit:
            group, turns = self._waiting.popitem(last=False)
            turn = turns.popleft()
            if turns:
                self._waiting[group] = turns
            if not turn.done():
                self._running += 1
                turn.set_result(None)

    def _adapt(self, number: int, *, timed_out: bool) -> None:
        """Adapt the limit to the outcome of a call; the calls of one overload halve it once."""
        if not timed_out:
            self._limit = min(self._limit + 1 / self._limit, self._most)
        elif number > self._halved_at:
            self._limit = max(self._limit / 2, 1.0)
            self._halved_at = self._started
