"""One run of a replay: a policy, a seed, and the sequence of jobs that follows from both."""

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass

import numpy as np

from linkwise.planning.placement.state.snapshot import Snapshot
from linkwise.replay.arrivals import arriving, filling, stretch_for, stretch_until
from linkwise.replay.engine import Rules, Run
from linkwise.replay.fleet import gpus_of_fleet
from linkwise.replay.job import FOREVER, Job, Shape
from linkwise.replay.measures import Measures
from linkwise.replay.policies.own import errors_named
from linkwise.replay.policies.policy import Context
from linkwise.replay.policies.registry import factory_of
from linkwise.replay.recorder import measured
from linkwise.replay.traces.read import Survey


@dataclass(frozen=True, slots=True)
class Scenario:
    """What all runs of a replay share."""

    shared: bool
    """The fleet gives out shares."""
    fills: bool = False
    """Jobs are drawn until they ask for all GPUs, and never end."""
    load: float | None = None
    """The load that arrivals are scaled to, as a part of the fleet; None: those of the trace."""
    until: float = FOREVER
    """No job arrives later [s] after the first one; a load is that of the jobs until then."""


@dataclass(frozen=True, slots=True)
class Trace:
    """The jobs of a trace, and what its survey found."""

    jobs: Callable[[], Iterable[Job]]
    """Starts to read them, by submit time."""
    survey: Survey


@dataclass(frozen=True, slots=True)
class Task:
    """One run."""

    policy: str
    seed: int


def carry_out(
    task: Task, scenario: Scenario, trace: Trace, fleet: Snapshot, on_job: Callable[[], None]
) -> Measures:
    """Return the figures of a run; the same for the same arguments.

    Args:
        task: The run.
        scenario: The scenario.
        trace: The trace.
        fleet: The empty fleet.
        on_job: Called after each job that arrived.
    """
    gpus, survey = gpus_of_fleet(fleet), trace.survey
    if scenario.fills:
        jobs = filling(trace.jobs(), task.seed, gpus)
    else:
        stretch = _stretch(scenario, trace, gpus)
        jobs = arriving(trace.jobs(), task.seed, stretch, scenario.until)
    context = Context(np.random.default_rng(task.seed), _popularity(survey.shapes))
    rules = Rules(shared=scenario.shared, waits=not scenario.fills)
    expected = expected_jobs(scenario, survey, gpus)
    with errors_named(task.policy):
        # Runs share no cached values, so that the time of one does not depend on those before it.
        run = Run(fleet.fork(), factory_of(task.policy)(context), rules)
        return measured(run, _observed(jobs, on_job), expected)


def _observed(jobs: Iterable[Job], on_job: Callable[[], None]) -> Iterator[Job]:
    for job in jobs:
        yield job
        on_job()


def _stretch(scenario: Scenario, trace: Trace, gpus: int) -> float:
    """Return the factor of the times between arrivals."""
    whole = _stretch_of_all(scenario, trace.survey, gpus)
    if scenario.load is None or trace.survey.span * whole <= scenario.until:
        return whole
    return stretch_until(trace.jobs(), scenario.load * scenario.until * gpus, scenario.until)


def _stretch_of_all(scenario: Scenario, survey: Survey, gpus: int) -> float:
    if scenario.load is None:
        return 1.0
    return stretch_for(scenario.load, survey.gpu_seconds, survey.span, gpus)


def expected_jobs(scenario: Scenario, survey: Survey, gpus: int) -> int:
    """Return about how many jobs arrive in a run, at least 1."""
    part = 1.0
    if scenario.fills:
        part = gpus / survey.gpus
    elif span := survey.span * _stretch_of_all(scenario, survey, gpus):
        part = min(1.0, scenario.until / span)
    return max(1, round(part * survey.jobs))


def _popularity(shapes: Mapping[Shape, int]) -> dict[Shape, float]:
    total = sum(shapes.values())
    return {shape: number / total for shape, number in shapes.items()}
