"""The events of a replay: jobs arrive, wait in order with backfill, run, and leave.

A job starts when all its pods fit. The first job of the queue is tried first; where it does not
fit, later ones are tried (backfill), and nothing is reserved for it. A shape that was refused is
tried again after the next departure.
"""

from collections import deque
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from enum import Enum, auto
from functools import partial
from heapq import heappop, heappush
from itertools import count
from typing import NamedTuple

from cluster.account.node_ledger import Holding
from replay.fleet import gpus_of_fleet
from replay.job import FOREVER, Job, Shape, members_of
from replay.policies.policy import Policy
from scorer.placement.result import Placement
from scorer.placement.state.snapshot import Snapshot


class Kind(Enum):
    """Kinds of events."""

    STARTS = auto()
    REFUSED = auto()
    """It arrived and did not start."""
    LEAVES = auto()


class Event(NamedTuple):
    """One step of a run; `Run.snapshot` has the fleet after it."""

    kind: Kind
    time: float
    """[s]"""
    job: Job
    before: Snapshot
    """The fleet before it."""
    nodes: frozenset[str] = frozenset()
    """The nodes that it changes."""
    placements: tuple[Placement, ...] = ()
    """Of a job that starts."""


@dataclass(frozen=True, slots=True)
class Rules:
    """How a run treats its jobs."""

    shared: bool
    """The fleet gives out shares."""
    waits: bool = True
    """A refused job waits; else it is gone."""


class _Running(NamedTuple):
    end: float
    number: int
    job: Job
    holdings: tuple[tuple[str, Holding], ...]


class _Queue:
    """Waiting jobs, one queue for each shape: jobs of one shape start in order."""

    def __init__(self) -> None:
        self._by_shape: dict[Shape, deque[tuple[int, Job]]] = {}
        self._numbers = count()
        self.size = 0

    def push(self, job: Job) -> None:
        """Append a job."""
        queue = self._by_shape.setdefault(job.shape, deque())
        queue.append((next(self._numbers), job))
        self.size += 1

    def holds(self, shape: Shape) -> bool:
        """Return whether a job of this shape waits."""
        return shape in self._by_shape

    def start_each(self, start: Callable[[Job], Event | None]) -> Iterator[Event]:
        """Try the first job of each shape in the order of arrival; yield those that start."""
        heads = [(queue[0][0], shape) for shape, queue in self._by_shape.items()]
        order = [(number, i) for i, (number, _) in enumerate(heads)]
        order.sort()
        while order:
            _, i = heappop(order)
            shape = heads[i][1]
            queue = self._by_shape[shape]
            event = start(queue[0][1])
            if event is None:
                continue
            queue.popleft()
            self.size -= 1
            yield event
            if queue:
                heappush(order, (queue[0][0], i))
            else:
                del self._by_shape[shape]


class Run:
    """One policy on one sequence of jobs."""

    def __init__(self, fleet: Snapshot, policy: Policy, rules: Rules) -> None:
        """Start with an empty fleet.

        Args:
            fleet: It has no jobs.
            policy: The policy, which no other run uses.
            rules: How jobs are treated.
        """
        self.snapshot = fleet
        self.decisions = 0
        """Number of times that the policy was asked."""
        self._policy, self._rules = policy, rules
        self._gpus = gpus_of_fleet(fleet)
        self._queue = _Queue()
        self._running: list[_Running] = []
        self._numbers = count()

    @property
    def waiting(self) -> int:
        """Number of jobs in the queue."""
        return self._queue.size

    def events(self, jobs: Iterable[Job]) -> Iterator[Event]:
        """Yield each event: the arrival of a job that waits, a start, a departure.

        Args:
            jobs: By their submit times, ascending.

        Memory: the jobs that run and wait.
        """
        for job in jobs:
            yield from self._until(job.submit)
            started = None
            if not self._queue.holds(job.shape):
                started = self._start(job, job.submit)
            if started is None and self._rules.waits:
                self._queue.push(job)
            yield started or Event(Kind.REFUSED, job.submit, job, self.snapshot)
        yield from self._until(FOREVER)

    def _until(self, time: float) -> Iterator[Event]:
        """Yield the departures up to a time, and the starts that they allow."""
        while self._running and self._running[0].end <= time and self._running[0].end < FOREVER:
            gone = heappop(self._running)
            before = self.snapshot
            self.snapshot = before.without_holdings(gone.holdings)
            nodes = frozenset(node for node, _ in gone.holdings)
            yield Event(Kind.LEAVES, gone.end, gone.job, before, nodes)
            yield from self._queue.start_each(partial(self._start, time=gone.end))

    def _start(self, job: Job, time: float) -> Event | None:
        """Start a job, or return None where the policy refuses it.

        Raises:
            LedgerError: The policy gave out a GPU that is taken.
        """
        if job.shape.total > self._gpus:
            # No policy is asked: a trace may have jobs of any size, which take time each time.
            return None
        self.decisions += 1
        members = members_of(job, self.decisions, shared=self._rules.shared)
        placements = self._policy.place(self.snapshot, job.shape, members)
        if placements is None:
            return None
        holdings = tuple((each.node, each.holding) for each in placements)
        before = self.snapshot
        # The ledger is the proof that no GPU is held twice: it raises.
        self.snapshot = before.hold_all(holdings)
        running = _Running(time + job.duration, next(self._numbers), job, holdings)
        heappush(self._running, running)
        nodes = frozenset(node for node, _ in holdings)
        return Event(Kind.STARTS, time, job, before, nodes, tuple(placements))
