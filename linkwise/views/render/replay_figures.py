"""The figures of a replay as text: rows of tables, and the lines around them. Pure."""

from collections.abc import Callable, Iterable, Iterator, Mapping
from statistics import median

from linkwise.replay.fleet import empty_fleet, gpus_of_fleet
from linkwise.replay.league import SEEDS_MIN, Column, Figure, league, waits_by_size
from linkwise.replay.measures import SET_SIZE, Size
from linkwise.views.analysis.replay_runs import ReplayInputs, ReplayResults, RunResult
from linkwise.views.output.words import plural

_FORMATS: Mapping[Column, tuple[str, Callable[[float], str]]] = {
    Column.FIRST_REFUSAL: ("AT FIRST REFUSAL", lambda part: f"{100 * part:.1f} %"),
    Column.ALLOCATED: ("MEAN ALLOCATED", lambda part: f"{100 * part:.1f} %"),
    Column.AT_END: ("AT LAST ARRIVAL", lambda part: f"{100 * part:.2f} %"),
    Column.WAIT: ("MEAN WAIT", lambda seconds: f"{seconds:,.0f} s"),
    Column.URGENT_WAIT: ("HIGH PRIORITY WAITS", lambda seconds: f"{seconds:,.0f} s"),
    Column.EVICTIONS: ("EVICTIONS", lambda jobs: f"{jobs:,.0f}"),
    Column.LOST_TIME: ("GPU HOURS LOST", lambda seconds: f"{seconds / 3600:,.0f}"),
    Column.UNPLACED: ("UNPLACED", lambda jobs: f"{jobs:,.0f}"),
    Column.BEST_SET: ("ON BEST SET", lambda part: f"{100 * part:.1f} %"),
    Column.BANDWIDTH: ("GB/s", lambda speed: f"{speed:.1f}"),
    Column.LOST: ("GB/s LOST", lambda speed: f"{speed:.1f}"),
    Column.FREE_SETS: (f"FREE SETS OF {SET_SIZE}", lambda sets: f"{sets:,.1f}"),
    Column.SPLIT: ("SPLIT", lambda jobs: f"{jobs:,.0f}"),
    Column.SPLIT_DOMAINS: ("SPLIT OVER DOMAINS", lambda jobs: f"{jobs:,.0f}"),
}
_SIZES = {Size.SHARE: "A SHARE", Size.ONE: "1 GPU"}
_WHEN_FILLED = {
    Column.ALLOCATED,
    Column.WAIT,
    Column.URGENT_WAIT,
    Column.EVICTIONS,
    Column.LOST_TIME,
}
"""Figures without a meaning where jobs neither wait nor end."""


def figure_rows(inputs: ReplayInputs, results: ReplayResults) -> list[list[str]]:
    """Return the table of figures: a header, then a row for each policy."""
    figures = league(results.measures)
    columns = _columns(inputs, figures)
    header = ["POLICY", *(_FORMATS[column][0] for column in columns), "DECISIONS/s"]
    rows = [
        [
            policy,
            *(_cell(own.get(column), _FORMATS[column][1]) for column in columns),
            _speed(results.runs[policy].values()),
        ]
        for policy, own in figures.items()
    ]
    return [header, *rows]


def ratio_rows(inputs: ReplayInputs, results: ReplayResults) -> list[list[str]]:
    """Return the table of the ratios of medians to those of the best policy."""
    figures = league(results.measures)
    columns = _columns(inputs, figures)
    header = ["RATIO TO THE BEST", *(_FORMATS[column][0] for column in columns)]
    rows = [
        [policy, *(_ratio(own.get(column)) for column in columns)]
        for policy, own in figures.items()
    ]
    return [header, *rows]


def _columns(inputs: ReplayInputs, figures: Mapping[str, Mapping[Column, Figure]]) -> list[Column]:
    unused = _WHEN_FILLED if inputs.scenario.fills else {Column.AT_END}
    return [
        column
        for column in _FORMATS
        if column not in unused and any(column in own for own in figures.values())
    ]


def wait_rows(results: ReplayResults) -> list[list[str]]:
    """Return the table of waiting times by the size of jobs."""
    figures, show_value = waits_by_size(results.measures), _FORMATS[Column.WAIT][1]
    sizes = [size for size in Size if any(size in own for own in figures.values())]
    names = (_SIZES.get(size, f"{size} GPUs") for size in sizes)
    rows = [
        [policy, *(_cell(own.get(size), show_value) for size in sizes)]
        for policy, own in figures.items()
    ]
    return [["MEAN WAIT OF", *names], *rows]


def input_lines(inputs: ReplayInputs, results: ReplayResults) -> Iterator[str]:
    """Yield what was replayed, then what was left out or changed."""
    survey, scenario = inputs.survey, inputs.scenario
    fleet = empty_fleet(inputs.fleet.nodes, shared=scenario.shared)
    jobs, gpus = survey.jobs, gpus_of_fleet(fleet)
    seeds = max(map(len, results.runs.values()), default=0)
    arrivals = f"over {_span(survey.span)}"
    if scenario.fills:
        arrivals = "drawn until they ask for all GPUs"
    load = f", at load {scenario.load:g}" if scenario.load is not None else ""
    yield (
        f"{inputs.reader.format.title}: {jobs:,} {plural('job', jobs)}, {arrivals}{load}; "
        f"{len(fleet.nodes):,} nodes with {gpus:,} GPUs; {seeds} {plural('seed', seeds)}"
    )
    for reason, lines in sorted(survey.left_out.items()):
        yield f"left out: {lines:,} {plural('line', lines)} {reason}"
    if not survey.is_sorted:
        yield "the trace is not in the order of submit times: it was sorted"


def legend_lines(results: ReplayResults) -> Iterator[str]:
    """Yield how to read the tables."""
    if any(len(runs) >= SEEDS_MIN for runs in results.runs.values()):
        yield "* worse than the best policy with every seed"
    else:
        yield f"with fewer than {SEEDS_MIN} seeds it is not said which differences are clear"
    yield "bandwidth is modelled, without contention and without a network"


def _span(seconds: float) -> str:
    hours = seconds / 3600
    return f"{hours:.1f} hours" if hours < 48 else f"{hours / 24:.1f} days"


def _cell(figure: Figure | None, show_value: Callable[[float], str]) -> str:
    """Return the median, the spread, and a mark where it is clearly worse than the best."""
    if figure is None:
        return "–"
    shown, least, most = map(show_value, (figure.median, figure.least, figure.most))
    spread = "" if least == most else f" ({least} to {most})"
    return f"{shown}{spread}{'*' if figure.clear else ''}"


def _ratio(figure: Figure | None) -> str:
    return "–" if figure is None or figure.ratio is None else f"{figure.ratio:.2f}×"


def _speed(runs: Iterable[RunResult]) -> str:
    return f"{median(run.measures.decisions / max(run.seconds, 1e-9) for run in runs):,.0f}"
