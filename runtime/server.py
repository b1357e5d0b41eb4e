"""An HTTP server whose limits hold, and which ends without cutting anybody off.

Routes see only whole bodies within the limits. All refusals before a route are made here.
"""

import asyncio
import ssl
import time
from collections.abc import AsyncIterator, Awaitable, Mapping, Sequence
from contextlib import asynccontextmanager

import structlog
from aiohttp import web

from runtime.body import Body, Budget
from runtime.connection import Connection, written
from runtime.exchange import GONE_AWAY, Answer, Call, Observers, Route, Served, busy, refusal
from runtime.limits import Limits

_log = structlog.get_logger()
_DEFAULTS = Limits()


class Server:
    """A listener and its connections; made by `serve`.

    One process has one thread: between two `await`s nothing else happens, so counts need no lock.
    """

    def __init__(self, routes: Sequence[Route], limits: Limits, observers: Observers) -> None:
        self._loop = asyncio.get_running_loop()
        self._routes: dict[str, dict[str, Route]] = {}
        for route in routes:
            self._routes.setdefault(route.path, {})[route.method] = route
        self._limits = limits
        self._observers = observers
        self._engine = web.Server(self._serve)
        self._budget = Budget(limits.bytes_in_flight)
        self._listener: asyncio.Server | None = None
        self._active_at = self._loop.time()
        self._waiting = 0
        self.requests = 0
        """Whose answer is not made yet."""
        self.draining = False
        """True once the server asks its clients to go elsewhere; then it is not ready."""
        self.failures = 0
        """Routes that raised, so far."""

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
        return len(self._engine.connections)

    @property
    def bytes_in_flight(self) -> int:
        """Of all bodies that are held [bytes]."""
        return self._budget.held

    async def listen(self, host: str, port: int, context: ssl.SSLContext | None) -> None:
        """Accept connections from now on.

        Raises:
            OSError: The port is taken.
        """
        handshake = self._limits.handshake_seconds if context else None
        self._listener = await self._loop.create_server(
            self._connect,
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
            since = now if self.requests else self._active_at
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
        self._engine.pre_shutdown()
        await self._engine.shutdown(within)

    async def drop_slow_heads(self) -> None:
        """Close, for ever, connections whose head takes too long."""
        limit = self._limits.head_seconds
        while True:
            await asyncio.sleep(limit / 4)
            now = self._loop.time()
            for connection in self._open():
                if connection.head_since is not None and now - connection.head_since > limit:
                    connection.drop()

    def _connect(self) -> Connection:
        return Connection(
            self._engine, self._limits, opened=self._make_room, malformed=self._not_http
        )

    def _open(self) -> list[Connection]:
        return [one for one in self._engine.connections if isinstance(one, Connection)]

    def _make_room(self) -> None:
        """Keep connections within their limit; who is being answered is never dropped for it."""
        if self.connections > self._limits.connections:
            # The newest is idle, too, and the last to go.
            idle = [one for one in self._open() if one.idle]
            min(idle, key=lambda one: one.idle_since).drop()

    def _not_http(self, answer: Answer) -> None:
        self._observe("other", answer, 0.0, 0)

    async def _serve(self, request: web.BaseRequest) -> web.StreamResponse:
        connection = request.protocol
        assert isinstance(connection, Connection)  # noqa: S101 - `_connect` makes no others.
        # Not the loop's clock: uvloop's counts whole milliseconds.
        started = time.perf_counter()
        path, _, query = request.raw_path.partition("?")
        methods = self._routes.get(path)
        body = Body(self._budget)
        answer = Answer(status=GONE_AWAY)
        connection.begin()
        self.requests += 1
        try:
            answer = await self._answer(request, methods, body, query)
        except ConnectionError:
            raise
        except Exception:  # noqa: BLE001 - a bug in a route must not end the others' connections.
            self.failures += 1
            _log.exception("Route raised", path=path)
            answer = refusal(500, "internal error: the log has it")
        finally:
            body.close()
            self.requests -= 1
            connection.end()
            self._active_at = self._loop.time()
            label = "other" if methods is None else path
            self._observe(label, answer, time.perf_counter() - started, body.size)
        response = written(answer)
        if self.draining or not request.content.is_eof():
            response.force_close()
        return response

    async def _answer(
        self,
        request: web.BaseRequest,
        methods: Mapping[str, Route] | None,
        body: Body,
        query: str,
    ) -> Answer:
        if methods is None:
            return refusal(404, "there is nothing at this path")
        route = methods.get(request.method)
        if route is None:
            allowed = ", ".join(sorted(methods))
            return refusal(405, f"this path takes {allowed}", {"Allow": allowed})
        content: bytes | Answer = b""
        if route.takes:
            content = _unwelcome(request, route) or await body.read(request, self._limits)
        if isinstance(content, Answer):
            return content
        if self._waiting >= self._limits.requests:
            return busy("too many requests are being answered: send it again")
        found = route.answer(Call(route.path, query, request.headers, content))
        return found if isinstance(found, Answer) else await self._wait_for(found)

    async def _wait_for(self, found: Awaitable[Answer]) -> Answer:
        self._waiting += 1
        try:
            async with asyncio.timeout(self._limits.answer_seconds):
                return await found
        except TimeoutError:
            return refusal(504, f"no answer within {self._limits.answer_seconds:g} s")
        finally:
            self._waiting -= 1

    def _observe(self, path: str, answer: Answer, seconds: float, size: int) -> None:
        served = Served(path, answer.status, seconds, size, answer.fields)
        for observe in self._observers:
            observe(served)


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
    watch = asyncio.create_task(server.drop_slow_heads())
    try:
        yield server
    finally:
        watch.cancel()
        await server.stop()


def _unwelcome(request: web.BaseRequest, route: Route) -> Answer | None:
    encoding = request.headers.get("Content-Encoding", "identity")
    if encoding.strip().lower() != "identity":
        return refusal(415, "a body must come as it is: no Content-Encoding is taken")
    if request.headers.get("Content-Type", "").partition(";")[0].strip().lower() in route.takes:
        return None
    return refusal(415, f"this path takes {', '.join(sorted(route.takes))}")
