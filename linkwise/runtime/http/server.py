"""An HTTP server whose limits hold, and which ends without losing a request.

aiohttp's server speaks HTTP. Routes see only whole bodies within the limits.
"""

import asyncio
import ssl
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import asynccontextmanager, contextmanager, suppress
from operator import attrgetter

import structlog

from linkwise.runtime.http.body import ByteBudget
from linkwise.runtime.http.connection import Connection, handlers_called
from linkwise.runtime.http.connection_limiter import ConnectionLimiter
from linkwise.runtime.http.handler import Handler
from linkwise.runtime.http.limits import Limits
from linkwise.runtime.http.listener import Listener
from linkwise.runtime.http.protocol import HttpServer
from linkwise.runtime.http.types import Observers, Route
from linkwise.runtime.http.unread_answers import UnreadAnswers

_log = structlog.get_logger()
_DEFAULTS = Limits()
_SWEEP_SECONDS = 0.1
"""Longest time between two checks of connections [s]."""
_CANCEL_SECONDS = 0.05
"""Longest time for a cancelled route to end [s]."""


class Server:
    """A listener and its connections; made by `serve`.

    All counts are changed by one thread, between two `await`s; they need no lock.
    """

    def __init__(self, routes: Sequence[Route], limits: Limits, observers: Observers) -> None:
        self._loop = asyncio.get_running_loop()
        self._limits = limits
        self.handler = Handler(routes, limits, observers)
        self._http = HttpServer(self.handler, limits)
        self.limiter: ConnectionLimiter[Connection] = ConnectionLimiter(limits)
        self._answers = UnreadAnswers(self.handler.budget, self.limiter, limits)
        self._ahead = ByteBudget(limits.bytes_ahead)
        self._listener: Listener | None = None

    @property
    def draining(self) -> bool:
        """The server asks its clients to connect elsewhere; then it is not ready."""
        return self.handler.draining

    @property
    def port(self) -> int:
        """The port of the listener."""
        if self._listener is None:
            raise RuntimeError("the server does not listen yet")
        return self._listener.port

    def dropped(self, reason: str) -> int:
        """Return how many connections were dropped so far for one of `REASONS`."""
        return self.limiter.dropped[reason]

    async def listen(self, host: str, port: int, context: ssl.SSLContext | None) -> None:
        """Accept connections from now on.

        Raises:
            OSError: The port is taken.
        """

        def connection(peer: str) -> Connection:
            shared = self.limiter, self._answers, self._ahead
            return Connection(self._http, *shared, self._limits, peer)

        self._listener = Listener(self.limiter, self._limits, connection, context)
        await self._listener.listen(host, port)

    async def drain(self, *, quiet: float = 15, at_most: float = 60) -> None:
        """Serve on, ask clients to close their connections, and wait until no request comes.

        A pod is removed from the endpoints some time after it is asked to end, and an API server
        uses its connections as long as they last. If the listener closed first, creates would fail.

        Args:
            quiet: Return once no request came for this time [s].
            at_most: Return after this time in any case [s].
        """
        self.handler.draining = True
        end = self._loop.time() + at_most
        while (now := self._loop.time()) < end:
            since = now if self.handler.requests else self.handler.active_at
            if now - since >= quiet:
                return
            await asyncio.sleep(min(since + quiet, end) - now)

    async def stop(self, *, within: float = 5) -> None:
        """Close the listener, answer what has arrived, and close every connection.

        Args:
            within: Requests that have no answer after this time are cancelled [s].
        """
        self.handler.draining = True
        if self._listener is not None:
            self._listener.close()
        for connection in list(self.limiter.open):
            connection.close()
        with suppress(TimeoutError):
            async with asyncio.timeout(within):
                await self.limiter.empty.wait()
        await self._http.shutdown(_CANCEL_SECONDS)
        for connection in list(self.limiter.open):
            connection.drop()

    async def enforce_times(self) -> None:
        """Drop connections that exceed their time limits. Runs until cancelled."""
        limits = self._limits
        period = min(_SWEEP_SECONDS, limits.head_seconds / 4, limits.linger_seconds / 4)
        while True:
            await self.limiter.occupied.wait()
            await asyncio.sleep(period)
            incomplete = [each for each in self.limiter.open if each.head_incomplete]
            await handlers_called()
            for connection in sorted(incomplete, key=attrgetter("since")):
                with _isolated(connection):
                    connection.count_half_sent()
            now = self._loop.time()
            self._answers.enforce(now)
            for connection in list(self.limiter.open):
                with _isolated(connection):
                    connection.enforce(now)


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
    """Serve while the block runs, and answer what has arrived when it ends.

    Args:
        routes: All that is served; anything else is 404 or 405.
        host: Address to listen on.
        port: Port to listen on; 0 for any that is free.
        context: For HTTPS; without it, plain HTTP.
        limits: Limits of clients.
        observers: Called once for every request, before its answer is written.

    Raises:
        OSError: The port is taken.
    """
    server = Server(routes, limits, observers)
    await server.listen(host, port, context)
    sweep = asyncio.create_task(server.enforce_times())
    try:
        yield server
    finally:
        sweep.cancel()
        await server.stop()


@contextmanager
def _isolated(connection: Connection) -> Iterator[None]:
    """Log an unforeseen exception and drop its connection; the limits of others still hold."""
    try:
        yield
    except Exception:  # noqa: BLE001 - one connection must not end the limits of all.
        _log.exception("Could not enforce limits of connection", peer=connection.peer)
        connection.drop()
