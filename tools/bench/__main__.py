"""Measure what the documents promise; `make bench` prints it. See docs/benchmarks.md.

Every row is repeated after a warm-up; the median is the figure, the spread shows how far to trust
it. Machines are shared and noisy: compare rows of one run, and ratios rather than times.
"""

import platform
import statistics
import subprocess
import sys
from collections.abc import Callable, Iterator
from functools import partial
from importlib.metadata import version
from itertools import chain
from pathlib import Path
from time import perf_counter

from controlplane.binaries import VERSION, BuildError, MissingError, binaries

from tools.bench import dashboard, leader_memory
from tools.bench.admission import review, side_by_side
from tools.bench.admission.programs import programs
from tools.bench.admission.stage import stage
from tools.bench.gangs import rates
from tools.bench.gangs.floor import floor
from tools.bench.measure import ROUNDS
from tools.bench.planning import placement, preemption, preemption_cycle
from tools.bench.topology import tables

REPETITIONS = 9
DEMO = Path(__file__).parents[2] / "docs/demo"

Row = tuple[str, str, Callable[[], float]]
"""A name, what it should reach, and a function that returns the seconds of one repetition."""


def rows() -> Iterator[Row]:
    """Yield every measurement."""
    return chain(
        tables.rows(),
        placement.rows(),
        preemption.rows(),
        preemption_cycle.rows(),
        review.rows(),
        [_command()],
    )


def _command() -> Row:
    """Return the measurement of one command, process start included."""
    command = [str(Path(sys.executable).with_name("linkwise")), "check", str(DEMO / "gang.yaml")]

    def measure() -> float:
        start = perf_counter()
        subprocess.run(command, check=True, capture_output=True)  # noqa: S603 - our own command
        return perf_counter() - start

    return "linkwise check of one file, process start included", "≤ 0.6 s", measure


def main() -> None:
    """Print one line for each row."""
    libraries = ", ".join(f"{name} {version(name)}" for name in ("numpy", "highspy", "msgspec"))
    print(f"{_processor()}, {platform.system()}, Python {platform.python_version()}, {libraries}")
    print(f"{REPETITIONS} repetitions; median (least to most)\n")
    for name, target, measure in rows():
        measure()
        seconds = sorted(measure() for _ in range(REPETITIONS))
        median, least, most = statistics.median(seconds), seconds[0], seconds[-1]
        spread = f"({_time(least)} to {_time(most)})"
        print(f"{name:<66} {target:>9}  {_time(median):>10}  {spread}", flush=True)
    for figure in chain(placement.figures(), leader_memory.figures(), dashboard.figures()):
        print(figure, flush=True)
    _live()


def _live() -> None:
    """Print the rows that need a real API server, where there is one."""
    say = partial(print, flush=True)
    try:
        found, others = binaries(say), programs(say)
    except (BuildError, MissingError) as why:
        print(f"\nrows of a real API server are left out: {why}")
        return
    print(f"\nside by side, {ROUNDS} rounds; median (its 95 % interval); API server {VERSION}\n")
    with stage(found, others) as running:
        for figure in side_by_side.figures(running):
            print(figure, flush=True)
    with floor(found, rates.MACHINES) as ours, rates.native(found) as theirs:
        for figure in rates.figures(ours, theirs):
            print(figure, flush=True)
    for figure in chain(rates.counted(found), rates.claimed(found)):
        print(figure, flush=True)


def _time(seconds: float) -> str:
    for unit, size in (("s", 1.0), ("ms", 1e-3), ("µs", 1e-6)):
        if seconds >= size:
            return f"{seconds / size:.3g} {unit}"
    return f"{seconds * 1e9:.3g} ns"


def _processor() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
    except OSError:
        return platform.machine()
    models = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return f"{len(models)} × {models[0]}" if models else platform.machine()


if __name__ == "__main__":
    main()
