"""Admission over HTTP: which route, which status, what the log and the metrics are told."""

import asyncio
from collections.abc import Awaitable

from policy.snapshot import PolicySnapshot
from runtime.exchange import JSON, Answer, Call, Route, busy, refusal
from webhook.admit import admit
from webhook.measures import Measures
from webhook.outcome import Verdict
from webhook.review import ProtocolError, Review, parse, respond, untouched
from webhook.validate import validate
from webhook.watches import Watches

WAIT = 0.5
"""For a namespace that the watch has not shown yet [s]."""
_TAKES = frozenset({JSON})


class Admission:
    """Answers an API server from what the watches have told; it asks nobody."""

    def __init__(self, watches: Watches, measures: Measures) -> None:
        self._watches = watches
        self._measures = measures

    def routes(self) -> list[Route]:
        """Return what is served to the API server."""
        return [
            Route("POST", "/mutate", self.mutate, _TAKES),
            Route("POST", "/validate", self.validate, _TAKES),
        ]

    def mutate(self, call: Call) -> Answer | Awaitable[Answer]:
        """Answer the review of a pod; a namespace that is not known yet is waited for."""
        try:
            review = parse(call.body)
        except ProtocolError as error:
            return refusal(400, str(error))
        if review.pod is None:
            return Answer(untouched(review), fields={"uid": review.uid, "verdict": _SKIPPED})
        if why := self._watches.missing():
            return busy(why)
        if self._knows(review.namespace):
            return self._decide(review)
        return self._decide_later(review)

    async def validate(self, call: Call) -> Answer:
        """Answer the review of a ConfigMap, in a thread: a long one must not hold up pods."""
        try:
            judged = await asyncio.to_thread(validate, call.body)
        except ProtocolError as error:
            return refusal(400, str(error))
        fields = {"uid": judged.uid, "verdict": judged.verdict, "source": judged.source}
        codes = [problem.code.value for problem in judged.problems]
        return Answer(judged.answer, fields={**fields, "findings": codes})

    def _knows(self, namespace: str) -> bool:
        """Say whether all is known that the policy asks of a namespace."""
        return namespace in self._watches.namespaces or not _asks_namespaces(
            self._watches.decided.snapshot
        )

    async def _decide_later(self, review: Review) -> Answer:
        came = await self._watches.comes(review.namespace, within=WAIT)
        self._measures.waited(came=came)
        if not came:
            return busy(f"namespace {review.namespace} is not known yet")
        return self._decide(review)

    def _decide(self, review: Review) -> Answer:
        assert review.pod is not None  # noqa: S101 - others were answered before.
        policy = self._watches.decided.snapshot
        outcome = admit(
            review.pod,
            namespace=review.namespace,
            namespace_labels=self._watches.namespaces.get(review.namespace),
            policy=policy,
            capacity=self._watches.capacity,
        )
        self._measures.judged(outcome, dry_run=review.dry_run)
        fields = {
            "uid": review.uid,
            "namespace": review.namespace,
            "name": review.name or review.pod.metadata.generate_name,
            "dry_run": review.dry_run,
            "verdict": outcome.verdict.value,
            "findings": [finding.code.value for finding in outcome.findings],
            "operations": len(outcome.patch),
            "generation": policy.generation,
        }
        return Answer(respond(review, outcome), fields=fields)


_SKIPPED = Verdict.SKIPPED.value


def _asks_namespaces(policy: PolicySnapshot) -> bool:
    return any(selector.namespace for selector in policy.profiles.selectors)
