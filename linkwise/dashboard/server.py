"""Serves the page: its files, its views, and its changes as server-sent events.

Each answer is complete: the page asks for the next event by itself, with the version that it has.
So the limits of `linkwise.runtime.http` hold for all clients, and nothing is kept for a slow one.
"""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from importlib.resources import files
from typing import TypeAlias
from urllib.parse import parse_qsl

import msgspec

from linkwise.dashboard.entrance import Entrance, Loopback, Visit
from linkwise.dashboard.feed import CLIENTS, WAIT, Feed
from linkwise.dashboard.guard import HEADERS, Address
from linkwise.dashboard.queries import Query, Views
from linkwise.dashboard.trial import Trial
from linkwise.runtime.http.limits import Limits
from linkwise.runtime.http.server import Server, serve
from linkwise.runtime.http.types import HttpRequest, HttpResponse, Route, error_response
from linkwise.runtime.process.clock import monotonic
from linkwise.runtime.process.turns import Turns
from linkwise.views.render.page.assets import MODULES, STYLE
from linkwise.views.render.page.drawing import DEFINITIONS

LIMITS = Limits(
    body_bytes=1 << 20,
    bytes_in_flight=64 << 20,
    requests=2 * CLIENTS,
    connections=3 * CLIENTS,
    peer_connections=3 * CLIENTS,
    peer_half_sent=CLIENTS,
    answer_seconds=WAIT + 10,
)
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

Answer: TypeAlias = HttpResponse | Awaitable[HttpResponse]


TRIAL_SECONDS = 20.0
"""The longest time for one manifest that is tried, with its pauses [s]."""


class Dashboard:
    """The routes of the page."""

    def __init__(self, entrance: Entrance, trial_seconds: float = TRIAL_SECONDS) -> None:
        """Serve the clusters to which an entrance leads.

        Args:
            entrance: Authorizes requests.
            trial_seconds: The longest time for one manifest that is tried, with its pauses [s].
        """
        self._entrance, self._trial_seconds = entrance, trial_seconds
        self._turns = Turns(places=1, each=1)

    def routes(self) -> list[Route]:
        """Return all routes."""
        root = self._entrance.path
        static = [
            Route("GET", root + name, self._guarded(answer, is_page=not name))
            for name, answer in _static_answers().items()
        ]
        views: dict[str, Callable[[Views, Query], Callable[[], object]]] = {
            "node": Views.node,
            "waiting": Views.waiting,
            "unit": Views.unit,
            "namespaces": Views.namespaces,
            "past": Views.past,
            "samples": Views.samples,
            "sets": Views.sets,
        }
        return [
            *static,
            Route("GET", f"{root}api/events", self._entered(_events)),
            Route("POST", f"{root}api/trial", self._visited(self._trial), frozenset((YAML,))),
            *(Route("GET", f"{root}api/{name}", self._view(view)) for name, view in views.items()),
        ]

    def _guarded(
        self, answer: Callable[[HttpRequest], Answer], *, is_page: bool = False
    ) -> Callable[[HttpRequest], Answer]:
        def guarded(request: HttpRequest) -> Answer:
            return self._entrance.refuse(request, is_page=is_page) or answer(request)

        return guarded

    def _visited(
        self, answer: Callable[[Visit, HttpRequest], Awaitable[HttpResponse]]
    ) -> Callable[[HttpRequest], Answer]:
        async def visited(request: HttpRequest) -> HttpResponse:
            async with self._entrance.enter(request) as visit:
                return visit if isinstance(visit, HttpResponse) else await answer(visit, request)

        return self._guarded(visited)

    def _entered(
        self, answer: Callable[[Feed, HttpRequest], Awaitable[HttpResponse]]
    ) -> Callable[[HttpRequest], Answer]:
        return self._visited(lambda visit, request: answer(visit.feed, request))

    def _view(
        self, view: Callable[["Views", Query], Callable[[], object]]
    ) -> Callable[[HttpRequest], Answer]:
        async def answer(feed: Feed, request: HttpRequest) -> HttpResponse:
            query = dict(parse_qsl(request.query, keep_blank_values=True))
            document = await feed.compute(view(Views(feed), query))
            return HttpResponse(msgspec.json.encode(document), headers=HEADERS)

        return self._entered(answer)

    async def _trial(self, visit: Visit, request: HttpRequest) -> HttpResponse:
        """Try one manifest at a time, while no view is computed; the users take turns."""
        feed, user = visit
        if refusal := self._turns.refusal(user):
            return error_response(503, refusal, HEADERS)
        await self._turns.begin(user)
        end, moment = monotonic() + self._trial_seconds, feed.moment
        text = request.body.decode(errors="replace")

        def is_over() -> bool:
            feed.views.pause(end - monotonic())
            return monotonic() >= end

        trial = Trial(text, is_over)
        work = asyncio.get_running_loop().run_in_executor(None, trial.on, moment)
        work.add_done_callback(lambda _: self._turns.end(user))
        # The thread works on after its client has left, and is the only one until then.
        report = await asyncio.shield(work)
        return HttpResponse(msgspec.json.encode(report), headers=HEADERS)


async def _events(feed: Feed, request: HttpRequest) -> HttpResponse:
    last = request.headers.get("Last-Event-ID", "")
    message_id, update = await feed.next_update(last)
    body = b"retry: %d\nid: %b\ndata: %b\n\n" % (_RETRY, message_id.encode(), update)
    return HttpResponse(body, content_type=_EVENTS, headers=HEADERS)


def _static_answers() -> dict[str, Callable[[HttpRequest], HttpResponse]]:
    """Return an answer for each file of the page, by name; the page itself has an empty one."""
    folder = files("linkwise.dashboard").joinpath("page")
    texts = {each.name: each.read_text(encoding="utf-8") for each in folder.iterdir()}
    texts |= {**MODULES, "base.css": STYLE}
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
    entrance = Loopback(feed, secret)
    routes = Dashboard(entrance).routes()
    async with serve(routes, host=LOOPBACK, port=port, limits=LIMITS) as server:
        entrance.address = Address(server.port, secret)
        yield server, entrance.address
