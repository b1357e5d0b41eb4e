"""Keeps the results of reviews by the API server for some seconds."""

import asyncio
from collections import OrderedDict
from collections.abc import Callable, Coroutine, Hashable, Mapping
from typing import Any, Generic, NamedTuple, TypeAlias, TypeVar

import structlog

from linkwise.runtime.http.types import HttpResponse, retry_later
from linkwise.runtime.kube.client import KubeError
from linkwise.runtime.process.clock import Clock

REVIEWED = 30.0
"""How long a review counts [s]. A message is waited for 20 s, so that a revoked token is refused
within a minute."""
SLOW = 5.0
"""How long a review counts at least [s]: a slow API server is not asked for each request."""
KEPT = 2000
"""The number of results of one kind that are kept; the least recently used are dropped."""

_NONE: Mapping[str, str] = {}
_log = structlog.get_logger()

K = TypeVar("K", bound=Hashable)
V = TypeVar("V")
Review: TypeAlias = Coroutine[Any, Any, V | HttpResponse]
"""Asks the API server; raises KubeError without an answer."""


class _Kept(NamedTuple, Generic[V]):
    result: V
    ends: float


class Reviews(Generic[K, V]):
    """Reviews of one kind: requests with the same key share one."""

    def __init__(self, clock: Clock, headers: Mapping[str, str] = _NONE) -> None:
        """Start without reviews.

        Args:
            clock: A monotonic clock [s].
            headers: Of refusals.
        """
        self._clock, self._headers = clock, headers
        self._kept: OrderedDict[K, _Kept[V]] = OrderedDict()
        """The least recently used first."""
        self._running: dict[K, asyncio.Task[V | HttpResponse]] = {}

    def knows(self, key: K) -> bool:
        """Return whether there was a result for a key, which may have ended."""
        return key in self._kept

    async def get(self, key: K, review: Callable[[], Review[V]]) -> V | HttpResponse:
        """Return the result for a key, or a refusal, which is not kept.

        Without an answer of the API server the result is a refusal: an older one may be wrong now.

        Args:
            key: What the result depends on.
            review: Begins a review; it is called at once, or not at all.
        """
        kept = self._kept.get(key)
        if kept and self._clock() < kept.ends:
            self._kept.move_to_end(key)
            return kept.result
        running = self._running.get(key)
        if running is None:
            running = asyncio.create_task(self._reviewed(key, review()))
            self._running[key] = running
        # If one client leaves, others with the same key wait for it.
        return await asyncio.shield(running)

    async def _reviewed(self, key: K, review: Review[V]) -> V | HttpResponse:
        started = self._clock()
        try:
            result = await review
        except KubeError as error:
            _log.warning("Could not review token", err=str(error))
            return retry_later("the API server did not review your token", self._headers)
        finally:
            del self._running[key]
        if isinstance(result, HttpResponse):
            self._kept.pop(key, None)
            return result
        self._kept[key] = _Kept(result, max(started + REVIEWED, self._clock() + SLOW))
        self._kept.move_to_end(key)
        if len(self._kept) > KEPT:
            self._kept.popitem(last=False)
        return result
