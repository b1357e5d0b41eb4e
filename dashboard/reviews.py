"""Keeps the results of reviews by the API server for some seconds."""

import asyncio
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Hashable
from typing import Generic, NamedTuple, TypeVar

import structlog

from cli.dashboard.guard import HEADERS
from runtime.http.types import HttpResponse, retry_later
from runtime.kube.client import KubeError
from runtime.process.clock import Clock

REVIEWED = 30.0
"""How long a review counts [s]. A message is waited for 20 s, so that a revoked token is refused
within a minute."""
SLOW = 5.0
"""How long a review counts at least [s]: a slow API server is not asked for each request."""
KEPT = 2000
"""The number of results of one kind that are kept; the least recently used are dropped."""
NEW = 100
"""The number of keys whose first review is awaited: forged tokens hold no more requests."""

_log = structlog.get_logger()

K = TypeVar("K", bound=Hashable)
V = TypeVar("V")


class _Review(NamedTuple, Generic[V]):
    result: V
    ends: float


class Reviews(Generic[K, V]):
    """Reviews of one kind: requests with the same key share one."""

    def __init__(self, clock: Clock) -> None:
        """Start without reviews.

        Args:
            clock: A monotonic clock [s].
        """
        self._clock = clock
        self._kept: OrderedDict[K, _Review[V]] = OrderedDict()
        """The least recently used first."""
        self._running: dict[K, asyncio.Task[V | HttpResponse]] = {}

    async def get(
        self, key: K, review: Callable[[], Awaitable[V | HttpResponse]]
    ) -> V | HttpResponse:
        """Return the result for a key, or a refusal, which is not kept.

        Without an answer of the API server the result is a refusal: an older one may be wrong now.

        Args:
            key: What the result depends on.
            review: Asks the API server; raises KubeError without an answer.
        """
        kept = self._kept.get(key)
        if kept and self._clock() < kept.ends:
            self._kept.move_to_end(key)
            return kept.result
        running = self._running.get(key)
        if running is None:
            if kept is None and len(self._running) >= NEW:
                return retry_later("too many callers are being reviewed: send it again", HEADERS)
            running = asyncio.create_task(self._reviewed(key, review))
            self._running[key] = running
        # If one client leaves, others with the same key wait for it.
        return await asyncio.shield(running)

    async def _reviewed(
        self, key: K, review: Callable[[], Awaitable[V | HttpResponse]]
    ) -> V | HttpResponse:
        started = self._clock()
        try:
            result = await review()
        except KubeError as error:
            _log.warning("Could not review token", err=str(error))
            return retry_later("the API server did not review your token", HEADERS)
        finally:
            del self._running[key]
        if isinstance(result, HttpResponse):
            self._kept.pop(key, None)
            return result
        self._kept[key] = _Review(result, max(started + REVIEWED, self._clock() + SLOW))
        self._kept.move_to_end(key)
        if len(self._kept) > KEPT:
            self._kept.popitem(last=False)
        return result
