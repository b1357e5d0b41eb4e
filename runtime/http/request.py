"""Requests, from their heads until they were answered, and what they share."""

import asyncio
import time
from collections.abc import Awaitable, Mapping, Sequence

import structlog
from aiohttp.http import RawRequestMessage

from runtime.http.body import Body, Budget
from runtime.http.limits import Limits
from runtime.http.types import (
    GONE_AWAY,
    HttpRequest,
    HttpResponse,
    Observers,
    Route,
    Served,
    busy,
    refusal,
)

Asked = tuple[Route, str, Mapping[str, str]]
"""A route, the query it is asked with, and the headers."""

_log = structlog.get_logger()


class Desk:
    """The routes, what all requests together are granted, and who is told of them."""

    def __init__(self, routes: Sequence[Route], limits: Limits, observers: Observers) -> None:
        self._loop = asyncio.get_running_loop()
        self._routes: dict[str, dict[str, Route]] = {}
        for route in routes:
            self._routes.setdefault(route.path, {})[route.method] = route
        self._observers = observers
        self.limits = limits
        self.budget = Budget(limits.bytes_in_flight)
        self.active_at = self._loop.time()
        """When the last request had its answer."""
        self.requests = 0
        """Whose answer is not made yet."""
        self.waiting = 0
        """Of them, those whose route waits for others."""
        self.failures = 0
        """Routes that raised, so far."""

    def begin(self, head: RawRequestMessage) -> "Request":
        """Return what is to become of a request."""
        self.requests += 1
        path, _, query = head.path.partition("?")
        methods = self._routes.get(path)
        if methods is None:
            return Request(self, "other", refusal(404, "there is nothing at this path"))
        route = methods.get(head.method)
        if route is None:
            allowed = ", ".join(sorted(methods))
            why = refusal(405, f"this path takes {allowed}", {"Allow": allowed})
            return Request(self, path, why)
        if not route.takes:
            return Request(self, path, (route, query, head.headers))
        body = Body(self.budget, self.limits)
        refused = _unwelcome(head.headers, route) or body.unwelcome(_announced(head.headers))
        if refused is not None:
            return Request(self, path, refused)
        return Request(self, path, (route, query, head.headers), body)

    def end(self, served: Served) -> None:
        """Take notice that a request has its answer."""
        self.requests -= 1
        self.active_at = self._loop.time()
        self.tell(served)

    def tell(self, served: Served) -> None:
        """Tell all observers."""
        for observe in self._observers:
            observe(served)


class Request:
    """One request; `answer` is called once its body is whole, and `end` always."""

    __slots__ = ("_asked", "_desk", "_label", "_started", "body")

    def __init__(
        self, desk: Desk, label: str, asked: Asked | HttpResponse, body: Body | None = None
    ) -> None:
        """Begin.

        Args:
            desk: What it shares with others.
            label: The path, where there is such a route.
            asked: The route's to answer; or the answer, where the head alone is refused.
            body: Where the body goes; None where none is read.
        """
        self._desk = desk
        self._label = label
        self._asked = asked
        self.body = body
        # Not the loop's clock: uvloop's counts whole milliseconds.
        self._started = time.perf_counter()

    def answer(self) -> HttpResponse | Awaitable[HttpResponse]:
        """Return the answer, or what to wait for; a route that raises is answered for."""
        if isinstance(self._asked, HttpResponse):
            return self._asked
        if self._desk.waiting >= self._desk.limits.requests:
            return busy("too many requests are being answered: send it again")
        route, query, headers = self._asked
        content = b"" if self.body is None else self.body.whole()
        try:
            found = route.answer(HttpRequest(route.path, query, headers, content))
        except Exception:  # noqa: BLE001 - a bug in a route must not end the others' connections.
            return self._failed()
        return found if isinstance(found, HttpResponse) else self._wait_for(found)

    def end(self, answer: HttpResponse | None) -> None:
        """Give back what was taken, and tell of it; None where the client left before."""
        size = 0
        if self.body is not None:
            size = self.body.size
            self.body.close()
        found = answer or HttpResponse(status=GONE_AWAY)
        seconds = time.perf_counter() - self._started
        self._desk.end(Served(self._label, found.status, seconds, size, found.fields))

    async def _wait_for(self, found: Awaitable[HttpResponse]) -> HttpResponse:
        limits = self._desk.limits
        self._desk.waiting += 1
        try:
            async with asyncio.timeout(limits.answer_seconds):
                return await found
        except TimeoutError:
            return refusal(504, f"no answer within {limits.answer_seconds:g} s")
        except Exception:  # noqa: BLE001 - as above.
            return self._failed()
        finally:
            self._desk.waiting -= 1

    def _failed(self) -> HttpResponse:
        self._desk.failures += 1
        _log.exception("Route raised", path=self._label)
        return refusal(500, "internal error: the log has it")


def _unwelcome(headers: Mapping[str, str], route: Route) -> HttpResponse | None:
    encoding = headers.get("Content-Encoding", "identity")
    if encoding.strip().lower() != "identity":
        return refusal(415, "a body must come as it is: no Content-Encoding is taken")
    if headers.get("Content-Type", "").partition(";")[0].strip().lower() in route.takes:
        return None
    return refusal(415, f"this path takes {', '.join(sorted(route.takes))}")


def _announced(headers: Mapping[str, str]) -> int:
    return int(headers.get("Content-Length", 0))
