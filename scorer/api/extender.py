"""The scheduler extender over HTTP, for the scheduler in the same pod, on the loopback only.

Only the leader has results; a scheduler beside another replica retries its pods later.
"""

from collections.abc import Callable
from typing import TypeVar

import msgspec

from linkwise.runtime.http.limits import Limits
from linkwise.runtime.http.types import JSON, HttpRequest, HttpResponse, Route, error_response
from scorer.extender.wire import (
    BindResult,
    FilterResult,
    HostPriority,
    PreemptResult,
    WireError,
    read_binding,
    read_candidates,
    read_preempt,
)
from scorer.leader import Leader
from scorer.leader_context import LeaderContext
from scorer.metrics import Metrics

T = TypeVar("T")

EXTENDER_LIMITS = Limits(requests=800, connections=900, peer_connections=700)
"""A scheduler binds many pods concurrently, and each request waits for the API server."""

_TAKES = frozenset({JSON})


class Extender:
    """The verbs of the extender."""

    def __init__(self, leader: Leader, metrics: Metrics) -> None:
        self._leader, self._metrics = leader, metrics

    def routes(self) -> list[Route]:
        """Return one route for each verb of the scheduler's configuration."""
        return [
            Route("POST", "/filter", self.filter, _TAKES),
            Route("POST", "/prioritize", self.prioritize, _TAKES),
            Route("POST", "/preempt", self.preempt, _TAKES),
            Route("POST", "/bind", self.bind, _TAKES),
        ]

    def filter(self, request: HttpRequest) -> HttpResponse:
        """Return the nodes on which a pod fits."""
        parsed = self._parse(request, read_candidates)
        if isinstance(parsed, str):
            return self._respond("filter", "failed", FilterResult(error=parsed), reason=parsed)
        context, candidates = parsed
        verdict = context.filter.run(candidates.pod, candidates.names)
        context.refusals.note(candidates.pod, verdict)
        result = FilterResult(list(verdict.names), {**verdict.resolvable}, {**verdict.unresolvable})
        outcome = "fits" if verdict.names else "fits nowhere"
        nodes, fit = len(candidates.names), len(verdict.names)
        return self._respond("filter", outcome, result, nodes=nodes, fit=fit)

    def prioritize(self, request: HttpRequest) -> HttpResponse:
        """Return the score of each node for a pod."""
        parsed = self._parse(request, read_candidates)
        if isinstance(parsed, str):
            return self._refuse("prioritize", parsed)
        context, candidates = parsed
        scores = context.filter.score(candidates.pod, candidates.names)
        result = list(map(HostPriority, candidates.names, scores))
        return self._respond("prioritize", "ranked", result, nodes=len(candidates.names))

    def preempt(self, request: HttpRequest) -> HttpResponse:
        """Return the nodes on which evictions help, each with its victims."""
        parsed = self._parse(request, read_preempt)
        if isinstance(parsed, str):
            return self._refuse("preempt", parsed)
        context, (pod, victims) = parsed
        result = PreemptResult(context.preemption.run(pod, victims))
        outcome = "helps" if result.node_name_to_meta_victims else "helps nowhere"
        return self._respond("preempt", outcome, result, nodes=len(victims))

    async def bind(self, request: HttpRequest) -> HttpResponse:
        """Bind a pod; return why it was refused, or an empty error."""
        parsed = self._parse(request, read_binding)
        if isinstance(parsed, str):
            return self._respond("bind", "failed", BindResult(parsed), reason=parsed)
        context, binding = parsed
        refusal = await context.binder.bind(binding)
        pod = f"{binding.pod_namespace}/{binding.pod_name}"
        fields = {"reason": refusal.reason} if refusal else {}
        outcome = "refused" if refusal else "bound"
        result = BindResult(refusal.reason if refusal else "")
        return self._respond("bind", outcome, result, pod=pod, node=binding.node, **fields)

    def _parse(
        self, request: HttpRequest, read: Callable[[bytes], T]
    ) -> tuple[LeaderContext, T] | str:
        """Return the leader's context and the parsed body, or why there is no result."""
        context = self._leader.context
        if context is None:
            return "this scorer does not lead"
        if why := context.missing():
            return why
        try:
            return context, read(request.body)
        except WireError as error:
            return str(error)

    def _respond(self, verb: str, outcome: str, result: object, **fields: object) -> HttpResponse:
        self._metrics.extended(verb, outcome)
        return HttpResponse(msgspec.json.encode(result), fields={"result": outcome, **fields})

    def _refuse(self, verb: str, reason: str) -> HttpResponse:
        """Return the response of a verb whose result has no field for errors."""
        self._metrics.extended(verb, "failed")
        return error_response(503, reason)
