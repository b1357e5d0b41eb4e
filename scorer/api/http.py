"""HTTP endpoints of the leader: inspection for people on the loopback, dry runs for the webhook.

They are read-only: a response shows the state on which the next decision is based.
"""

import asyncio
import dataclasses
from collections.abc import Callable
from urllib.parse import parse_qsl

import msgspec
from msgspec import Struct

from linkwise.cluster.keys import FIT_AUDIENCE, WEBHOOK_USER
from linkwise.cluster.whatif_api import MAX_PODS, PATH, FitRequest, FitResponse
from linkwise.planning.gang.placed_units import placed_units
from linkwise.planning.gang.victim_choice import RunningUnits
from linkwise.planning.placement.state.node_cache import DeadlineExceeded
from linkwise.planning.placement.state.snapshot import Snapshot
from linkwise.planning.whatif.fit import settled_in, would_fit
from linkwise.planning.whatif.preemption import without_names
from linkwise.runtime.http.authentication import Callers
from linkwise.runtime.http.limits import Limits
from linkwise.runtime.http.types import (
    JSON,
    HttpRequest,
    HttpResponse,
    Route,
    error_response,
    retry_later,
)
from linkwise.runtime.kube.client import Kube
from linkwise.runtime.process.clock import Clock, wall
from scorer.leader import Leader
from scorer.leader_context import LeaderContext
from scorer.preemption.units import rules_of
from scorer.report.inspection import view_gangs, view_nodes

WHATIF_LIMITS = Limits(body_bytes=1 << 20, bytes_in_flight=8 << 20, requests=40, connections=50)
"""Of the webhook's requests, so that they leave processor time to the planner."""

_fit_requests = msgspec.json.Decoder(FitRequest)


class Inspection:
    """Shows the allocations of GPUs, and why pods wait."""

    def __init__(self, leader: Leader) -> None:
        self._leader = leader

    def routes(self) -> list[Route]:
        """Return the routes."""
        return [Route("GET", "/v1/nodes", self.nodes), Route("GET", "/v1/gangs", self.gangs)]

    async def nodes(self, request: HttpRequest) -> HttpResponse:
        """Return the allocations on all nodes, or on one with `?name=`."""
        return await self._respond(request, "name", _nodes)

    async def gangs(self, request: HttpRequest) -> HttpResponse:
        """Return all gangs and pending units, or those of one namespace with `?namespace=`."""
        return await self._respond(request, "namespace", _gangs)

    async def _respond(
        self,
        request: HttpRequest,
        parameter: str,
        view: Callable[[LeaderContext, str | None], Callable[[], Struct]],
    ) -> HttpResponse:
        query = dict(parse_qsl(request.query, keep_blank_values=True))
        if query.keys() - {parameter}:
            return error_response(400, f"the only query parameter is {parameter}=<name>")
        context = _leading(self._leader)
        if isinstance(context, HttpResponse):
            return context
        return await _render(view(context, query.get(parameter)))


class WhatIf:
    """Answers the webhook whether pods would fit that do not exist yet."""

    def __init__(self, leader: Leader, kube: Kube, clock: Clock, *, limit: float) -> None:
        """Start without requests.

        Args:
            leader: Has the state of the cluster.
            kube: Reviews tokens.
            clock: A monotonic clock [s].
            limit: How long one request may be computed [s].
        """
        self._leader, self._clock, self._limit = leader, clock, limit
        self._callers = Callers(kube, FIT_AUDIENCE, clock)
        self._working: asyncio.Task[HttpResponse] | None = None

    def routes(self) -> list[Route]:
        """Return the routes."""
        return [Route("POST", PATH, self.answer, frozenset({JSON}))]

    async def answer(self, request: HttpRequest) -> HttpResponse:
        """Simulate in a thread, one request at a time, so that the planner has processor time."""
        if refused := await self._refused(request):
            return refused
        if self._working is not None and not self._working.done():
            return retry_later("another dry run is in progress")
        try:
            fit_request = _fit_requests.decode(request.body)
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
            return error_response(400, f"the body is no valid request: {error}")
        if fit_request.pods > MAX_PODS or not all(each.names for each in fit_request.templates):
            return error_response(413, f"ask about 1 to {MAX_PODS} pods, and some of each template")
        context = _leading(self._leader)
        if isinstance(context, HttpResponse):
            return context
        deadline = self._clock() + self._limit
        fits = _fits(context, fit_request, lambda: self._clock() >= deadline)
        self._working = asyncio.create_task(self._in_time(fits))
        # A thread cannot be cancelled: if the client leaves, others are refused until it ends.
        return await asyncio.shield(self._working)

    async def _in_time(self, fits: Callable[[], Struct]) -> HttpResponse:
        try:
            return await _render(fits)
        except DeadlineExceeded:
            return retry_later(
                f"this takes more than {self._limit:g} s; ask about fewer pods at once"
            )

    async def _refused(self, request: HttpRequest) -> HttpResponse | None:
        """Return the refusal of a caller that is not the webhook."""
        caller = await self._callers.user(request)
        if isinstance(caller, HttpResponse):
            return caller
        is_webhook = caller.username == WEBHOOK_USER
        return None if is_webhook else error_response(403, "ask the webhook instead")


def _leading(leader: Leader) -> LeaderContext | HttpResponse:
    """Return the leader's context, or the refusal of a process that does not lead."""
    context = leader.context
    if context is None:
        return error_response(
            503, "another replica leads: the holder of Lease linkwise-system/linkwise-scorer"
        )
    why = context.missing()
    return retry_later(why) if why else context


async def _render(view: Callable[[], Struct]) -> HttpResponse:
    """Compute and encode a response in a thread."""
    return HttpResponse(await asyncio.to_thread(lambda: msgspec.json.encode(view())))


def _nodes(context: LeaderContext, name: str | None) -> Callable[[], Struct]:
    snapshot = context.informers.state.snapshot()
    return lambda: view_nodes(snapshot, context.term, name)


def _gangs(context: LeaderContext, namespace: str | None) -> Callable[[], Struct]:
    gangs, waiting = tuple(context.informers.gangs.values()), tuple(context.planner.waiting())
    return lambda: view_gangs(gangs, waiting, context.term, namespace)


def _fits(
    context: LeaderContext, request: FitRequest, is_expired: Callable[[], bool]
) -> Callable[[], Struct]:
    state = context.informers.state
    snapshot = state.snapshot().fork(is_expired)
    settled = settled_in(state, request)
    reservation = context.planner.reservation
    highest = max(template.pod.spec.priority or 0 for template in request.templates)
    running = _running(context, snapshot, highest)
    namespaces = {template.pod.metadata.namespace or "default" for template in request.templates}

    def fits() -> FitResponse:
        found = would_fit(snapshot, request, settled, reservation, running)
        return FitResponse([without_names(fit, namespaces) for fit in found])

    return fits


def _running(
    context: LeaderContext, snapshot: Snapshot, highest: int
) -> Callable[[], RunningUnits | None]:
    """Return what gathers, in another thread, the units that may be evicted.

    Args:
        context: Has the pods, and the preemptions under way.
        snapshot: The cluster.
        highest: The highest priority of the pods that do not exist yet.
    """
    informers, planner, now = context.informers, context.planner, wall()
    pods, owners = informers.state.pods, informers.owners
    mode = informers.policy.policy.gangs.preemption.mode
    rules, evicting = rules_of(informers, now), planner.evicting
    under_way = planner.preemptions(now)

    def running() -> RunningUnits | None:
        lower = (pod.usage for pod in pods if pod.usage and pod.usage.priority < highest)
        if mode == "never" or next(lower, None) is None:
            return None
        units = placed_units(pods, owners, snapshot.ledger.nodes, rules)
        victims = [unit.victim for unit in units if unit.key not in evicting]
        return dataclasses.replace(under_way, units=victims)

    return running
