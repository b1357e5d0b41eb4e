"""HTTP handlers of admission."""

from collections.abc import Awaitable, Collection, Mapping
from secrets import token_hex

from linkwise.admission.decide.admit import admit, deny_for_now, deny_unreadable
from linkwise.admission.decide.outcome import Outcome, Verdict
from linkwise.admission.patch.unrequested_devices import chooses_gpus
from linkwise.cluster.keys import CLAIM_PREFIX
from linkwise.cluster.objects.pod import NewPod
from linkwise.cluster.requests.user_claims.claim_spec import Asked, Delegated
from linkwise.cluster.requests.user_claims.pod_claims import ClaimSource, claim_sources
from linkwise.runtime.http.types import (
    JSON,
    HttpRequest,
    HttpResponse,
    Route,
    error_response,
    retry_later,
)
from linkwise.runtime.process.worker import LimitError, Worker
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
from webhook.informers import Informers
from webhook.metrics import Metrics
from webhook.review import (
    PodReview,
    ProtocolError,
    encode_response,
    parse_pod_review,
)
from webhook.update_review import update_response

NAMESPACE_TIMEOUT = 0.5
"""Maximum time for which a review waits for a new namespace to appear in the informer [s]."""
_JSON_ONLY = frozenset({JSON})
_NOTHING_ASKED: Mapping[ClaimSource, Asked] = {}
_UNPROVEN = Delegated("the webhook requires no client certificate")


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
            answer = update_response(request.body, review)
            return HttpResponse(answer, fields={"uid": review.uid, "verdict": _SKIPPED})
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


_SKIPPED = Verdict.SKIPPED.value


def _validated(response: ConfigResponse) -> HttpResponse:
    fields = {"uid": response.uid, "verdict": response.verdict, "source": response.source}
    codes = [problem.code.value for problem in response.problems]
    return HttpResponse(response.body, fields={**fields, "findings": codes})
