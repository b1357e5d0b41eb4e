"""The extender over HTTP, for the scheduler beside it: in the same pod, by the loopback alone.

Only the leader answers; a scheduler that asks another one tries its pod again later.
"""

from collections.abc import Callable
from typing import TypeVar

import msgspec

from runtime.http.limits import Limits
from runtime.http.types import JSON, HttpRequest, HttpResponse, Route, refusal
from scorer.extender.preempt import preemption
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
from scorer.leader import Leader, LeaderContext
from scorer.metrics import Metrics

T = TypeVar("T")

LIMITS = Limits(requests=800)
"""A scheduler binds all pods at once that it has nodes for; each waits for the API server."""

_TAKES = frozenset({JSON})


class Extender:
    """Answers a scheduler."""

    def __init__(self, leader: Leader, metrics: Metrics) -> None:
        """Say who knows and decides, and who is told how it went."""
        self._leader, self._metrics = leader, metrics

    def routes(self) -> list[Route]:
        """Return what is served: the verbs of the scheduler's configuration."""
        return [
            Route("POST", "/filter", self.filter, _TAKES),
            Route("POST", "/prioritize", self.prioritize, _TAKES),
            Route("POST", "/preempt", self.preempt, _TAKES),
            Route("POST", "/bind", self.bind, _TAKES),
        ]

    def filter(self, call: HttpRequest) -> HttpResponse:
        """Answer which nodes may take a pod."""
        found = self._understood(call, read_candidates)
        if isinstance(found, str):
            return self._answer("filter", "failed", FilterResult(error=found), reason=found)
        context, asked = found
        verdict = context.filter.run(asked.pod, asked.names)
        result = FilterResult(list(verdict.names), {**verdict.resolvable}, {**verdict.unresolvable})
        word = "fits" if verdict.names else "fits nowhere"
        return self._answer("filter", word, result, nodes=len(asked.names), fit=len(verdict.names))

    def prioritize(self, call: HttpRequest) -> HttpResponse:
        """Answer how well each node suits a pod."""
        found = self._understood(call, read_candidates)
        if isinstance(found, str):
            return self._refuse("prioritize", found)
        context, asked = found
        scores = context.filter.score(asked.pod, asked.names)
        result = list(map(HostPriority, asked.names, scores))
        return self._answer("prioritize", "ranked", result, nodes=len(asked.names))

    def preempt(self, call: HttpRequest) -> HttpResponse:
        """Answer on which nodes evictions help, and whose."""
        found = self._understood(call, read_preempt)
        if isinstance(found, str):
            return self._refuse("preempt", found)
        context, (pod, victims) = found
        result = PreemptResult(preemption(context.informers.state, pod, victims))
        word = "helps" if result.node_name_to_meta_victims else "helps nowhere"
        return self._answer("preempt", word, result, nodes=len(victims))

    async def bind(self, call: HttpRequest) -> HttpResponse:
        """Answer once a pod is bound, or why it is not."""
        found = self._understood(call, read_binding)
        if isinstance(found, str):
            return self._answer("bind", "failed", BindResult(found), reason=found)
        context, asked = found
        why = await context.binder.bind(asked)
        pod = f"{asked.pod_namespace}/{asked.pod_name}"
        told = {"reason": why} if why else {}
        word = "refused" if why else "bound"
        return self._answer("bind", word, BindResult(why), pod=pod, node=asked.node, **told)

    def _understood(
        self, call: HttpRequest, read: Callable[[bytes], T]
    ) -> tuple[LeaderContext, T] | str:
        """Return who decides and what is asked, or why that cannot be answered."""
        context = self._leader.context
        if context is None:
            return "this scorer does not lead"
        if why := context.missing():
            return why
        try:
            return context, read(call.body)
        except WireError as error:
            return str(error)

    def _answer(self, verb: str, result: str, value: object, **fields: object) -> HttpResponse:
        self._metrics.extended(verb, result)
        return HttpResponse(msgspec.json.encode(value), fields={"result": result, **fields})

    def _refuse(self, verb: str, why: str) -> HttpResponse:
        """Return the answer of a verb whose results tell no errors."""
        self._metrics.extended(verb, "failed")
        return refusal(503, why)
