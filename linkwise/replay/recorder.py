"""Record the figures of a run, event by event in bounded memory."""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from math import ceil

from linkwise.cluster.account.node_ledger import NodeLedger
from linkwise.planning.placement.bandwidth import Bandwidth
from linkwise.planning.placement.baselines import best_possible
from linkwise.planning.placement.placements import new_plan
from linkwise.planning.placement.state.snapshot import Snapshot
from linkwise.replay.engine import Event, EventKind, Run
from linkwise.replay.fleet import domain_label, gpus_of_fleet
from linkwise.replay.job import Job, Shape, members_of
from linkwise.replay.measures import SET_SIZE, Measures, Point, size_of

TOLERANCE = 0.01
"""A set of GPUs is the best possible one if its bandwidth is less than this below."""
POINTS = 120
"""Points of a curve."""


def measured(run: Run, jobs: Iterable[Job], expected: int) -> Measures:
    """Carry out a run, and return its figures.

    Args:
        run: A run that has not begun.
        jobs: Its jobs, by submit time.
        expected: How many these are, about; for the distance of the points of curves.
    """
    recorder = _Recorder(run, max(1, expected // POINTS))
    for event in run.events(recorder.counting(jobs)):
        recorder.add(event)
    return recorder.finish()


class _Recorder:
    def __init__(self, run: Run, every: int) -> None:
        fleet = run.snapshot
        self.figures = Measures(gpus_of_fleet(fleet))
        self._run, self._every = run, every
        self._used = 0.0
        self._sets = sum(map(_free_sets, fleet.nodes))
        self._cards = max((len(node.node.cards) for node in fleet.nodes), default=1)
        self._best = _BestPossible(fleet)
        self._domains = _domains_of(fleet)
        self.figures.split_over_domains = 0 if self._domains else None
        self._clock: float | None = None
        self._begin = 0.0
        self._area = self._set_area = 0.0
        self._end: tuple[float, float, float] = (0.0, 0.0, 0.0)

    def counting(self, jobs: Iterable[Job]) -> Iterator[Job]:
        """Yield the jobs; the one before is counted when the next one is requested."""
        for job in jobs:
            self.figures.arrived += 1
            self.figures.demand += job.shape.total
            yield job
            # The engine requests the next job after all events of this one.
            self._mark_end()
            if self.figures.arrived % self._every == 0:
                self._add_point(job.submit)

    def add(self, event: Event) -> None:
        """Record an event."""
        self._advance(event.time)
        figures, total = self.figures, event.job.shape.total
        match event.kind:
            case EventKind.STARTS:
                self._used += total
                if not event.is_again:
                    self._add_started(event)
                self._update_sets(event)
            case EventKind.EVICTED:
                self._used -= total
                figures.evictions += 1
                figures.lost_gpu_seconds += event.ran * total
                self._update_sets(event)
            case EventKind.LEAVES:
                self._used -= total
                self._update_sets(event)
            case EventKind.REFUSED:
                if figures.at_first_refusal is None:
                    figures.at_first_refusal = self._used / figures.gpus

    def finish(self) -> Measures:
        """Return the figures."""
        figures = self.figures
        # Else a policy that never starts the jobs of the longest wait would look better.
        for job in self._run.never_started:
            self._add_wait(job, self._clock or 0.0)
        area, set_area, duration = self._end
        figures.mean_allocated = area / duration / figures.gpus if duration else 0.0
        figures.mean_free_sets = set_area / duration if duration else float(self._sets)
        figures.decisions = self._run.decisions
        figures.unplaced = figures.arrived - figures.started
        return figures

    def _mark_end(self) -> None:
        """Keep the state after an arrival: departures after the last one do not count."""
        clock = self._clock or 0.0
        self._end = self._area, self._set_area, clock - self._begin
        self.figures.allocated_at_end = self._used / self.figures.gpus

    def _add_point(self, time: float) -> None:
        figures = self.figures
        demand, used = figures.demand / figures.gpus, self._used / figures.gpus
        figures.points.append(Point(time, demand, used, self._sets, self._run.waiting))

    def _advance(self, time: float) -> None:
        if self._clock is None:
            self._begin = self._clock = time
        self._area += self._used * (time - self._clock)
        self._set_area += self._sets * (time - self._clock)
        self._clock = time

    def _add_started(self, event: Event) -> None:
        figures, shape = self.figures, event.job.shape
        figures.started += 1
        self._add_wait(event.job, event.time)
        figures.split += len(event.nodes) > ceil(shape.pods * shape.gpus / self._cards)
        if self._domains and figures.split_over_domains is not None:
            figures.split_over_domains += self._domains.are_split(event)
        if shape.is_share or shape.pods * shape.gpus < 2:
            return
        got, best = _bandwidth(event), self._best.of(event.job)
        if got.value is None or best.value is None:
            return
        figures.known += 1
        # On more nodes fewer links count inside each, where the network does not count.
        if got.is_comparable(best):
            figures.comparable += 1
            figures.on_best += got.value >= best.value * (1 - TOLERANCE)
            figures.bandwidth += got.value
            figures.lost += max(0.0, best.value - got.value)

    def _add_wait(self, job: Job, until: float) -> None:
        wait = until - job.submit
        self.figures.waits[size_of(job.shape)].add(wait)
        if job.shape.priority:
            self.figures.urgent_waits.add(wait)

    def _update_sets(self, event: Event) -> None:
        before, after = event.before.ledger.nodes, self._run.snapshot.ledger.nodes
        self._sets += sum(
            _free_sets(after[name]) - _free_sets(before[name]) for name in event.nodes
        )


@dataclass(frozen=True, slots=True)
class _Domains:
    """The domains of a fleet by its nearest label; a node without the label is one of its own."""

    of_node: Mapping[str, str]
    gpus: int
    """GPUs of the largest domain."""

    def are_split(self, event: Event) -> bool:
        """Return whether a job starts in more domains than its GPUs need."""
        shape = event.job.shape
        used = {self.of_node[node] for node in event.nodes}
        return len(used) > ceil(shape.pods * shape.gpus / self.gpus)


def _domains_of(fleet: Snapshot) -> _Domains | None:
    label = domain_label(fleet)
    if label is None:
        return None
    nodes = [ledger.node for ledger in fleet.nodes]
    of_node = {node.name: node.labels.get(label, f"node {node.name}") for node in nodes}
    sizes = Counter[str]()
    for node in nodes:
        sizes[of_node[node.name]] += len(node.cards)
    return _Domains(of_node, max(sizes.values()))


class _BestPossible:
    """The best possible bandwidth of each shape, on the empty fleet."""

    def __init__(self, fleet: Snapshot) -> None:
        self._fleet = fleet.fork()
        self._known: dict[Shape, Bandwidth] = {}

    def of(self, job: Job) -> Bandwidth:
        """Return it for a job with whole GPUs."""
        if job.shape not in self._known:
            members = members_of(job, 0, shared=False)
            self._known[job.shape] = best_possible(self._fleet, members)
        return self._known[job.shape]


def _bandwidth(event: Event) -> Bandwidth:
    return new_plan(event.before, event.placements, exact=False).bandwidth


def _free_sets(node: NodeLedger) -> int:
    """Return how many sets of `SET_SIZE` GPUs without pods a node has."""
    return sum(not taken.holders for taken in node.taken) // SET_SIZE
