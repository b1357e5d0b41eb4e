"""Keeps a cluster for each set of namespaces that viewers may see."""

import asyncio
from collections.abc import Iterator

from dashboard.visible import ALL, Visible, namespaces_of, seen_by, seen_node
from linkwise.cluster.account.node_ledger import NodeLedger
from linkwise.cluster.memo import Memo
from linkwise.dashboard.feed import Feed, ViewsFirst
from linkwise.dashboard.history import BYTES
from linkwise.runtime.process.clock import Clock
from linkwise.views.files.current_cluster import CurrentCluster

CLIENTS = 256
"""The number of clients of one feed that wait for a message."""
FEEDS = 16
"""The number of feeds for viewers who do not see all namespaces."""
HISTORY = 2 << 20
"""The size of the differences to earlier moments that such a feed keeps [bytes]."""
NOT_SHOWN = "the API server does not answer, or an object cannot be read"
"""Why the cluster is not shown, for viewers of fewer namespaces: the reason may name others."""
IDLE = 120.0
"""A feed ends when nobody has asked for it for so long [s]."""


class _Reduced:
    """The feed of some namespaces."""

    def __init__(
        self, feed: Feed, nodes: Memo[NodeLedger], begun: asyncio.Task[None], used: float
    ) -> None:
        self.feed, self.nodes, self.begun, self.used = feed, nodes, begun, used


class Feeds:
    """The cluster for all viewers: one feed of everything, and some of fewer namespaces."""

    def __init__(self, wall: Clock, monotonic: Clock, key: bytes) -> None:
        """Start without a cluster.

        Args:
            wall: The time [s since 1970].
            monotonic: A monotonic clock [s].
            key: A secret, from which the pseudonyms of hidden pods are made.
        """
        self._wall, self._monotonic, self._key = wall, monotonic, key
        self._views = ViewsFirst()
        self._begun = 0
        """The number of feeds so far."""
        self._whole = self._feed()
        self._reduced: dict[Visible, _Reduced] = {}
        self._current: CurrentCluster | None = None
        self._problem = "nodes and pods are not listed yet"

    def namespaces(self) -> Iterator[str]:
        """Yield the namespaces of the cluster: first those with pods that have GPUs."""
        return iter(()) if self._current is None else namespaces_of(self._current)

    def missing(self) -> str | None:
        """Return why nothing can be shown yet; None: it can."""
        return self._problem if self._current is None else None

    async def publish(self, current: CurrentCluster) -> None:
        """Make a cluster the latest moment of all feeds; end those that nobody uses."""
        await self._whole.publish(current)
        self._current = current
        self._forget()
        for visible, reduced in list(self._reduced.items()):
            # `of` may have ended it meanwhile.
            if self._reduced.get(visible) is reduced:
                await self._publish(reduced.feed, visible, reduced.nodes)

    def report(self, problem: str) -> None:
        """Set why the cluster is not watched now; empty: it is."""
        self._problem = problem or self._problem
        self._whole.report(problem)
        for reduced in self._reduced.values():
            reduced.feed.report(NOT_SHOWN if problem else "")

    async def of(self, visible: Visible) -> Feed | None:
        """Return the feed of some namespaces; None: there is no place for one more.

        Raises:
            RuntimeError: There is no cluster yet, see `missing`.
        """
        if self._current is None:
            raise RuntimeError("there is no cluster yet")
        if visible == ALL:
            return self._whole
        reduced = self._reduced.get(visible)
        if reduced is None:
            self._forget()
            if len(self._reduced) >= FEEDS:
                return None
            feed = self._feed(HISTORY)
            feed.report(NOT_SHOWN if self._whole.problem else "")
            nodes = Memo(seen_node)
            begun = asyncio.create_task(self._publish(feed, visible, nodes))
            reduced = self._reduced[visible] = _Reduced(feed, nodes, begun, 0.0)
        reduced.used = self._monotonic()
        try:
            # If one viewer leaves, others wait for it.
            await asyncio.shield(reduced.begun)
        except Exception:
            self._reduced.pop(visible, None)
            raise
        return reduced.feed

    def close(self) -> None:
        """Answer all clients, and end the feeds."""
        for feed in (self._whole, *(reduced.feed for reduced in self._reduced.values())):
            feed.close()

    def _feed(self, history: int = BYTES) -> Feed:
        # A page may ask after a restart, or after its rights have changed.
        self._begun += 1
        name = f"{self._wall():.0f}-{self._begun}"
        return Feed(
            self._wall,
            live=True,
            name=name,
            clients=CLIENTS,
            history=history,
            views=self._views,
        )

    async def _publish(self, feed: Feed, visible: Visible, nodes: Memo[NodeLedger]) -> None:
        current = self._current
        if current is not None:
            seen = await feed.compute(lambda: seen_by(current, visible, self._key, nodes))
            await feed.publish(seen)

    def _forget(self) -> None:
        now = self._monotonic()
        for visible, reduced in list(self._reduced.items()):
            if now - reduced.used > IDLE:
                del self._reduced[visible]
                reduced.feed.close()
