"""Answer the requests of a server: routes, limits, counts."""

import asyncio
import time
from collections.abc import Awaitable, Mapping, Sequence
from typing import cast

import structlog
from aiohttp import StreamReader, web

from linkwise.runtime.http.body import Body, ByteBudget, too_large
from linkwise.runtime.http.connection import Connection
from linkwise.runtime.http.fair_turns import FairTurns
from linkwise.runtime.http.limits import Limits
from linkwise.runtime.http.types import (
    CLIENT_CLOSED_REQUEST,
    CompletedRequest,
    HttpRequest,
    HttpResponse,
    Observers,
    Route,
    error_response,
)
from linkwise.runtime.http.waiting_places import WaitingPlaces

HANDLED = web.RequestKey("HANDLED", bool)
"""Set in a request that aiohttp gave to the handler: its head could be parsed."""

_CLOSED = HttpResponse(status=CLIENT_CLOSED_REQUEST)

_log = structlog.get_logger()


class Handler:
    """The handler of a server's requests, with the limits that they share."""

    def __init__(self, routes: Sequence[Route], limits: Limits, observers: Observers) -> None:
        self._loop = asyncio.get_running_loop()
        self._routes: dict[str, dict[str, Route]] = {}
        for route in routes:
            self._routes.setdefault(route.path, {})[route.method] = route
        self._limits = limits
        self._observers = observers
        self.budget = ByteBudget(limits.bytes_in_flight)
        self._turns: FairTurns[HttpResponse | Awaitable[HttpResponse]] = FairTurns()
        self.draining = False
        """Every answer asks the client to close its connection."""
        self.active_at = self._loop.time()
        """Time of the last answer."""
        self.requests = 0
        """Requests without an answer."""
        self._places = WaitingPlaces(limits)

    async def __call__(self, request: web.BaseRequest) -> web.Response:
        """Answer a request whose head has arrived."""
        started = time.perf_counter()  # Not the loop's clock: uvloop's counts whole milliseconds.
        request[HANDLED] = True
        path, route = self._route(request)
        # Of a TLS connection that was just closed, uvloop knows no protocol.
        protocol = None if request.transport is None else request.transport.get_protocol()
        if protocol is None:
            self.observe(CompletedRequest(path, _CLOSED.status, 0.0, 0, {}))
            return web.Response()
        connection = cast("Connection", protocol)
        connection.begin_request()
        self.requests += 1
        body, response = Body(self.budget, self._limits, connection), _CLOSED
        try:
            response = await self._answer(request, route, body, connection)
        finally:
            self.requests -= 1
            self.active_at = self._loop.time()
            seconds = time.perf_counter() - started
            read = body.size
            self.observe(CompletedRequest(path, response.status, seconds, read, response.fields))
            body.close()
        abandoned = not request.content.is_eof()
        last = abandoned or self.draining or _closes(request)
        connection.end_request(read, len(response.body), last=last, abandoned=abandoned)
        return convert(response, last=last)

    def observe(self, completed: CompletedRequest) -> None:
        """Call all observers."""
        for observer in self._observers:
            observer(completed)

    def _route(self, request: web.BaseRequest) -> tuple[str, Route | HttpResponse]:
        """Return the path as a label, and the route or why there is none."""
        path = request.rel_url.raw_path
        methods = self._routes.get(path)
        if methods is None:
            return "other", error_response(404, "there is nothing at this path")
        if route := methods.get(request.method):
            return path, route
        allowed = ", ".join(sorted(methods))
        return path, error_response(405, f"this path takes {allowed}", {"Allow": allowed})

    async def _answer(
        self,
        request: web.BaseRequest,
        route: Route | HttpResponse,
        body: Body,
        connection: Connection,
    ) -> HttpResponse:
        if isinstance(route, HttpResponse):
            return route
        if route.content_types and (refused := await self._read(request, route, body, connection)):
            return refused
        connection.await_turn()
        query = request.rel_url.raw_query_string

        def answer() -> HttpResponse | Awaitable[HttpResponse]:
            connection.begin_answer()
            content = body.content()
            return route.answer(
                HttpRequest(route.path, query, request.headers, content, connection.peer)
            )

        try:
            response = await self._turns.call(connection, answer, _CLOSED)
            if isinstance(response, HttpResponse):
                return response
            return await self._places.wait(connection.peer, response)
        except Exception:  # noqa: BLE001 - a bug in a route must not end other connections.
            _log.exception("Handler failed", path=route.path)
            return error_response(500, "internal error: the log has it")

    async def _read(
        self, request: web.BaseRequest, route: Route, body: Body, connection: Connection
    ) -> HttpResponse | None:
        """Read the body; return why the request is refused, None where it is not."""
        if refused := _unsupported(request.headers, route):
            return refused
        if (request.content_length or 0) > self._limits.body_bytes:
            return too_large(self._limits)
        content: StreamReader = request.content
        try:
            if (refused := body.take(content.read_nowait())) or content.is_eof():
                return refused
            expectation = request.headers.get("Expect", "").lower()
            connection.begin_waiting(expects_continue=expectation == "100-continue")
            return await body.take_rest(content)
        except Exception:  # noqa: BLE001 - aiohttp documents no common base of its exceptions.
            if request.transport is None:
                return _CLOSED
            return error_response(400, "the body cannot be read")


def _unsupported(headers: Mapping[str, str], route: Route) -> HttpResponse | None:
    encoding = headers.get("Content-Encoding", "identity")
    if encoding.strip().lower() != "identity":
        return error_response(415, "a body must come as it is: no Content-Encoding is taken")
    if headers.get("Content-Type", "").partition(";")[0].strip().lower() in route.content_types:
        return None
    return error_response(415, f"this path takes {', '.join(sorted(route.content_types))}")


def _closes(request: web.BaseRequest) -> bool:
    """The client ends the connection, or wants another protocol, which is not served."""
    return not request.keep_alive or request.version < (1, 1) or "Upgrade" in request.headers


def convert(answer: HttpResponse, *, last: bool) -> web.Response:
    """Return aiohttp's form of an answer; with the last one the connection ends."""
    headers = {"Content-Type": answer.content_type, "Server": "linkwise", **answer.headers}
    response = web.Response(body=answer.body, status=answer.status, headers=headers)
    if last:
        response.headers["Connection"] = "close"  # aiohttp omits it in HTTP/1.0.
        response.force_close()
    return response
