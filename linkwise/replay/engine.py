"""The events of a replay: jobs arrive, wait in order with backfill, run, and leave.

A job starts when all its pods fit. The first job of the highest priority is tried first; where it
does not fit, later ones are tried (backfill), and nothing is reserved for it. A shape that was
refused is tried again after the next departure.

A policy that preempts is asked which jobs of a lower priority to evict for one that does not fit.
They wait in their old place, and start again from the beginning.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from enum import Enum, auto
from functools import partial
from heapq import heappop, heappush
from itertools import count
from typing import NamedTuple

from linkwise.cluster.account.node_ledger import Holding
from linkwise.planning.placement.pods.member import Member
from linkwise.planning.placement.preemption.search import Eviction
from linkwise.planning.placement.preemption.victim import Victim, VictimPod
from linkwise.planning.placement.result import Placement
from linkwise.planning.placement.state.snapshot import Snapshot
from linkwise.replay.density import Density
from linkwise.replay.fleet import gpus_of_fleet
from linkwise.replay.job import FOREVER, Job, Shape, members_of
from linkwise.replay.policies.policy import Policy, Preempting

MIN_RUN = 300.0
"""A job is not evicted before it has run for so long [s]: `minRunMinutes` of the policy."""
SEARCH_PAUSE = 60.0
"""The time from a search that found no jobs to evict to the next one for the same shape [s]."""


class EventKind(Enum):
    """Kinds of events."""

    STARTS = auto()
    REFUSED = auto()
    """It arrived and did not start."""
    EVICTED = auto()
    """A job of a higher priority takes its place; it waits again."""
    LEAVES = auto()


class Event(NamedTuple):
    """One step of a run; `Run.snapshot` has the fleet after it."""

    kind: EventKind
    time: float
    """[s]"""
    job: Job
    before: Snapshot
    """The fleet before it."""
    nodes: frozenset[str] = frozenset()
    """The nodes that it changes."""
    placements: tuple[Placement, ...] = ()
    """Of a job that starts."""
    ran: float = 0.0
    """For how long an evicted job has run, in vain [s]."""
    is_again: bool = False
    """A job starts that was evicted before."""


@dataclass(frozen=True, slots=True)
class Rules:
    """How a run treats its jobs."""

    shared: bool
    """The fleet gives out shares."""
    waits: bool = True
    """A refused job waits; else it is gone."""


class _Waiting(NamedTuple):
    number: int
    """By arrival."""
    job: Job
    is_again: bool = False


class _Running(NamedTuple):
    end: float
    number: int
    waiting: _Waiting
    """The job as it waited."""
    start: float
    unit: Victim
    """The job as the search for jobs to evict sees it."""

    @property
    def holdings(self) -> Iterator[tuple[str, Holding]]:
        """Its pods, each with its node."""
        return ((pod.node, pod.holding) for pod in self.unit.pods)


class _Queue:
    """Waiting jobs, one queue for each shape: jobs of one shape start in order."""

    def __init__(self) -> None:
        self._by_shape: dict[Shape, list[_Waiting]] = {}
        """Heaps."""
        self.size = 0

    @property
    def jobs(self) -> Iterator[_Waiting]:
        """All jobs, in no order."""
        return (waiting for queue in self._by_shape.values() for waiting in queue)

    def push(self, waiting: _Waiting) -> None:
        """Add a job, in its place by arrival."""
        heappush(self._by_shape.setdefault(waiting.job.shape, []), waiting)
        self.size += 1

    def holds(self, shape: Shape) -> bool:
        """Return whether a job of this shape waits."""
        return shape in self._by_shape

    def start_each(self, start: Callable[[_Waiting], Iterator[Event]]) -> Iterator[Event]:
        """Try the first job of each shape by priority and arrival; yield what happens."""
        # Only heads of queues are tried: after a departure, a job behind one of its own shape fits
        # where that one fits. So the cost is the number of shapes, not of jobs that wait.
        order = [(-shape.priority, q[0].number, shape) for shape, q in self._by_shape.items()]
        heads = {number: shape for _, number, shape in order}
        todo = sorted((priority, number) for priority, number, _ in order)
        while todo:
            priority, number = heappop(todo)
            shape = heads[number]
            queue = self._by_shape[shape]
            has_started = False
            for event in start(queue[0]):
                has_started = event.kind is EventKind.STARTS
                yield event
            if not has_started:
                continue
            heappop(queue)
            self.size -= 1
            if queue:
                heads[queue[0].number] = shape
                heappush(todo, (priority, queue[0].number))
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
        self._density = Density(fleet)
        self._queue = _Queue()
        self._ends: list[_Running] = []
        """A heap; of the jobs that were evicted, too."""
        self._running: dict[str, _Running] = {}
        """By the name of the unit."""
        self._search_at: dict[Shape, float] = {}
        """By shape, when jobs to evict are searched for again [s]."""
        self._numbers = count()

    @property
    def waiting(self) -> int:
        """Number of jobs in the queue."""
        return self._queue.size

    @property
    def never_started(self) -> Iterator[Job]:
        """Jobs in the queue, without those that were evicted."""
        return (waiting.job for waiting in self._queue.jobs if not waiting.is_again)

    def events(self, jobs: Iterable[Job]) -> Iterator[Event]:
        """Yield each event: the arrival of a job that waits, a start, an eviction, a departure.

        Args:
            jobs: By their submit times, ascending.

        Memory: the jobs that run and wait.
        """
        for job in jobs:
            yield from self._until(job.submit)
            arrived, has_started = _Waiting(next(self._numbers), job), False
            if not self._queue.holds(job.shape):
                for event in self._start(arrived, job.submit):
                    has_started = True
                    yield event
            if not has_started:
                if self._rules.waits:
                    self._queue.push(arrived)
                yield Event(EventKind.REFUSED, job.submit, job, self.snapshot)
        yield from self._until(FOREVER)

    def _until(self, time: float) -> Iterator[Event]:
        """Yield the departures up to a time, and the starts that they allow."""
        while self._ends and self._ends[0].end <= time and self._ends[0].end < FOREVER:
            gone = heappop(self._ends)
            # The heap also has the ends of jobs that were evicted: it cannot find a job by name.
            if self._running.pop(gone.unit.name, None) is None:
                continue
            yield self._remove(
                gone, Event(EventKind.LEAVES, gone.end, gone.waiting.job, self.snapshot)
            )
            yield from self._queue.start_each(partial(self._start, time=gone.end))

    def _remove(self, gone: _Running, event: Event) -> Event:
        """Take a job off its nodes, and return the event with these."""
        self.snapshot = self.snapshot.without_holdings(gone.holdings)
        self._density.remove(gone.waiting.job.shape, (node for node, _ in gone.holdings))
        return event._replace(nodes=frozenset(node for node, _ in gone.holdings))

    def _start(self, waiting: _Waiting, time: float) -> Iterator[Event]:
        """Yield the evictions that a job needs, then its start; nothing where it is refused.

        Raises:
            LedgerError: The policy gave out a GPU that is taken.
        """
        shape = waiting.job.shape
        if shape.total > self._gpus:
            # No policy is asked: a trace may have jobs of any size, which take time each time.
            return
        self.decisions += 1
        members = members_of(waiting.job, self.decisions, shared=self._rules.shared)
        fleet = self._density.open_nodes(self.snapshot, shape)
        placements = self._policy.place(fleet, shape, members) if fleet.nodes else None
        if placements is None:
            eviction = self._eviction(shape, members, time)
            if eviction is None:
                return
            for unit in eviction.victims:
                yield self._evict(self._running.pop(unit.name), time)
            placements = eviction.plan.placements
        yield self._place(waiting, placements, time)

    def _place(self, waiting: _Waiting, placements: Sequence[Placement], time: float) -> Event:
        """Start a job where it is placed, and return the event.

        Raises:
            LedgerError: The policy gave out a GPU that is taken.
        """
        job, before = waiting.job, self.snapshot
        holdings = tuple((each.node, each.holding) for each in placements)
        # The ledger is the proof that no GPU is held twice: it raises.
        self.snapshot = before.hold_all(holdings)
        self._density.add(job.shape, (node for node, _ in holdings))
        pods = tuple(VictimPod(node, holding, time) for node, holding in holdings)
        unit = Victim(f"{self.decisions}", job.shape.priority, pods)
        running = _Running(time + job.duration, self.decisions, waiting, time, unit)
        heappush(self._ends, running)
        self._running[unit.name] = running
        starts = Event(EventKind.STARTS, time, job, before, is_again=waiting.is_again)
        nodes = frozenset(node for node, _ in holdings)
        return starts._replace(nodes=nodes, placements=tuple(placements))

    def _eviction(self, shape: Shape, members: Sequence[Member], time: float) -> Eviction | None:
        """Return the jobs to evict for one that does not fit, or None."""
        policy = self._policy
        if not shape.priority or not self._rules.waits or not isinstance(policy, Preempting):
            return None
        if time < self._search_at.get(shape, 0.0):
            return None
        units = [
            running.unit
            for running in self._running.values()
            if running.unit.priority < shape.priority and running.start + MIN_RUN <= time
        ]
        found = policy.preempt(self.snapshot, members, units, time) if units else None
        if found is None:
            self._search_at[shape] = time + SEARCH_PAUSE
        return found

    def _evict(self, gone: _Running, time: float) -> Event:
        number, job, _ = gone.waiting
        self._queue.push(_Waiting(number, job, is_again=True))
        event = Event(EventKind.EVICTED, time, job, self.snapshot, ran=time - gone.start)
        return self._remove(gone, event)
