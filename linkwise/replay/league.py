"""The comparison of policies over seeds: medians, spread, and which differences are clear."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from functools import partial
from statistics import median
from typing import TypeVar

from linkwise.replay.measures import Measures, Size

Key = TypeVar("Key")

SEEDS_MIN = 6
"""With fewer seeds, even the same sign in all of them is likely by chance (above 5 %)."""


@dataclass(frozen=True, slots=True)
class Figure:
    """One figure of a policy."""

    median: float
    least: float
    most: float
    ratio: float | None
    """To the best median of any policy; None where that is 0."""
    clear: bool | None
    """It is worse than that of the best policy with every seed; None: too few seeds to tell. False
    for the best policy itself."""


class Column(StrEnum):
    """The figures that are compared."""

    FIRST_REFUSAL = "allocated at first refusal"
    ALLOCATED = "allocated"
    AT_END = "allocated at the last arrival"
    WAIT = "mean wait"
    URGENT_WAIT = "mean wait of high priority"
    EVICTIONS = "evictions"
    LOST_TIME = "GPU time lost"
    BEST_SET = "on best set"
    BANDWIDTH = "mean bandwidth"
    LOST = "bandwidth lost"
    FREE_SETS = "free sets"
    SPLIT = "split"
    SPLIT_DOMAINS = "split over domains"
    UNPLACED = "unplaced"


@dataclass(frozen=True, slots=True)
class _Rule:
    value: Callable[[Measures], float | None]
    is_high_best: bool = True


def _evictions(run: Measures) -> float | None:
    """Return the number of evictions; None where all jobs have one priority."""
    return float(run.evictions) if run.urgent_waits.jobs else None


def _split_over_domains(run: Measures) -> float | None:
    """Return the number of such jobs; None where the fleet has no domains."""
    return None if run.split_over_domains is None else float(run.split_over_domains)


def _lost_time(run: Measures) -> float | None:
    return run.lost_gpu_seconds if run.urgent_waits.jobs else None


_RULES: Mapping[Column, _Rule] = {
    # A run without a refusal has room for all of its jobs.
    Column.FIRST_REFUSAL: _Rule(lambda run: run.at_first_refusal),
    Column.ALLOCATED: _Rule(lambda run: run.mean_allocated),
    Column.AT_END: _Rule(lambda run: run.allocated_at_end),
    Column.WAIT: _Rule(lambda run: run.wait, is_high_best=False),
    Column.URGENT_WAIT: _Rule(
        lambda run: run.urgent_waits.mean if run.urgent_waits.jobs else None, is_high_best=False
    ),
    Column.EVICTIONS: _Rule(_evictions, is_high_best=False),
    Column.LOST_TIME: _Rule(_lost_time, is_high_best=False),
    Column.BEST_SET: _Rule(lambda run: run.best_share),
    Column.BANDWIDTH: _Rule(lambda run: run.mean_bandwidth),
    Column.LOST: _Rule(lambda run: run.mean_lost, is_high_best=False),
    Column.FREE_SETS: _Rule(lambda run: run.mean_free_sets),
    Column.SPLIT: _Rule(lambda run: float(run.split), is_high_best=False),
    Column.SPLIT_DOMAINS: _Rule(_split_over_domains, is_high_best=False),
    Column.UNPLACED: _Rule(lambda run: float(run.unplaced), is_high_best=False),
}

Runs = Mapping[int, Measures]
"""The runs of a policy, by seed."""


def league(runs: Mapping[str, Runs]) -> dict[str, dict[Column, Figure]]:
    """Return the figures of each policy; a figure that some run lacks is left out."""
    return _compared(_RULES, runs)


def waits_by_size(runs: Mapping[str, Runs]) -> dict[str, dict[Size, Figure]]:
    """Return the mean wait of the jobs of each size [s]; a size that some run lacks is left out."""
    rules = {size: _Rule(partial(_wait_of, size), is_high_best=False) for size in Size}
    return _compared(rules, runs)


def _wait_of(size: Size, run: Measures) -> float | None:
    waits = run.waits[size]
    return waits.mean if waits.jobs else None


def _compared(rules: Mapping[Key, _Rule], runs: Mapping[str, Runs]) -> dict[str, dict[Key, Figure]]:
    table: dict[str, dict[Key, Figure]] = {policy: {} for policy in runs}
    for key, rule in rules.items():
        values = {policy: _values(rule, own) for policy, own in runs.items()}
        for policy, figure in _figures(rule, values).items():
            table[policy][key] = figure
    return table


def _values(rule: _Rule, runs: Runs) -> dict[int, float]:
    """Return the values by seed; none where a run has no such value."""
    values = {seed: rule.value(run) for seed, run in runs.items()}
    known = {seed: value for seed, value in values.items() if value is not None}
    return known if len(known) == len(values) else {}


def _figures(rule: _Rule, values: Mapping[str, Mapping[int, float]]) -> dict[str, Figure]:
    medians = {policy: median(own.values()) for policy, own in values.items() if own}
    if not medians:
        return {}
    choose = max if rule.is_high_best else min
    leader = choose(medians, key=lambda policy: medians[policy])
    return {
        policy: Figure(
            middle,
            min(values[policy].values()),
            max(values[policy].values()),
            middle / medians[leader] if medians[leader] else None,
            _is_clear(rule, values[policy], values[leader]),
        )
        for policy, middle in medians.items()
    }


def _is_clear(rule: _Rule, own: Mapping[int, float], best: Mapping[int, float]) -> bool | None:
    """Return whether a policy is worse with every seed that both have: a sign test at 5 %."""
    pairs: Sequence[tuple[float, float]] = [(own[seed], best[seed]) for seed in own if seed in best]
    if own is best:
        return False
    if len(pairs) < SEEDS_MIN:
        return None
    sign = 1 if rule.is_high_best else -1
    return all(sign * mine < sign * theirs for mine, theirs in pairs)
