"""Admission over HTTP: which route, which status, what the log and the metrics are told."""

import re
from collections.abc import Awaitable, Sequence

import structlog

from cluster.keys import DRY_RUN_AUDIENCE
from cluster.whatif_api import FitResult
from manifest.value import InputError
from policy.snapshot import PolicySnapshot
from runtime.http.authentication import Caller, caller_of
from runtime.http.types import JSON, HttpRequest, HttpResponse, Route, busy, refusal
from runtime.kube.client import Kube, KubeError
from runtime.process.worker import BusyError, LimitError, Worker
from webhook.access import may_create_pods
from webhook.admit import admit, unreadable
from webhook.config_review import (
    ConfigText,
    Judged,
    given_up,
    judged,
    lint_text,
    problems_in,
    read_review,
)
from webhook.dryrun import (
    PATH,
    answer,
    judge_body,
    judged_in,
    list_namespaces,
    namespaces_in,
)
from webhook.informers import Informers
from webhook.messages import printable
from webhook.metrics import Metrics
from webhook.outcome import Outcome, Verdict
from webhook.review import ProtocolError, Review, parse, respond, untouched
from webhook.scorer_client import Scorer, UnknownError

WAIT = 0.5
"""For a namespace that the watch has not shown yet [s]."""
_TAKES = frozenset({JSON})
_YAML = "application/yaml"
_NAME = re.compile(r"[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?")

_log = structlog.get_logger()


class Admission:
    """Answers an API server from what the watches have told; it asks nobody."""

    def __init__(self, watches: Informers, measures: Metrics, worker: Worker) -> None:
        self._watches = watches
        self._measures = measures
        self._worker = worker

    def routes(self) -> list[Route]:
        """Return what is served to the API server."""
        return [
            Route("POST", "/mutate", self.mutate, _TAKES),
            Route("POST", "/validate", self.validate, _TAKES),
        ]

    def mutate(self, call: HttpRequest) -> HttpResponse | Awaitable[HttpResponse]:
        """Answer the review of a pod; a namespace that is not known yet is waited for."""
        try:
            review = parse(call.body)
        except ProtocolError as error:
            return refusal(400, str(error))
        if review.unreadable:
            return self._answer(review, unreadable(review.unreadable))
        if review.pod is None:
            return HttpResponse(untouched(review), fields={"uid": review.uid, "verdict": _SKIPPED})
        if why := self._watches.missing():
            return busy(why)
        if self._knows(review.namespace):
            return self._decide(review)
        return self._decide_later(review)

    def validate(self, call: HttpRequest) -> HttpResponse | Awaitable[HttpResponse]:
        """Answer the review of a ConfigMap; its text is judged by another process, one at a time.

        Callers are not authenticated. Only one text waits at a time, so that a flood of reviews
        leaves the worker free for dry runs.
        """
        try:
            found = read_review(call.body)
        except ProtocolError as error:
            return refusal(400, str(error))
        if isinstance(found, Judged):
            return _validated(found)
        return self._validate(found)

    async def _validate(self, question: ConfigText) -> HttpResponse:
        if self._worker.under_way(lint_text):
            return busy("another ConfigMap is being judged: send it again")
        try:
            found = await self._worker.run(lint_text, question.home.key, question.text)
        except LimitError as error:
            return _validated(given_up(question, str(error)))
        return _validated(judged(question, problems_in(found)))

    def _knows(self, namespace: str) -> bool:
        """Say whether all is known that the policy asks of a namespace."""
        return namespace in self._watches.namespaces or not _asks_namespaces(
            self._watches.decided.snapshot
        )

    async def _decide_later(self, review: Review) -> HttpResponse:
        came = await self._watches.comes(review.namespace, within=WAIT)
        self._measures.waited(came=came)
        if not came:
            return busy(f"namespace {review.namespace} is not known yet")
        return self._decide(review)

    def _decide(self, review: Review) -> HttpResponse:
        assert review.pod is not None  # noqa: S101 - others were answered before.
        policy = self._watches.decided.snapshot
        outcome = admit(
            review.pod,
            namespace=review.namespace,
            namespace_labels=self._watches.namespaces.get(review.namespace),
            policy=policy,
            capacity=self._watches.capacity,
        )
        return self._answer(review, outcome)

    def _answer(self, review: Review, outcome: Outcome) -> HttpResponse:
        self._measures.judged(outcome, dry_run=review.dry_run)
        fields = {
            "uid": review.uid,
            "namespace": review.namespace,
            "name": review.name or (review.pod.metadata.generate_name if review.pod else ""),
            "dry_run": review.dry_run,
            "verdict": outcome.verdict.value,
            "findings": [finding.code.value for finding in outcome.findings],
            "operations": len(outcome.patch),
            "generation": self._watches.decided.snapshot.generation,
        }
        return HttpResponse(respond(review, outcome), fields=fields)


class DryRun:
    """Answers people what admission would do, with what the API server lets them ask about."""

    def __init__(self, watches: Informers, kube: Kube, scorer: Scorer, worker: Worker) -> None:
        """Keep what requests are answered with.

        Args:
            watches: What admission knows.
            kube: The API server, which knows the rights of callers.
            scorer: Says where pods would fit.
            worker: Reads and judges manifests.
        """
        self._watches = watches
        self._kube = kube
        self._scorer = scorer
        self._worker = worker

    def routes(self) -> list[Route]:
        """Return what is served to people."""
        return [Route("POST", PATH, self.answer, frozenset({JSON, _YAML}))]

    async def answer(self, call: HttpRequest) -> HttpResponse:
        """Answer for a manifest; another process reads and judges it."""
        namespace = _namespace_of(call.query)
        if namespace is None:
            return refusal(400, "of a query, only namespace=<name> is read")
        try:
            caller = await caller_of(self._kube, call, DRY_RUN_AUDIENCE)
            if caller is None:
                needed = f"bring a token made for the audience {DRY_RUN_AUDIENCE}"
                return refusal(401, needed, {"WWW-Authenticate": "Bearer"})
            return await self._judge(call.body, namespace, caller)
        except (InputError, BusyError, LimitError) as error:
            return _not_judged(error)
        except KubeError as error:
            _log.warning("Could not ask who may", err=str(error))
            return busy("the API server does not tell who you are and what you may")

    async def _judge(self, body: bytes, namespace: str, caller: Caller) -> HttpResponse:
        namespaces = namespaces_in(await self._worker.run(list_namespaces, body, namespace))
        for one in namespaces:
            if not await may_create_pods(self._kube, caller, one):
                return refusal(403, f"you may not create pods in namespace {printable(one)}")
        if why := self._watches.missing():
            return busy(why)
        known = self._watches.namespaces
        found = judged_in(
            await self._worker.run(
                judge_body,
                body,
                namespace,
                {name: known.get(name) for name in namespaces},
                self._watches.decided.snapshot,
                self._watches.capacity,
            )
        )
        fits: Sequence[FitResult] | str = ()
        if found.asked:
            try:
                fits = await self._scorer.fits(found.question)
            except UnknownError as error:
                fits = str(error)
        fields = {"user": caller.username, "templates": len(found.pods)}
        return HttpResponse(answer(found, fits), fields=fields)


_SKIPPED = Verdict.SKIPPED.value


def _validated(found: Judged) -> HttpResponse:
    fields = {"uid": found.uid, "verdict": found.verdict, "source": found.source}
    codes = [problem.code.value for problem in found.problems]
    return HttpResponse(found.answer, fields={**fields, "findings": codes})


def _not_judged(error: InputError | BusyError | LimitError) -> HttpResponse:
    match error:
        case InputError():
            return refusal(400, printable(str(error)))
        case BusyError():
            return busy("too many manifests are being judged: send it again")
        case LimitError():
            return refusal(413, f"the manifest cannot be judged: {error}; send less of it at once")


def _namespace_of(query: str) -> str | None:
    """Return the namespace that a query names; None where it asks for something else."""
    name, _, value = query.partition("=")
    if not query:
        return "default"
    return value if name == "namespace" and _NAME.fullmatch(value) else None


def _asks_namespaces(policy: PolicySnapshot) -> bool:
    return any(selector.namespace for selector in policy.profiles.selectors)
