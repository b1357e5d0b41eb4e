"""Serves the page on loopback: its files, its views, and its changes as server-sent events.

Each answer is complete: the browser asks for the next event by itself, with the version that it
has. So the limits of `runtime.http` hold for all clients, and nothing is kept for a slow one.
"""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from importlib.resources import files
from urllib.parse import parse_qsl

import msgspec

from cli.dashboard.earlier import earlier_ledgers, earlier_unit
from cli.dashboard.feed import CLIENTS, WAIT, Feed
from cli.dashboard.gang_changes import Past
from cli.dashboard.guard import HEADERS, Address, refusal
from cli.dashboard.trial import Trial
from cli.dashboard.views import namespace_rows, node_view, unit_views, waiting_view
from cli.render.page.drawing import DEFINITIONS
from cli.render.page.style import STYLE
from cluster.account.slots import free_slots
from runtime.http.limits import Limits
from runtime.http.server import Server, serve
from runtime.http.types import HttpRequest, HttpResponse, Route, error_response
from runtime.process.clock import monotonic

LIMITS = Limits(
    body_bytes=1 << 20,
    bytes_in_flight=64 << 20,
    requests=2 * CLIENTS,
    connections=3 * CLIENTS,
    peer_connections=3 * CLIENTS,
    peer_half_sent=CLIENTS,
    answer_seconds=WAIT + 10,
)
TRIAL_SECONDS = 20.0
"""The longest simulation of a manifest [s]."""
UNITS = 200
"""The number of units that waited at an earlier time which the page gets."""
YAML = "application/yaml"
LOOPBACK = "127.0.0.1"
_TYPES = {
    "html": "text/html; charset=utf-8",
    "css": "text/css; charset=utf-8",
    "js": "text/javascript; charset=utf-8",
    "svg": "image/svg+xml",
}
_EVENTS = "text/event-stream"
_RETRY = 50
"""Time after which the browser asks for the next event [ms]."""

Query = Mapping[str, str]


class Dashboard:
    """The routes of the page."""

    def __init__(self, feed: Feed, secret: str) -> None:
        """Start without an address, which is known once the server listens.

        Args:
            feed: The cluster.
            secret: The part of the address that nobody can guess.
        """
        self._feed, self._secret = feed, secret
        self._trying = False
        self.address: Address | None = None

    def routes(self) -> list[Route]:
        """Return all routes; their paths begin with the secret."""
        root = Address(0, self._secret).path
        static = [
            Route("GET", root + name, self._guarded(answer, is_page=not name))
            for name, answer in _static_answers().items()
        ]
        views: dict[str, Callable[[Query], Callable[[], object]]] = {
            "node": self._node,
            "waiting": self._waiting,
            "unit": self._unit,
            "namespaces": self._namespaces,
            "past": self._past,
            "samples": self._samples,
            "sets": self._sets,
        }
        return [
            *static,
            Route("GET", f"{root}api/events", self._guarded(self._events)),
            Route("POST", f"{root}api/trial", self._guarded(self._trial), frozenset((YAML,))),
            *(Route("GET", f"{root}api/{name}", self._view(view)) for name, view in views.items()),
        ]

    def _guarded(
        self,
        answer: Callable[[HttpRequest], HttpResponse | Awaitable[HttpResponse]],
        *,
        is_page: bool = False,
    ) -> Callable[[HttpRequest], HttpResponse | Awaitable[HttpResponse]]:
        def guarded(request: HttpRequest) -> HttpResponse | Awaitable[HttpResponse]:
            if self.address is None:
                return error_response(503, "the server is starting")
            if refused := refusal(self.address, request.headers, is_page=is_page):
                return error_response(403, refused, HEADERS)
            return answer(request)

        return guarded

    def _view(
        self, view: Callable[[Query], Callable[[], object]]
    ) -> Callable[[HttpRequest], HttpResponse | Awaitable[HttpResponse]]:
        async def answer(request: HttpRequest) -> HttpResponse:
            query = dict(parse_qsl(request.query, keep_blank_values=True))
            document = await self._feed.compute(view(query))
            return HttpResponse(msgspec.json.encode(document), headers=HEADERS)

        return self._guarded(answer)

    async def _events(self, request: HttpRequest) -> HttpResponse:
        last = request.headers.get("Last-Event-ID", "")
        message_id, update = await self._feed.next_update(last)
        body = b"retry: %d\nid: %b\ndata: %b\n\n" % (_RETRY, message_id.encode(), update)
        return HttpResponse(body, content_type=_EVENTS, headers=HEADERS)

    async def _trial(self, request: HttpRequest) -> HttpResponse:
        """Try one manifest at a time, beside the worker of the views."""
        if self._trying:
            return error_response(503, "another manifest is being tried: try again", HEADERS)
        end, moment = monotonic() + TRIAL_SECONDS, self._feed.moment
        text = request.body.decode(errors="replace")
        trial = Trial(text, lambda: monotonic() >= end)
        self._trying = True
        try:
            report = await asyncio.to_thread(trial.on, moment)
        finally:
            self._trying = False
        return HttpResponse(msgspec.json.encode(report), headers=HEADERS)

    def _node(self, query: Query) -> Callable[[], object]:
        moment = self._feed.moment
        return lambda: node_view(moment, query.get("name", ""))

    def _waiting(self, _: Query) -> Callable[[], object]:
        moment = self._feed.moment
        return lambda: waiting_view(moment)

    def _unit(self, query: Query) -> Callable[[], object]:
        moment, history = self._feed.moment, self._feed.history
        kind, namespace = query.get("kind", "gang"), query.get("namespace", "")
        name = query.get("name", "")
        if "at" not in query:
            past = Past(history.rows, history.changes)
            return lambda: unit_views(moment, past, kind, namespace, name) or None
        at, key, now = _time(query), (kind, namespace, name), moment.current.cluster.ledger.nodes
        then = Past(history.at(at), tuple(each for each in history.changes if each.at <= at))
        waited = history.waiting_at(at)
        unit = next((u for u in waited if (u.kind, u.namespace, u.name) == key), None)
        return lambda: earlier_unit(then, unit, now, key)

    def _namespaces(self, _: Query) -> Callable[[], object]:
        moment, history = self._feed.moment, self._feed.history
        rows = namespace_rows(moment, history)
        return lambda: {"since": history.began, "rows": rows}

    def _past(self, query: Query) -> Callable[[], object]:
        history, at = self._feed.history, _time(query)
        rows, waiting = list(history.at(at).values()), history.waiting_at(at)
        units = {"count": len(waiting), "first": waiting[:UNITS]}
        return lambda: {"at": at, "nodes": rows, "waiting": units}

    def _samples(self, _: Query) -> Callable[[], object]:
        samples = list(self._feed.history.samples)
        return lambda: samples

    def _sets(self, query: Query) -> Callable[[], object]:
        moment, history = self._feed.moment, self._feed.history
        samples = list(history.samples)
        if "at" not in query:
            return lambda: {"groups": moment.slots, "samples": samples}
        at, now = _time(query), moment.current.cluster.ledger.nodes
        rows, until = history.at(at), [each for each in samples if each.at <= at]
        return lambda: {"groups": free_slots(earlier_ledgers(rows, now)), "samples": until}


def _time(query: Query) -> float:
    """Return the moment that a request names [s since 1970]; 0, before all, if it is no number."""
    text = query.get("at", "")
    return float(text) if text.replace(".", "", 1).isdecimal() and len(text) < 30 else 0.0


def _static_answers() -> dict[str, Callable[[HttpRequest], HttpResponse]]:
    """Return an answer for each file of the page, by name; the page itself has an empty one."""
    folder = files("cli.dashboard").joinpath("page")
    texts = {each.name: each.read_text(encoding="utf-8") for each in folder.iterdir()}
    texts["base.css"] = STYLE
    texts[""] = texts.pop("index.html").replace("<!-- definitions -->", DEFINITIONS)
    return {name: _static(name, text) for name, text in texts.items()}


def _static(name: str, text: str) -> Callable[[HttpRequest], HttpResponse]:
    kind = _TYPES[name.rpartition(".")[2] or "html"]
    response = HttpResponse(text.encode(), content_type=kind, headers=HEADERS)
    return lambda _: response


@asynccontextmanager
async def serve_dashboard(
    feed: Feed, secret: str, port: int
) -> AsyncIterator[tuple[Server, Address]]:
    """Serve the page while the block runs.

    Args:
        feed: The cluster.
        secret: The part of the address that nobody can guess.
        port: On loopback; 0 for any that is free.

    Raises:
        OSError: The port is taken.
    """
    dashboard = Dashboard(feed, secret)
    async with serve(dashboard.routes(), host=LOOPBACK, port=port, limits=LIMITS) as server:
        dashboard.address = Address(server.port, secret)
        yield server, dashboard.address
