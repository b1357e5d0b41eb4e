"""Admission over HTTP: which route, which status, what the log and the metrics are told."""

import re
from collections.abc import Awaitable, Sequence

import structlog

from cluster.keys import DRY_RUN_AUDIENCE
from cluster.whatif_api import FitResult
from manifest.value import InputError
from policy.snapshot import PolicySnapshot
from runtime.http.authentication import UserInfo, authenticate
from runtime.http.types import JSON, HttpRequest, HttpResponse, Route, error_response, retry_later
from runtime.kube.client import Kube, KubeError
from runtime.process.worker import BusyError, LimitError, Worker
from webhook.access import may_create_pods
from webhook.admit import admit, deny_unreadable
from webhook.config_validation import (
    ConfigResponse,
    ConfigReview,
    config_response,
    decode_problems,
    limit_response,
    lint_text,
    read_config_review,
)
from webhook.dryrun import (
    PATH,
    decode_namespaces,
    decode_result,
    dry_run_body,
    encode_dry_run,
    list_namespaces,
)
from webhook.informers import Informers
from webhook.messages import printable
from webhook.metrics import Metrics
from webhook.outcome import Outcome, Verdict
from webhook.review import (
    PodReview,
    ProtocolError,
    allow_unchanged,
    encode_response,
    parse_pod_review,
)
from webhook.scorer_client import NoPlacementError, ScorerClient

NAMESPACE_TIMEOUT = 0.5
"""For a namespace that the watch has not shown yet [s]."""
_TAKES = frozenset({JSON})
_YAML = "application/yaml"
_NAME = re.compile(r"[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?")

_log = structlog.get_logger()


class Admission:
    """Answers an API server from what the watches have told; it asks nobody."""

    def __init__(self, informers: Informers, metrics: Metrics, worker: Worker) -> None:
        self._informers = informers
        self._metrics = metrics
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
            review = parse_pod_review(call.body)
        except ProtocolError as error:
            return error_response(400, str(error))
        if review.unreadable:
            return self._answer(review, deny_unreadable(review.unreadable))
        if review.pod is None:
            return HttpResponse(
                allow_unchanged(review), fields={"uid": review.uid, "verdict": _SKIPPED}
            )
        if why := self._informers.missing():
            return retry_later(why)
        if self._knows(review.namespace):
            return self._decide(review)
        return self._decide_later(review)

    def validate(self, call: HttpRequest) -> HttpResponse | Awaitable[HttpResponse]:
        """Answer the review of a ConfigMap; its text is judged by another process, one at a time.

        Callers are not authenticated. Only one text waits at a time, so that a flood of reviews
        leaves the worker free for dry runs.
        """
        try:
            found = read_config_review(call.body)
        except ProtocolError as error:
            return error_response(400, str(error))
        if isinstance(found, ConfigResponse):
            return _validated(found)
        return self._validate(found)

    async def _validate(self, question: ConfigReview) -> HttpResponse:
        if self._worker.pending_jobs(lint_text):
            return retry_later("another ConfigMap is being judged: send it again")
        try:
            found = await self._worker.run(lint_text, question.source.key, question.text)
        except LimitError as error:
            return _validated(limit_response(question, str(error)))
        return _validated(config_response(question, decode_problems(found)))

    def _knows(self, namespace: str) -> bool:
        """Say whether all is known that the policy asks of a namespace."""
        return namespace in self._informers.namespaces or not _asks_namespaces(
            self._informers.config.snapshot
        )

    async def _decide_later(self, review: PodReview) -> HttpResponse:
        came = await self._informers.wait_for_namespace(review.namespace, within=NAMESPACE_TIMEOUT)
        self._metrics.count_wait(came=came)
        if not came:
            return retry_later(f"namespace {review.namespace} is not known yet")
        return self._decide(review)

    def _decide(self, review: PodReview) -> HttpResponse:
        assert review.pod is not None  # noqa: S101 - others were answered before.
        policy = self._informers.config.snapshot
        outcome = admit(
            review.pod,
            namespace=review.namespace,
            namespace_labels=self._informers.namespaces.get(review.namespace),
            policy=policy,
            capacity=self._informers.capacity,
        )
        return self._answer(review, outcome)

    def _answer(self, review: PodReview, outcome: Outcome) -> HttpResponse:
        self._metrics.count_review(outcome, dry_run=review.dry_run)
        fields = {
            "uid": review.uid,
            "namespace": review.namespace,
            "name": review.name or (review.pod.metadata.generate_name if review.pod else ""),
            "dry_run": review.dry_run,
            "verdict": outcome.verdict.value,
            "findings": [finding.code.value for finding in outcome.findings],
            "operations": len(outcome.patch),
            "generation": self._informers.config.snapshot.generation,
        }
        return HttpResponse(encode_response(review, outcome), fields=fields)


class DryRun:
    """Answers people what admission would do, with what the API server lets them ask about."""

    def __init__(
        self, informers: Informers, kube: Kube, scorer: ScorerClient, worker: Worker
    ) -> None:
        """Keep what requests are answered with.

        Args:
            informers: What admission knows.
            kube: The API server, which knows the rights of callers.
            scorer: Says where pods would fit.
            worker: Reads and judges manifests.
        """
        self._informers = informers
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
            return error_response(400, "of a query, only namespace=<name> is read")
        try:
            caller = await authenticate(self._kube, call, DRY_RUN_AUDIENCE)
            if caller is None:
                needed = f"bring a token made for the audience {DRY_RUN_AUDIENCE}"
                return error_response(401, needed, {"WWW-Authenticate": "Bearer"})
            return await self._judge(call.body, namespace, caller)
        except (InputError, BusyError, LimitError) as error:
            return _not_judged(error)
        except KubeError as error:
            _log.warning("Could not ask who may", err=str(error))
            return retry_later("the API server does not tell who you are and what you may")

    async def _judge(self, body: bytes, namespace: str, caller: UserInfo) -> HttpResponse:
        namespaces = decode_namespaces(await self._worker.run(list_namespaces, body, namespace))
        for one in namespaces:
            if not await may_create_pods(self._kube, caller, one):
                return error_response(403, f"you may not create pods in namespace {printable(one)}")
        if why := self._informers.missing():
            return retry_later(why)
        known = self._informers.namespaces
        found = decode_result(
            await self._worker.run(
                dry_run_body,
                body,
                namespace,
                {name: known.get(name) for name in namespaces},
                self._informers.config.snapshot,
                self._informers.capacity,
            )
        )
        fits: Sequence[FitResult] | str = ()
        if found.asked:
            try:
                fits = await self._scorer.fits(found.question)
            except NoPlacementError as error:
                fits = str(error)
        fields = {"user": caller.username, "templates": len(found.pods)}
        return HttpResponse(encode_dry_run(found, fits), fields=fields)


_SKIPPED = Verdict.SKIPPED.value


def _validated(found: ConfigResponse) -> HttpResponse:
    fields = {"uid": found.uid, "verdict": found.verdict, "source": found.source}
    codes = [problem.code.value for problem in found.problems]
    return HttpResponse(found.answer, fields={**fields, "findings": codes})


def _not_judged(error: InputError | BusyError | LimitError) -> HttpResponse:
    match error:
        case InputError():
            return error_response(400, printable(str(error)))
        case BusyError():
            return retry_later("too many manifests are being judged: send it again")
        case LimitError():
            return error_response(
                413, f"the manifest cannot be judged: {error}; send less of it at once"
            )


def _namespace_of(query: str) -> str | None:
    """Return the namespace that a query names; None where it asks for something else."""
    name, _, value = query.partition("=")
    if not query:
        return "default"
    return value if name == "namespace" and _NAME.fullmatch(value) else None


def _asks_namespaces(policy: PolicySnapshot) -> bool:
    return any(selector.namespace for selector in policy.profiles.selectors)
