"""Client of the leading scorer's fit API, for the placement of dry runs."""

import asyncio
from collections.abc import Callable

import structlog

from linkwise.cluster.scorer_lease import LEASE, ScorerLease
from linkwise.cluster.whatif_api import MAX_PODS, PATH, FitRequest, FitResponse, FitResult
from linkwise.runtime.kube.client import ApiError, Kube, KubeError

SCORER_TIMEOUT = 2.0
"""Time limit of one request, including the lookup of the leader [s]."""
_TOKEN_REJECTED = frozenset({401, 403})
"""The scorer rejects our token: an error of the installation, not of the user."""

_log = structlog.get_logger()


class NoPlacementError(Exception):
    """The placement is not known; the message is a clause with the reason, for users."""


class ScorerClient:
    """Sends requests to the leading scorer."""

    def __init__(
        self, kube: Kube, connect: Callable[[str], Kube], timeout: float = SCORER_TIMEOUT
    ) -> None:
        """Create the client.

        Args:
            kube: Client of the API server, for the leader's Lease.
            connect: Returns a client for an address, `host:port`.
            timeout: Of one request, with the wait for its turn [s].
        """
        self._kube, self._connect, self._timeout = kube, connect, timeout
        self._lock = asyncio.Lock()
        """The scorer handles one request at a time, so concurrent requests wait here."""

    async def fits(self, request: FitRequest) -> list[FitResult]:
        """Return the placement of the pods of each template.

        Raises:
            NoPlacementError: No scorer answers in time.
        """
        if request.pods > MAX_PODS:
            raise NoPlacementError(f"more than {MAX_PODS} pods, the most that one request can have")
        address = ""
        try:
            async with asyncio.timeout(self._timeout), self._lock:
                address = await self._leader()
                # A new client, since the CA and the token may have been renewed.
                async with self._connect(address) as scorer:
                    fits = (await scorer.create(PATH, request, FitResponse)).fits
        except (TimeoutError, KubeError, OSError) as error:
            message = str(error) or f"no answer within {self._timeout:g} s"
            _log.warning("Could not query scorer", address=address, err=message)
            raise NoPlacementError(_reason(error, self._timeout)) from None
        if len(fits) != len(request.templates):
            raise NoPlacementError("the scorer is of another version")
        return fits

    async def _leader(self) -> str:
        """Return the address of the leader, `host:port`."""
        try:
            lease = await self._kube.find(LEASE, ScorerLease)
        except ApiError as error:
            _log.warning("Could not read Lease", err=str(error))
            raise NoPlacementError("the API server did not return the scorer's Lease") from None
        if lease is None:
            raise NoPlacementError("no scorer has led so far")
        if not lease.is_held:
            raise NoPlacementError("no scorer leads now")
        if not lease.address:
            raise NoPlacementError("the scorer that leads does not say where it is")
        return lease.address


def _reason(error: Exception, timeout: float) -> str:
    """Return why there is no placement, for users: without addresses."""
    match error:
        case TimeoutError():
            return f"the scorer did not answer within {timeout:g} s"
        case ApiError() if error.status not in _TOKEN_REJECTED:
            return f"the scorer answers: {error.message or error.status}"
        case _:
            return "the scorer cannot be asked"
