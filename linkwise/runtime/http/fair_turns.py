"""Answer the requests of all addresses in turn, so that costly ones delay their own address.

This is deficit round robin (Shreedhar and Varghese, 1996) with processor time as the size of a
request: each round of the event loop gives every address the same time, and what a request took
beyond it is paid in later rounds. Rounds without other work take microseconds, so an address that
is alone waits for nothing.
"""

import asyncio
import time
from collections import defaultdict, deque
from collections.abc import Callable
from dataclasses import dataclass
from typing import Generic, Protocol, TypeVar

QUANTUM = 0.005
"""Processor time of an address in one round [s]; a usual review takes a tenth of it."""


class Client(Protocol):
    """A connection, as it is needed here."""

    peer: str

    @property
    def connected(self) -> bool:
        """A client may still read an answer."""
        ...


T = TypeVar("T")


class FairTurns(Generic[T]):
    """The calls of a server that are to be made, by address.

    They are at most one for each connection.
    """

    def __init__(self) -> None:
        """Start without calls; an event loop must run."""
        self._loop = asyncio.get_running_loop()
        self._used: dict[str, float] = {}
        """Time that an address has used and not yet been given [s]."""
        self._waiting: defaultdict[str, deque[_Waiting[T]]] = defaultdict(deque)

    async def call(self, client: Client, function: Callable[[], T], otherwise: T) -> T:
        """Call a function that does not wait, once it is the turn of its client's address.

        Args:
            client: The connection.
            function: Answers its request.
            otherwise: The result for a client that was gone before its turn.

        Raises:
            Exception: Of the function.
        """
        if client.peer not in self._waiting and self._used.get(client.peer, 0.0) < QUANTUM:
            return self._timed(client.peer, function)
        result: asyncio.Future[T] = self._loop.create_future()
        self._waiting[client.peer].append(_Waiting(client, function, otherwise, result))
        return await result

    def _timed(self, peer: str, function: Callable[[], T]) -> T:
        started = time.thread_time()  # A process that is stopped meanwhile uses nothing.
        try:
            return function()
        finally:
            if not self._used:
                self._loop.call_soon(self._begin_round)
            self._used[peer] = self._used.get(peer, 0.0) + time.thread_time() - started

    def _begin_round(self) -> None:
        """Give each address its time, and make the calls that wait for it."""
        for peer, used in list(self._used.items()):
            self._used[peer] = max(0.0, used - QUANTUM)  # Time that is not used is not kept.
            waiting = self._waiting.get(peer)
            while waiting and self._used[peer] < QUANTUM:
                self._answer(waiting.popleft())
            if not waiting:
                self._waiting.pop(peer, None)
            if not self._used[peer]:
                del self._used[peer]
        if self._used:
            self._loop.call_soon(self._begin_round)

    def _answer(self, waiting: "_Waiting[T]") -> None:
        if waiting.result.done():
            return  # The server is being stopped.
        if not waiting.client.connected:
            waiting.result.set_result(waiting.otherwise)
            return
        try:
            waiting.result.set_result(self._timed(waiting.client.peer, waiting.function))
        except Exception as error:  # noqa: BLE001 - it is raised in the caller.
            waiting.result.set_exception(error)


@dataclass(frozen=True, slots=True)
class _Waiting(Generic[T]):
    client: Client
    function: Callable[[], T]
    otherwise: T
    result: asyncio.Future[T]
