"""Side-by-side measurements, whose ratio has little noise of the machine."""

import statistics
from collections.abc import Callable
from dataclasses import dataclass
from math import comb
from typing import TypeVar

T = TypeVar("T")
ROUNDS = 11
_SURE = 0.95


@dataclass(frozen=True, slots=True)
class Spread:
    """A median, and its 95 % confidence interval."""

    median: float
    low: float
    high: float


def rounds(*measures: Callable[[], T], count: int = ROUNDS) -> list[tuple[T, ...]]:
    """Measure each in turn, round after round, and return the figures of each round.

    Each round begins with another measurement, so that effects of the previous one are spread.
    """
    found = []
    for number in range(count):
        begin = number % len(measures)
        order = [*range(begin, len(measures)), *range(begin)]
        figures = {index: measures[index]() for index in order}
        found.append(tuple(figures[index] for index in range(len(measures))))
    return found


def spread(values: list[float]) -> Spread:
    """Return the median and its interval.

    How many of n values lie below their true median is a matter of n coins, whatever the values'
    distribution: the interval's ends are two of the values.
    """
    ordered = sorted(values)
    n = len(ordered)
    outside, below = 0, 0.0
    while outside < n // 2 and 2 * (below + comb(n, outside) / 2**n) <= 1 - _SURE:
        below += comb(n, outside) / 2**n
        outside += 1
    end = max(outside - 1, 0)
    return Spread(statistics.median(ordered), ordered[end], ordered[n - 1 - end])
