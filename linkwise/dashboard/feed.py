"""The state that the server of the page shows, and the messages about its changes."""

import asyncio
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from threading import Condition
from typing import TypeVar

import msgspec
from msgspec import Struct

from linkwise.cluster.memo import Memo
from linkwise.dashboard.history import BYTES, History
from linkwise.dashboard.moment import Moment, node_part
from linkwise.runtime.process.clock import Clock, wait_at_most
from linkwise.views.files.current_cluster import CurrentCluster
from linkwise.views.render.page.rows import NodeRow

T = TypeVar("T")

WAIT = 20.0
"""The longest time until a client gets a message [s]."""
CLIENTS = 32
"""The number of clients that wait for a message."""
WARNINGS = 20
"""The number of warnings that the page gets."""


class Facts(Struct, frozen=True):
    """What every message says about the cluster."""

    source: str
    live: bool
    """False for a cluster in a file."""
    at: float
    """The moment that is shown [s since 1970]."""
    now: float
    """The server's time [s since 1970]."""
    start: float | None
    """The first moment that can be shown [s since 1970]."""
    waiting: int
    problem: str
    """Why the cluster is not watched now; empty while it is."""
    warnings: tuple[str, ...]


class Update(Struct, frozen=True):
    """A message: the rows that changed."""

    version: int
    full: bool
    """These rows are all that there are."""
    facts: Facts
    nodes: list[NodeRow]
    gone: list[str]


class ViewsFirst:
    """Lets other threads pause while views are computed: Python runs one thread at a time."""

    def __init__(self) -> None:
        """Start without a view."""
        self._running = 0
        self._changed = Condition()

    @contextmanager
    def view(self) -> Iterator[None]:
        """Compute a view within the block."""
        self._add(1)
        try:
            yield
        finally:
            self._add(-1)

    def pause(self, seconds: float) -> None:
        """Wait until no view is computed, at most for some time [s]."""
        with self._changed:
            self._changed.wait_for(lambda: not self._running, seconds)

    def _add(self, number: int) -> None:
        with self._changed:
            self._running += number
            self._changed.notify_all()


class Feed:
    """The latest moment of a cluster, and its past."""

    def __init__(
        self,
        clock: Clock,
        *,
        live: bool,
        name: str = "",
        clients: int = CLIENTS,
        history: int = BYTES,
        views: ViewsFirst | None = None,
    ) -> None:
        """Start without a moment.

        Args:
            clock: The time [s since 1970].
            live: The cluster is watched.
            name: Tells its messages from those of other feeds at the same address.
            clients: The number of clients that wait for a message.
            history: The size of the differences to earlier moments [bytes].
            views: Of all feeds of the process; None: this one is alone.
        """
        self.views = views or ViewsFirst()
        self._clock, self._live, self._name, self._clients = clock, live, name, clients
        self._ended = False
        self._waiting: dict[asyncio.Event, None] = {}
        """One for each client that waits; the oldest first."""
        self._worker = ThreadPoolExecutor(1, "views")
        self._memo = Memo(node_part)
        self._moment: Moment | None = None
        self.history = History(max_bytes=history)
        self.problem = ""
        self._reports = 0

    @property
    def moment(self) -> Moment:
        """The latest moment."""
        if self._moment is None:
            raise RuntimeError("there is no moment yet")
        return self._moment

    @property
    def now(self) -> float:
        """The time now; of a cluster that is not watched that of its moment [s since 1970]."""
        return self._clock() if self._live else self.moment.at

    @property
    def _id(self) -> str:
        """The id of a message with all that is known now."""
        return f"{self.history.version}.{self._reports}.{self._name}"

    async def publish(self, current: CurrentCluster) -> None:
        """Make a cluster the latest moment; if it is cancelled, the last one stays."""
        moment = Moment(current, self._clock(), self._memo)
        # One worker computes all views, so that values are computed once and the loop stays free.
        await self.compute(lambda: (moment.rows, moment.usage, moment.units))
        self._moment = moment
        self.history.add(moment)
        self._wake()

    def report(self, problem: str) -> None:
        """Set why the cluster is not watched now; empty: it is."""
        if problem != self.problem:
            self.problem = problem
            self._reports += 1
            self._wake()

    async def compute(self, view: Callable[[], T]) -> T:
        """Compute a view, one after the other."""

        def computed() -> T:
            with self.views.view():
                return view()

        return await asyncio.get_running_loop().run_in_executor(self._worker, computed)

    async def next_update(self, last: str) -> tuple[str, bytes]:
        """Return the next message and its id, at the latest after `WAIT`.

        Args:
            last: The id of the client's last message; any other text if it has none.
        """
        if last == self._id and not self._ended:
            await self._wait()
        version, _, rest = last.partition(".")
        is_own = version.isdecimal() and len(version) < 20 and rest.partition(".")[2] == self._name
        since = int(version) if is_own else None
        changed = None if since is None else self.history.changed_since(since)
        rows = self.history.rows
        names = rows.keys() if changed is None else changed
        update = Update(
            self.history.version,
            changed is None,
            self._facts(),
            [rows[name] for name in sorted(names) if name in rows],
            [] if changed is None else sorted(changed - rows.keys()),
        )
        return self._id, msgspec.json.encode(update)

    def close(self) -> None:
        """Answer all clients, and end the worker without waiting for a view."""
        self._ended = True
        self._wake()
        self._worker.shutdown(wait=False, cancel_futures=True)

    def _facts(self) -> Facts:
        moment, now = self.moment, self._clock()
        return Facts(
            source=moment.current.source,
            live=self._live,
            at=moment.at,
            now=now,
            start=self.history.start,
            waiting=moment.waiting,
            problem=self.problem,
            warnings=moment.current.warnings[:WARNINGS],
        )

    async def _wait(self) -> None:
        """Wait for news; of too many the oldest is answered, which may have left long ago."""
        news = asyncio.Event()
        self._waiting[news] = None
        if len(self._waiting) > self._clients:
            oldest = next(iter(self._waiting))
            del self._waiting[oldest]
            oldest.set()
        try:
            await wait_at_most(WAIT, news)
        finally:
            self._waiting.pop(news, None)

    def _wake(self) -> None:
        for news in self._waiting:
            news.set()
