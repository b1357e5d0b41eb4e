"""Where pods of a dry run would go: the scorer that leads is asked, and not waited for long."""

import asyncio
from collections.abc import Callable

import structlog

from cluster.scorer_lease import LEASE, ScorerLease
from cluster.whatif_api import MOST_PODS, PATH, FitAnswer, FitQuestion, FitResult
from runtime.kube.client import ApiError, Kube, KubeError

SCORER_TIMEOUT = 2.0
"""How long a dry run waits for all of it [s]."""
_NOT_US = frozenset({401, 403})
"""It does not take us for the webhook; who asks cannot mend that."""

_log = structlog.get_logger()


class NoPlacementError(Exception):
    """Nobody tells where pods would go: a clause for people that says why."""


class ScorerClient:
    """The scorer that leads, whichever that is."""

    def __init__(self, kube: Kube, connect: Callable[[str], Kube]) -> None:
        """Say who knows which one leads, and how it is asked.

        Args:
            kube: The API server.
            connect: Returns a client for an address, `host:port`.
        """
        self._kube, self._connect = kube, connect
        self._turn = asyncio.Lock()
        """The scorer answers one question at a time: ours wait here, where they cost nothing."""

    async def fits(self, question: FitQuestion) -> list[FitResult]:
        """Return what would become of the pods of each template.

        Raises:
            UnknownError: Nobody tells, or not in time.
        """
        if question.pods > MOST_PODS:
            raise NoPlacementError(
                f"the scorer is asked about {MOST_PODS} pods at once, and no more"
            )
        address = ""
        try:
            async with asyncio.timeout(SCORER_TIMEOUT), self._turn:
                address = await self._leader()
                # Its certificate's authority and our token may be others by now.
                async with self._connect(address) as scorer:
                    fits = (await scorer.create(PATH, question, FitAnswer)).fits
        except (TimeoutError, KubeError, OSError) as error:
            told = str(error) or f"no answer within {SCORER_TIMEOUT:g} s"
            _log.warning("Could not ask scorer", address=address, err=told)
            raise NoPlacementError(_why(error)) from None
        if len(fits) != len(question.templates):
            raise NoPlacementError("the scorer is of another version")
        return fits

    async def _leader(self) -> str:
        """Return where the one that leads answers, `host:port`."""
        try:
            lease = await self._kube.get(LEASE, ScorerLease)
        except ApiError as error:
            if error.status == 404:
                raise NoPlacementError("no scorer has led so far") from None
            _log.warning("Could not read Lease", err=str(error))
            raise NoPlacementError("the API server does not tell which scorer leads") from None
        if not lease.is_held:
            raise NoPlacementError("no scorer leads now")
        if not lease.address:
            raise NoPlacementError("the scorer that leads does not say where it is")
        return lease.address


def _why(error: Exception) -> str:
    """Return why there is no answer, for people: they are told no addresses."""
    match error:
        case TimeoutError():
            return f"the scorer did not answer within {SCORER_TIMEOUT:g} s"
        case ApiError() if error.status not in _NOT_US:
            return f"the scorer answers: {error.message or error.status}"
        case _:
            return "the scorer cannot be asked"
