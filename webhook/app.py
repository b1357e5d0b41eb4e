"""HTTP handlers of admission and of the dry-run API."""

import re
from collections import Counter
from collections.abc import Awaitable, Collection, Mapping, Sequence
from secrets import token_hex

import structlog

from cluster.finding import printable
from cluster.keys import CLAIM_PREFIX, DRY_RUN_AUDIENCE
from cluster.objects.pod import NewPod
from cluster.requests.user_claims.claim_spec import Asked, LeftToScheduler
from cluster.requests.user_claims.pod_claims import ClaimSource, claim_sources
from cluster.whatif_api import FitResult
from manifest.value import InputError
from runtime.http.authentication import Callers, UserInfo
from runtime.http.authorization import is_allowed
from runtime.http.types import JSON, HttpRequest, HttpResponse, Route, error_response, retry_later
from runtime.kube.client import Kube, KubeError
from runtime.process.clock import monotonic
from runtime.process.worker import BusyError, LimitError, Worker
from webhook.admit import admit, deny_for_now, deny_unreadable
from webhook.claim_reader import ClaimReader, NotInTimeError
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
from webhook.unrequested_devices import chooses_gpus

NAMESPACE_TIMEOUT = 0.5
"""Maximum time for which a review waits for a new namespace to appear in the informer [s]."""
DRY_RUNS = 4
"""Dry runs at once, so that admission keeps most of the processor."""
DRY_RUNS_OF_A_USER = 3
_JSON_ONLY = frozenset({JSON})
_YAML = "application/yaml"
_NOTHING_ASKED: Mapping[ClaimSource, Asked] = {}
_UNPROVEN = LeftToScheduler("the webhook requires no client certificate")
_NAMESPACE_NAME = re.compile(r"[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?")
_CREATE_PODS = {"verb": "create", "version": "v1", "resource": "pods"}
"""What a caller of the dry-run API must be allowed in a namespace."""
_log = structlog.get_logger()


class Admission:
    """Handles the reviews of API servers from the state of the informers.

    It calls the API server only for a pod that brings claims, and only where each caller has proved
    that it is an API server: others would read the objects of any namespace by it.
    """

    def __init__(
        self, informers: Informers, metrics: Metrics, worker: Worker, claims: ClaimReader | None
    ) -> None:
        """Create the handler.

        Args:
            informers: State of the cluster.
            metrics: Counts reviews.
            worker: Child process that reads ConfigMaps.
            claims: Reads the claims of pods; None where callers are not authenticated.
        """
        self._informers, self._claims = informers, claims
        self._metrics = metrics
        self._worker = worker

    def routes(self) -> list[Route]:
        """Return the routes for API servers."""
        return [
            Route("POST", "/mutate", self.mutate, _JSON_ONLY),
            Route("POST", "/validate", self.validate, _JSON_ONLY),
        ]

    def mutate(self, request: HttpRequest) -> HttpResponse | Awaitable[HttpResponse]:
        """Answer the review of a pod; wait for its namespace and claims that are not known."""
        try:
            review = parse_pod_review(request.body)
        except ProtocolError as error:
            return error_response(400, str(error))
        if review.unreadable:
            return self._respond(review, deny_unreadable(review.unreadable))
        if review.pod is None:
            return HttpResponse(
                allow_unchanged(review), fields={"uid": review.uid, "verdict": _SKIPPED}
            )
        if reason := self._informers.not_ready_reason():
            return retry_later(reason)
        sources = self._sources_of(review.pod)
        if not sources and self._is_known(review.namespace):
            return self._admit(review)
        return self._admit_later(review, sources)

    def validate(self, request: HttpRequest) -> HttpResponse | Awaitable[HttpResponse]:
        """Answer the review of a ConfigMap; a child process checks its text.

        Callers are not authenticated. The child process checks one ConfigMap at a time, and no
        other one is queued, so that a flood of reviews does not block dry runs.
        """
        try:
            review = read_config_review(request.body)
        except ProtocolError as error:
            return error_response(400, str(error))
        if isinstance(review, ConfigResponse):
            return _validated(review)
        return self._validate(review)

    async def _validate(self, review: ConfigReview) -> HttpResponse:
        if self._worker.pending_jobs(lint_text):
            return retry_later("another ConfigMap is being checked: send it again")
        try:
            problems = await self._worker.run(lint_text, review.source.key, review.text)
        except LimitError as error:
            return _validated(limit_response(review, str(error)))
        return _validated(config_response(review, decode_problems(problems)))

    def _is_known(self, namespace: str) -> bool:
        """Return whether a namespace is known, or the policy does not select namespaces."""
        selectors = self._informers.config.snapshot.profiles.selectors
        return namespace in self._informers.namespaces or not any(
            selector.namespace for selector in selectors
        )

    def _sources_of(self, pod: NewPod) -> frozenset[ClaimSource]:
        """Return the templates and claims of a pod that are to be read."""
        placement = self._informers.config.snapshot.policy.placement
        if placement.templates == "off" or not self._informers.capacity.claims:
            return frozenset()
        return claim_sources(pod.spec)

    async def _admit_later(
        self, review: PodReview, sources: Collection[ClaimSource]
    ) -> HttpResponse:
        assert review.pod is not None  # noqa: S101 - `mutate` has answered all others.
        if not self._is_known(review.namespace):
            came = await self._informers.wait_for_namespace(
                review.namespace, within=NAMESPACE_TIMEOUT
            )
            self._metrics.count_wait(came=came)
            # The webhook fails open: refused, a pod would keep variables that give it GPUs.
            if not came and not chooses_gpus(review.pod.spec):
                return retry_later(f"namespace {review.namespace} is not known yet")
        if self._claims is None:
            return self._admit(review, dict.fromkeys(sources, _UNPROVEN))
        try:
            return self._admit(review, await self._claims.read(review.namespace, sources))
        except NotInTimeError as error:
            return self._respond(review, deny_for_now(str(error)))

    def _admit(
        self, review: PodReview, asked: Mapping[ClaimSource, Asked] = _NOTHING_ASKED
    ) -> HttpResponse:
        assert review.pod is not None  # noqa: S101 - `mutate` has answered all others.
        policy = self._informers.config.snapshot
        outcome = admit(
            review.pod,
            namespace=review.namespace,
            namespace_labels=self._informers.namespaces.get(review.namespace),
            policy=policy,
            capacity=self._informers.capacity,
            new_claim=CLAIM_PREFIX + token_hex(16),
            asked=asked,
        )
        return self._respond(review, outcome)

    def _respond(self, review: PodReview, outcome: Outcome) -> HttpResponse:
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
    """The dry-run API: admission and placement of manifests, for authorized users."""

    def __init__(
        self, informers: Informers, kube: Kube, scorer: ScorerClient, worker: Worker
    ) -> None:
        """Create the handler.

        Args:
            informers: State of the cluster.
            kube: Client of the API server, for access reviews.
            scorer: Client of the scorer, for placements.
            worker: Child process that reads manifests.
        """
        self._informers = informers
        self._kube = kube
        self._scorer = scorer
        self._worker = worker
        self._callers = Callers(kube, DRY_RUN_AUDIENCE, monotonic)
        self._visits: Counter[str] = Counter()
        """The dry runs in progress, by user."""

    def routes(self) -> list[Route]:
        """Return the routes for users."""
        return [Route("POST", PATH, self.dry_run, frozenset({JSON, _YAML}))]

    async def dry_run(self, request: HttpRequest) -> HttpResponse:
        """Answer the dry run of a manifest; a child process reads it."""
        namespace = _query_namespace(request.query)
        if namespace is None:
            return error_response(400, "the only query parameter is namespace=<name>")
        caller = await self._callers.user(request)
        if isinstance(caller, HttpResponse):
            return caller
        if self._visits.total() >= DRY_RUNS or self._visits[caller.username] >= DRY_RUNS_OF_A_USER:
            return retry_later("too many dry runs are in progress: send it again")
        self._visits[caller.username] += 1
        try:
            return await self._dry_run(request.body, namespace, caller)
        except (InputError, BusyError, LimitError) as error:
            return _failed(error)
        except KubeError as error:
            _log.warning("Could not review access", err=str(error))
            return retry_later("the API server did not answer the review of your access")
        finally:
            self._visits[caller.username] -= 1
            self._visits += Counter()  # It forgets users without any.

    async def _dry_run(self, body: bytes, namespace: str, caller: UserInfo) -> HttpResponse:
        namespaces = decode_namespaces(await self._worker.run(list_namespaces, body, namespace))
        for name in namespaces:
            if not await is_allowed(self._kube, caller, {**_CREATE_PODS, "namespace": name}):
                return error_response(
                    403, f"you may not create pods in namespace {printable(name)}"
                )
        if reason := self._informers.not_ready_reason():
            return retry_later(reason)
        known = self._informers.namespaces
        result = decode_result(
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
        if result.fit_templates:
            try:
                fits = await self._scorer.fits(result.fit_request)
            except NoPlacementError as error:
                fits = str(error)
        fields = {"user": caller.username, "templates": len(result.pods)}
        return HttpResponse(encode_dry_run(result, fits), fields=fields)


_SKIPPED = Verdict.SKIPPED.value


def _validated(response: ConfigResponse) -> HttpResponse:
    fields = {"uid": response.uid, "verdict": response.verdict, "source": response.source}
    codes = [problem.code.value for problem in response.problems]
    return HttpResponse(response.body, fields={**fields, "findings": codes})


def _failed(error: InputError | BusyError | LimitError) -> HttpResponse:
    match error:
        case InputError():
            return error_response(400, printable(str(error)))
        case BusyError():
            return retry_later("too many manifests are being checked: send it again")
        case LimitError():
            return error_response(
                413, f"the manifest cannot be checked: {error}; send less of it at once"
            )


def _query_namespace(query: str) -> str | None:
    """Return the namespace of a query; None where the query is invalid."""
    name, _, value = query.partition("=")
    if not query:
        return "default"
    return value if name == "namespace" and _NAMESPACE_NAME.fullmatch(value) else None
