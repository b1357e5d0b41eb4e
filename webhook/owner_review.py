"""`/warn`: warnings for people who create owners of pods, such as Jobs.

Nothing is denied or changed.
"""

from collections.abc import Awaitable, Sequence

import structlog

from linkwise.admission.dry_run.owner_warnings import (
    NOTHING_FOUND,
    OwnerFindings,
    decode_findings,
    fit_warning,
    owner_findings,
    relevant,
)
from linkwise.runtime.http.types import JSON, HttpRequest, HttpResponse, Route, error_response
from linkwise.runtime.process.turns import Turns
from linkwise.runtime.process.worker import BusyError, LimitError, Worker
from webhook.informers import Informers
from webhook.review import AdmissionRequest, ProtocolError, allow_unchanged, parse_request
from webhook.scorer_client import NoPlacementError, ScorerClient

PATH = "/warn"
_REVIEWED = frozenset({"CREATE", "UPDATE"})
_FITS, _FITS_OF_A_NAMESPACE = 2, 1
"""Dry runs that ask the scorer at once; those beyond them have no answer whether they fit."""

_log = structlog.get_logger()


class OwnerReviews:
    """Answers the reviews of owners from the state of the informers."""

    def __init__(self, informers: Informers, worker: Worker, scorer: ScorerClient | None) -> None:
        """Create the handler.

        Args:
            informers: State of the cluster.
            worker: Child process that reads owners.
            scorer: Says whether the pods of a dry run fit now; None where callers are not
                authenticated: anybody would learn what is free.
        """
        self._informers, self._worker, self._scorer = informers, worker, scorer
        self._turns = Turns(_FITS, _FITS_OF_A_NAMESPACE)

    def routes(self) -> list[Route]:
        """Return the route for API servers."""
        return [Route("POST", PATH, self.warn, frozenset({JSON}))]

    def warn(self, request: HttpRequest) -> HttpResponse | Awaitable[HttpResponse]:
        """Allow an owner; the warnings are what `linkwise check` finds in it."""
        try:
            review = parse_request(request.body)
        except ProtocolError as error:
            return error_response(400, str(error))
        is_reviewed = review.operation in _REVIEWED and not review.sub_resource
        owner = relevant(review.object) if is_reviewed else None
        if owner is None or self._informers.not_ready_reason():
            return _allowed(review)
        return self._warn(review, owner)

    async def _warn(self, review: AdmissionRequest, owner: bytes) -> HttpResponse:
        found = await self._found(review, owner)
        fits = await self._fits(review, found)
        return _allowed(review, (*fits, *found.warnings))

    async def _found(self, review: AdmissionRequest, owner: bytes) -> OwnerFindings:
        try:
            encoded = await self._worker.run(
                owner_findings,
                owner,
                review.namespace,
                self._informers.namespaces.get(review.namespace),
                self._informers.config.snapshot,
                self._informers.capacity,
            )
        except (BusyError, LimitError):
            return NOTHING_FOUND
        except RuntimeError as error:
            _log.error("Could not check owner", namespace=review.namespace, err=str(error))
            return NOTHING_FOUND
        return decode_findings(encoded)

    async def _fits(self, review: AdmissionRequest, found: OwnerFindings) -> Sequence[str]:
        """Return whether the pods of a dry run fit now; nothing if it is not known."""
        if not review.dry_run or not found.to_place or self._scorer is None:
            return ()
        if self._turns.refusal(review.namespace):
            return ()
        await self._turns.begin(review.namespace)
        try:
            return (fit_warning(await self._scorer.fits(found.fit_request)),)
        except NoPlacementError:
            return ()
        finally:
            self._turns.end(review.namespace)


def _allowed(review: AdmissionRequest, warnings: Sequence[str] = ()) -> HttpResponse:
    fields = {"uid": review.uid, "kind": review.kind.kind, "warnings": len(warnings)}
    return HttpResponse(allow_unchanged(review, tuple(warnings)), fields=fields)
