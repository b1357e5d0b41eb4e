"""Carries out the runs of a replay, several at a time in processes of their own."""

import gc
import os
import signal
from collections.abc import Callable, Iterator, Sequence
from ctypes import Array, c_int64
from dataclasses import dataclass, field
from multiprocessing import TimeoutError as NotYet
from multiprocessing import get_context
from multiprocessing.pool import IMapIterator, Pool
from multiprocessing.sharedctypes import RawArray
from typing import NamedTuple, TypeAlias

from linkwise.planning.placement.state.snapshot import Snapshot
from linkwise.replay.fleet import empty_fleet
from linkwise.replay.measures import Measures
from linkwise.replay.run import Scenario, Task, Trace, carry_out, expected_jobs
from linkwise.replay.traces.read import Survey, TraceReader
from linkwise.runtime.process.clock import cpu_time
from linkwise.views.files.trace_file import Fleet
from linkwise.views.output.progress import Advance

_POLL = 0.2
"""The time after which the number of arrived jobs is read again [s]."""


@dataclass(frozen=True, slots=True)
class ReplayInputs:
    """What all runs of a replay read."""

    reader: TraceReader
    survey: Survey
    fleet: Fleet
    scenario: Scenario

    @property
    def jobs(self) -> int:
        """About how many jobs arrive in a run."""
        gpus = sum(len(node.cards) for node in self.fleet.nodes)
        return expected_jobs(self.scenario, self.survey, gpus)


class RunResult(NamedTuple):
    """The figures of a run, and what it cost."""

    task: Task
    measures: Measures
    seconds: float
    """CPU time [s]: that of the clock depends on what else the machine does."""


Results: TypeAlias = Iterator[RunResult]
Counts: TypeAlias = Array[c_int64]
"""How many jobs arrived in each run so far, in memory that processes share."""


@dataclass(slots=True)
class ReplayResults:
    """The runs that are done."""

    runs: dict[str, dict[int, RunResult]] = field(default_factory=dict)
    """By policy and seed."""
    is_complete: bool = False

    def add(self, result: RunResult) -> None:
        """Add a run."""
        self.runs.setdefault(result.task.policy, {})[result.task.seed] = result

    @property
    def measures(self) -> dict[str, dict[int, Measures]]:
        """The figures of each policy that has some, by seed."""
        return {
            policy: {seed: runs[seed].measures for seed in sorted(runs)}
            for policy, runs in self.runs.items()
            if runs
        }


def carry_out_all(
    inputs: ReplayInputs,
    tasks: Sequence[Task],
    results: ReplayResults,
    keep: Callable[[RunResult], None] | None,
    advance: Advance,
) -> None:
    """Carry out all runs; an interrupt (Ctrl-C) ends them early.

    Args:
        inputs: What they read.
        tasks: The runs.
        results: Receives each run that is done.
        keep: Stores a run that is done; None: none is stored.
        advance: Takes how many more jobs arrived, now and then.
    """
    try:
        for result in _results(inputs, tasks, advance):
            results.add(result)
            if keep:
                keep(result)
        results.is_complete = True
    except KeyboardInterrupt:
        pass


def _results(inputs: ReplayInputs, tasks: Sequence[Task], advance: Advance) -> Results:
    processes = min(len(tasks), os.cpu_count() or 1)
    if processes <= 1:
        runner = _Runner(inputs)
        for task in tasks:
            yield runner.run(task, lambda: advance(1))
        return
    # A run has a number of its own, so that no process waits for another one to count.
    counts = RawArray(c_int64, len(tasks))
    with _pool(processes, inputs, counts) as pool:
        finished = pool.imap_unordered(_run, enumerate(tasks))
        yield from _watched(finished, counts, advance)


def _watched(finished: "IMapIterator[RunResult]", counts: Counts, advance: Advance) -> Results:
    """Yield the results of processes; meanwhile report how many jobs arrived."""
    shown = 0
    while True:
        result = None
        try:
            result = finished.next(_POLL)
        except NotYet:
            pass
        except StopIteration:
            return
        arrived = sum(counts)
        advance(arrived - shown)
        shown = arrived
        if result is not None:
            yield result


def _pool(processes: int, inputs: ReplayInputs, counts: Counts) -> Pool:
    """Start processes that ignore Ctrl-C; this one handles it, and ends them."""
    # A fork would copy the threads of numpy in an unknown state.
    context = get_context("spawn")
    # Processes inherit that it is ignored, so that none shows a traceback while it starts.
    handler = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        return context.Pool(processes, _begin, (inputs, counts))
    finally:
        signal.signal(signal.SIGINT, handler)


class _Runner:
    """Carries out runs on one fleet."""

    def __init__(self, inputs: ReplayInputs) -> None:
        # The command switches it off, because most commands are short.
        gc.enable()
        reader, survey, fleet = inputs.reader, inputs.survey, inputs.fleet
        self._scenario = inputs.scenario
        self._trace = Trace(lambda: reader.jobs(is_sorted=survey.is_sorted), survey)
        shared = inputs.scenario.shared
        self._fleet: Snapshot = empty_fleet(
            fleet.nodes, shared=shared, preferences=fleet.preferences
        )

    def run(self, task: Task, on_job: Callable[[], None]) -> RunResult:
        """Carry out one run."""
        start = cpu_time()
        measures = carry_out(task, self._scenario, self._trace, self._fleet, on_job)
        return RunResult(task, measures, cpu_time() - start)


_process: tuple[_Runner, Counts] | None = None
"""Of a process that carries out runs."""


def _begin(inputs: ReplayInputs, counts: Counts) -> None:
    """Prepare a process."""
    global _process  # noqa: PLW0603 - a pool has no other place for what its processes share
    _process = _Runner(inputs), counts


def _run(numbered: tuple[int, Task]) -> RunResult:
    if _process is None:
        raise AssertionError("the process was not prepared")
    (number, task), (runner, counts) = numbered, _process

    def on_job() -> None:
        counts[number] += 1

    return runner.run(task, on_job)
