"""What the leader answers over HTTP: to people by the process's loopback, and to the webhook.

Only the leader knows. Nothing is written; what is answered is what the next decision stands on.
"""

import asyncio
from collections.abc import Callable
from urllib.parse import parse_qsl

import msgspec
import structlog
from msgspec import Struct

from cluster.keys import FIT_AUDIENCE, WEBHOOK_USER
from cluster.whatif_api import MOST_PODS, PATH, FitAnswer, FitQuestion
from runtime.http.authentication import caller_of
from runtime.http.limits import Limits
from runtime.http.types import JSON, HttpRequest, HttpResponse, Route, busy, refusal
from runtime.kube.client import Kube, KubeError
from runtime.process.clock import Clock
from scorer.leader import Leader, LeaderContext
from scorer.placement.node_cache import DeadlineExceeded
from scorer.queue.time_budget import LONG
from scorer.report.inspection import view_gangs, view_nodes
from scorer.whatif.fit import settled_in, would_fit

FEW = Limits(body_bytes=1 << 20, bytes_in_flight=8 << 20, requests=8, connections=50)
"""For the webhook: it must leave the planner its processor."""

_questions = msgspec.json.Decoder(FitQuestion)
_log = structlog.get_logger()


class Inspection:
    """Answers people who has which GPU, and why not."""

    def __init__(self, leader: Leader) -> None:
        self._leader = leader

    def routes(self) -> list[Route]:
        """Return what is served."""
        return [Route("GET", "/v1/nodes", self.nodes), Route("GET", "/v1/gangs", self.gangs)]

    async def nodes(self, call: HttpRequest) -> HttpResponse:
        """Answer who has which GPU: of one node with `?name=`."""
        return await self._answer(call, "name", _nodes)

    async def gangs(self, call: HttpRequest) -> HttpResponse:
        """Answer how gangs stand, and what waits: of one namespace with `?namespace=`."""
        return await self._answer(call, "namespace", _gangs)

    async def _answer(
        self,
        call: HttpRequest,
        filtered: str,
        view: Callable[[LeaderContext, str | None], Callable[[], Struct]],
    ) -> HttpResponse:
        asked = dict(parse_qsl(call.query, keep_blank_values=True))
        if asked.keys() - {filtered}:
            return refusal(400, f"of a query, only {filtered}=<name> is read")
        context = _leading(self._leader)
        if isinstance(context, HttpResponse):
            return context
        return await _made(view(context, asked.get(filtered)))


class WhatIf:
    """Answers the webhook, and nobody else, whether pods would fit that are not there yet."""

    def __init__(self, leader: Leader, kube: Kube, clock: Clock) -> None:
        """Say who knows, who tells whose a token is, and by which clock time goes on evenly."""
        self._leader, self._kube, self._clock = leader, kube, clock
        self._working: asyncio.Task[HttpResponse] | None = None

    def routes(self) -> list[Route]:
        """Return what is served."""
        return [Route("POST", PATH, self.answer, frozenset({JSON}))]

    async def answer(self, call: HttpRequest) -> HttpResponse:
        """Answer in a thread, one question at a time and not for long: the planner goes first."""
        if refused := await self._refused(call):
            return refused
        if self._working is not None and not self._working.done():
            return busy("it is answering somebody else")
        try:
            question = _questions.decode(call.body)
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
            return refusal(400, f"this is no question about pods: {error}")
        if question.pods > MOST_PODS or not all(asked.names for asked in question.templates):
            return refusal(413, f"ask about 1 to {MOST_PODS} pods, and some of each template")
        context = _leading(self._leader)
        if isinstance(context, HttpResponse):
            return context
        until = self._clock() + LONG
        fits = _fits(context, question, lambda: self._clock() >= until)
        self._working = asyncio.create_task(_in_time(fits))
        # Who asks may leave, but no thread ends for that: until it has, nobody else is answered.
        return await asyncio.shield(self._working)

    async def _refused(self, call: HttpRequest) -> HttpResponse | None:
        try:
            caller = await caller_of(self._kube, call, FIT_AUDIENCE)
        except KubeError as error:
            _log.warning("Could not ask who calls", err=str(error))
            return busy("the API server does not tell who you are")
        if caller is None:
            needed = f"bring a token made for the audience {FIT_AUDIENCE}"
            return refusal(401, needed, {"WWW-Authenticate": "Bearer"})
        return None if caller.username == WEBHOOK_USER else refusal(403, "ask the webhook instead")


def _leading(leader: Leader) -> LeaderContext | HttpResponse:
    """Return who decides, or the answer that nobody here does."""
    context = leader.context
    if context is None:
        return refusal(
            503, "another replica leads: the holder of Lease linkwise-system/linkwise-scorer"
        )
    why = context.missing()
    return busy(why) if why else context


async def _made(view: Callable[[], Struct]) -> HttpResponse:
    """Answer what was taken at this moment; it is put together in a thread."""
    return HttpResponse(await asyncio.to_thread(lambda: msgspec.json.encode(view())))


async def _in_time(fits: Callable[[], Struct]) -> HttpResponse:
    try:
        return await _made(fits)
    except DeadlineExceeded:
        return busy(f"this takes more than {LONG:g} s; ask about fewer pods at once")


def _nodes(context: LeaderContext, name: str | None) -> Callable[[], Struct]:
    snapshot = context.informers.state.snapshot()
    return lambda: view_nodes(snapshot, context.term, name)


def _gangs(context: LeaderContext, namespace: str | None) -> Callable[[], Struct]:
    gangs, waiting = tuple(context.informers.gangs.values()), tuple(context.planner.waiting())
    return lambda: view_gangs(gangs, waiting, context.term, namespace)


def _fits(
    context: LeaderContext, question: FitQuestion, over: Callable[[], bool]
) -> Callable[[], Struct]:
    state = context.informers.state
    snapshot = state.snapshot().fork(over)
    settled = settled_in(state, question)
    reserved = context.planner.reserved
    return lambda: FitAnswer(would_fit(snapshot, question, settled, reserved))
