"""The document of `linkwise replay` for scripts."""

from importlib.metadata import version

from msgspec import Struct

from linkwise.replay.fleet import empty_fleet, gpus_of_fleet
from linkwise.replay.job import FOREVER
from linkwise.replay.league import Column, Figure, league
from linkwise.replay.measures import SET_SIZE, Waits
from linkwise.views.analysis.replay_runs import ReplayInputs, ReplayResults, RunResult
from linkwise.views.output.document import Document, rounded


class TraceFacts(Struct, frozen=True, kw_only=True):
    """The trace."""

    file: str
    format: str
    jobs: int
    left_out: dict[str, int]
    """Lines that are no jobs of a replay, by reason."""
    sorted: bool
    """The file is in the order of submit times; else it was sorted in memory."""
    span: float
    """From the first to the last arrival [s]."""


class FleetFacts(Struct, frozen=True, kw_only=True):
    """The fleet."""

    nodes: int
    gpus: int
    shared: bool
    """Its nodes give out shares."""


class WaitingTime(Struct, frozen=True, kw_only=True):
    """How long the jobs of one size waited: until they started, or the run ended."""

    jobs: int
    mean: float
    """[s]"""
    longest: float
    """[s]"""


class CurvePoint(Struct, frozen=True, kw_only=True):
    """A point of the curves of a run."""

    time: float
    """[s]"""
    demand: float
    """GPUs that all jobs so far asked for, as a part of the fleet."""
    allocated: float
    """Part of the GPUs in use."""
    free_sets: int
    waiting: int


class PolicyRun(Struct, frozen=True, kw_only=True):
    """One run of a policy. Parts are of 1."""

    seed: int
    seconds: float
    """CPU time that it took."""
    decisions: int
    decisions_per_second: float
    """Of CPU time, with all that is recorded of them."""
    arrived: int
    started: int
    unplaced: int
    """Jobs that never started."""
    allocated_at_first_refusal: float | None
    """Null: no job was refused."""
    allocated_at_last_arrival: float
    mean_allocated: float
    mean_wait: float
    """[s]"""
    waits: dict[str, WaitingTime]
    """By the number of GPUs of a job."""
    high_priority_wait: WaitingTime | None
    """Of the jobs above the lowest priority; null: the trace has no priorities."""
    evictions: int
    """Times that a job lost its place to one of a higher priority."""
    gpu_seconds_lost: float
    """GPU time of evicted jobs, which run again from the beginning."""
    jobs_of_known_bandwidth: int
    on_best_set: float | None
    """Part of these jobs that are as fast as on the empty fleet."""
    mean_bandwidth: float | None
    """Modelled [GB/s]."""
    mean_bandwidth_lost: float | None
    """To the best possible set [GB/s]."""
    mean_free_sets: float
    split: int
    """Jobs on more nodes than their GPUs need."""
    split_over_domains: int | None
    """Those in more network domains than their GPUs need; null: the fleet has none."""
    points: list[CurvePoint]


class FigureFacts(Struct, frozen=True, kw_only=True):
    """One figure of a policy over all seeds."""

    median: float
    least: float
    most: float
    ratio: float | None
    """To the median of the best policy."""
    clear: bool | None
    """Worse than the best policy with every seed; null: too few seeds to tell."""


class PolicyResult(Struct, frozen=True, kw_only=True):
    """All runs of a policy."""

    policy: str
    figures: dict[str, FigureFacts]
    runs: list[PolicyRun]


class Replay(Document, frozen=True, kw_only=True):
    """A trace under several policies."""

    version: str
    """Of Linkwise."""
    trace: TraceFacts
    fleet: FleetFacts
    load: float | None
    """The load that arrivals were scaled to; null: those of the trace."""
    fills: bool
    """Jobs were drawn until they asked for all GPUs, and never ended."""
    until: float | None
    """The last arrival that counts [s] after the first one."""
    set_size: int
    """GPUs of the free sets that are counted."""
    complete: bool
    """False: it was interrupted, and some runs are missing."""
    policies: list[PolicyResult]


def document(inputs: ReplayInputs, results: ReplayResults) -> Replay:
    """Return the document of a replay."""
    scenario, survey, reader = inputs.scenario, inputs.survey, inputs.reader
    fleet = empty_fleet(inputs.fleet.nodes, shared=scenario.shared)
    figures = league(results.measures)
    return Replay(
        version=version("linkwise"),
        trace=TraceFacts(
            file=reader.file,
            format=reader.format.name,
            jobs=survey.jobs,
            left_out=dict(sorted(survey.left_out.items())),
            sorted=survey.is_sorted,
            span=survey.span,
        ),
        fleet=FleetFacts(nodes=len(fleet.nodes), gpus=gpus_of_fleet(fleet), shared=scenario.shared),
        load=scenario.load,
        fills=scenario.fills,
        until=None if scenario.until == FOREVER else scenario.until,
        set_size=SET_SIZE,
        complete=results.is_complete,
        policies=[
            PolicyResult(
                policy=policy,
                figures={key(column): _facts(each) for column, each in figures[policy].items()},
                runs=[_run(runs[seed]) for seed in sorted(runs)],
            )
            for policy, runs in results.runs.items()
            if runs
        ],
    )


def key(column: Column) -> str:
    """Return the name of a figure in the document."""
    return column.name.lower()


def _facts(figure: Figure) -> FigureFacts:
    return FigureFacts(
        median=_precise(figure.median),
        least=_precise(figure.least),
        most=_precise(figure.most),
        ratio=None if figure.ratio is None else _precise(figure.ratio),
        clear=figure.clear,
    )


def _run(result: RunResult) -> PolicyRun:
    run = result.measures
    return PolicyRun(
        seed=result.task.seed,
        seconds=round(result.seconds, 3),
        decisions=run.decisions,
        decisions_per_second=round(run.decisions / max(result.seconds, 1e-9), 1),
        arrived=run.arrived,
        started=run.started,
        unplaced=run.unplaced,
        allocated_at_first_refusal=_part(run.at_first_refusal),
        allocated_at_last_arrival=_precise(run.allocated_at_end),
        mean_allocated=_precise(run.mean_allocated),
        mean_wait=round(run.wait, 1),
        waits={size.value: _waiting(waits) for size, waits in run.waits.items() if waits.jobs},
        high_priority_wait=_waiting(run.urgent_waits) if run.urgent_waits.jobs else None,
        evictions=run.evictions,
        gpu_seconds_lost=round(run.lost_gpu_seconds, 1),
        jobs_of_known_bandwidth=run.known,
        on_best_set=_part(run.best_share),
        mean_bandwidth=rounded(run.mean_bandwidth),
        mean_bandwidth_lost=rounded(run.mean_lost),
        mean_free_sets=round(run.mean_free_sets, 1),
        split=run.split,
        split_over_domains=run.split_over_domains,
        points=[
            CurvePoint(
                time=round(point.time, 1),
                demand=_precise(point.demand),
                allocated=_precise(point.allocated),
                free_sets=point.free_sets,
                waiting=point.waiting,
            )
            for point in run.points
        ],
    )


def _waiting(waits: Waits) -> WaitingTime:
    return WaitingTime(jobs=waits.jobs, mean=round(waits.mean, 1), longest=round(waits.longest, 1))


def _part(value: float | None) -> float | None:
    return None if value is None else _precise(value)


def _precise(value: float) -> float:
    return round(value, 6)
