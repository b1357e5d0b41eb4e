"""Carries out the runs of a replay, several at a time in processes of their own."""

import gc
import os
import signal
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from multiprocessing import get_context
from multiprocessing.pool import Pool
from typing import NamedTuple, TypeAlias

from cli.files.trace_file import Fleet
from replay.fleet import empty_fleet
from replay.measures import Measures
from replay.run import Scenario, Task, Trace, carry_out
from replay.traces.read import Survey, TraceReader
from runtime.process.clock import cpu_time
from scorer.placement.state.snapshot import Snapshot


@dataclass(frozen=True, slots=True)
class ReplayInputs:
    """What all runs of a replay read."""

    reader: TraceReader
    survey: Survey
    fleet: Fleet
    scenario: Scenario


class RunResult(NamedTuple):
    """The figures of a run, and what it cost."""

    task: Task
    measures: Measures
    seconds: float
    """CPU time [s]: that of the clock depends on what else the machine does."""


Results: TypeAlias = Iterator[RunResult]


@dataclass(slots=True)
class ReplayResults:
    """The runs that are done."""

    runs: dict[str, dict[int, RunResult]]
    """By policy and seed."""
    is_complete: bool = False

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
    progress: Callable[[Iterable[RunResult]], Iterable[RunResult]],
) -> ReplayResults:
    """Carry out all runs; an interrupt (Ctrl-C) ends them early.

    Args:
        inputs: What they read.
        tasks: The runs.
        progress: Yields each result when it is done.
    """
    results = ReplayResults({task.policy: {} for task in tasks})
    try:
        for result in progress(_results(inputs, tasks)):
            results.runs[result.task.policy][result.task.seed] = result
        results.is_complete = True
    except KeyboardInterrupt:
        pass
    return results


def _results(inputs: ReplayInputs, tasks: Sequence[Task]) -> Results:
    processes = min(len(tasks), os.cpu_count() or 1)
    if processes == 1:
        runner = _Runner(inputs)
        yield from map(runner.run, tasks)
        return
    with _pool(processes, inputs) as pool:
        yield from pool.imap_unordered(_run, tasks)


def _pool(processes: int, inputs: ReplayInputs) -> Pool:
    """Start processes that ignore Ctrl-C; this one handles it, and ends them."""
    # A fork would copy the threads of numpy in an unknown state.
    context = get_context("spawn")
    # Processes inherit that it is ignored, so that none shows a traceback while it starts.
    handler = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        return context.Pool(processes, _begin, (inputs,))
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

    def run(self, task: Task) -> RunResult:
        """Carry out one run."""
        start = cpu_time()
        measures = carry_out(task, self._scenario, self._trace, self._fleet)
        return RunResult(task, measures, cpu_time() - start)


_runner: _Runner | None = None
"""Of a process that carries out runs."""


def _begin(inputs: ReplayInputs) -> None:
    """Prepare a process."""
    global _runner  # noqa: PLW0603 - a pool has no other place for what its processes share
    _runner = _Runner(inputs)


def _run(task: Task) -> RunResult:
    if _runner is None:
        raise AssertionError("the process was not prepared")
    return _runner.run(task)
