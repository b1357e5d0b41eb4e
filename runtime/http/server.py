"""An HTTP server whose limits hold, and which ends without cutting anybody off.

Routes see only whole bodies within the limits. All refusals before a route are made here.
"""

import asyncio
import ssl
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager, suppress

from aiohttp.http import RawRequestMessage

from runtime.http.connection import Connection
from runtime.http.limits import Limits
from runtime.http.peers import Room
from runtime.http.request import Desk, Request
from runtime.http.types import HttpResponse, Observers, Route, Served

_DEFAULTS = Limits()


class Server:
    """A listener and its connections; made by `serve`.

    One process has one thread: between two `await`s nothing else happens, so counts need no lock.
    """

    def __init__(self, routes: Sequence[Route], limits: Limits, observers: Observers) -> None:
        self._loop = asyncio.get_running_loop()
        self._limits = limits
        self._desk = Desk(routes, limits, observers)
        self.room: Room[Connection] = Room(limits)
        self._none_open = asyncio.Event()
        self._none_open.set()
        self._listener: asyncio.Server | None = None
        self.draining = False
        """True once the server asks its clients to go elsewhere; then it is not ready."""

    @property
    def port(self) -> int:
        """The port that is listened on."""
        if self._listener is None:
            raise RuntimeError("the server does not listen yet")
        port: int = self._listener.sockets[0].getsockname()[1]
        return port

    @property
    def connections(self) -> int:
        """How many are open."""
        return len(self.room.open)

    @property
    def bytes_in_flight(self) -> int:
        """Of all bodies that are held [bytes]."""
        return self._desk.budget.held

    def dropped(self, reason: str) -> int:
        """Return how many connections were dropped so far, by a reason of `runtime.http.peers`."""
        return self.room.dropped[reason]

    @property
    def requests(self) -> int:
        """How many have no answer yet."""
        return self._desk.requests

    @property
    def failures(self) -> int:
        """Routes that raised, so far."""
        return self._desk.failures

    async def listen(self, host: str, port: int, context: ssl.SSLContext | None) -> None:
        """Accept connections from now on.

        Raises:
            OSError: The port is taken.
        """
        handshake = self._limits.handshake_seconds if context else None
        self._listener = await self._loop.create_server(
            lambda: Connection(self, self._limits),
            host,
            port,
            ssl=context,
            ssl_handshake_timeout=handshake,
            backlog=self._limits.backlog,
        )

    async def drain(self, *, quiet: float = 15, at_most: float = 60) -> None:
        """Serve on, ask clients to close their connections, and return when nobody comes any more.

        Endpoints lose a pod some time after it is told to end, and an API server uses connections
        that it has for as long as they last: whoever stops listening first makes creates fail.

        Args:
            quiet: Without a request for so long, nobody comes any more [s].
            at_most: After so long, return all the same [s].
        """
        self.draining = True
        end = self._loop.time() + at_most
        while (now := self._loop.time()) < end:
            since = now if self._desk.requests else self._desk.active_at
            if now - since >= quiet:
                return
            await asyncio.sleep(min(since + quiet, end) - now)

    async def stop(self, *, within: float = 5) -> None:
        """Listen no more, finish what is being answered, and close every connection.

        Args:
            within: What is not answered after so long is cut [s].
        """
        self.draining = True
        if self._listener is not None:
            self._listener.close()
        for one in list(self.room.open):
            one.close()
        with suppress(TimeoutError):
            async with asyncio.timeout(within):
                await self._none_open.wait()
        for one in list(self.room.open):
            one.drop()

    async def end_what_is_overdue(self) -> None:
        """Hold all connections, for ever, to the times they are granted."""
        limits = self._limits
        shortest = min(
            limits.head_seconds,
            limits.body_seconds,
            limits.keep_alive_seconds,
            limits.linger_seconds,
        )
        while True:
            await asyncio.sleep(shortest / 4)
            now = self._loop.time()
            for one in list(self.room.open):
                one.overdue(now)

    def opened(self, connection: Connection) -> None:
        """Keep connections within their limit; who is being answered is never dropped for it."""
        self._none_open.clear()
        self.room.enter(connection, self._loop.time())

    def closed(self, connection: Connection) -> None:
        """Forget a connection."""
        self.room.leave(connection)
        if not self.room.open:
            self._none_open.set()

    def begin(self, head: RawRequestMessage) -> Request:
        """Return what is to become of a request."""
        return self._desk.begin(head)

    def malformed(self, answer: HttpResponse) -> None:
        """Tell of what is not HTTP."""
        self._desk.tell(Served("other", answer.status, 0.0, 0, answer.fields))


@asynccontextmanager
async def serve(
    routes: Sequence[Route],
    *,
    host: str,
    port: int,
    context: ssl.SSLContext | None = None,
    limits: Limits = _DEFAULTS,
    observers: Observers = (),
) -> AsyncIterator[Server]:
    """Serve while the block runs, and finish what is being answered when it ends.

    Args:
        routes: All that is served; anything else is 404 or 405.
        host: Address to listen on.
        port: Port to listen on; 0 for any that is free.
        context: For HTTPS; without it, plain HTTP.
        limits: What clients are granted.
        observers: Called once for every request, before its answer is written.

    Raises:
        OSError: The port is taken.
    """
    server = Server(routes, limits, observers)
    await server.listen(host, port, context)
    watch = asyncio.create_task(server.end_what_is_overdue())
    try:
        yield server
    finally:
        watch.cancel()
        await server.stop()
