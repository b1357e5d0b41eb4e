"""Side-by-side measurements, whose ratio has little noise of the machine, and their rows."""

import os
import statistics
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from math import comb
from pathlib import Path
from typing import TypeVar

T = TypeVar("T")
ROUNDS = 11
_SURE = 0.95
_TICKS = os.sysconf("SC_CLK_TCK")


@dataclass(frozen=True, slots=True)
class Spread:
    """A median, and its 95 % confidence interval."""

    median: float
    low: float
    high: float


@dataclass(frozen=True, slots=True)
class Figure:
    """A measurement: its name, its target and its result."""

    name: str
    target: str
    spread: Spread
    unit: str = ""

    def __str__(self) -> str:
        median, low, high = (
            f"{value:.3g}" for value in (self.spread.median, self.spread.low, self.spread.high)
        )
        ends = f"({low} to {high} {self.unit}".rstrip() + ")"
        return f"{self.name:<66} {self.target:>9}  {f'{median} {self.unit}':>10}  {ends}"


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


def cpu(pid: int) -> float:
    """Return the processor time that a process has taken so far, all its threads together [s].

    See proc(5), `stat`.
    """
    fields = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8").rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / _TICKS


@dataclass(slots=True)
class Stopwatch:
    """Time, and processor time of processes and of this one, since it was made [s]."""

    pids: Sequence[int]
    _since: float = field(default_factory=time.perf_counter)
    _used: float = 0

    def __post_init__(self) -> None:
        self._used = self._total()

    @property
    def seconds(self) -> float:
        """Time."""
        return time.perf_counter() - self._since

    @property
    def used(self) -> float:
        """Processor time."""
        return self._total() - self._used

    def _total(self) -> float:
        return time.process_time() + sum(cpu(pid) for pid in self.pids)
