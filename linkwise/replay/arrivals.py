"""The sequence of jobs of one run: the trace at a load, in the order of a seed.

With departures, a seed exchanges jobs within windows of the trace: the arrival times stay, and the
job that arrives at each is another one of its window. Seed 0 is the trace itself.

Until the fleet is full, a seed draws jobs from the trace with replacement, and they never end, as
in the inflation of Q. Weng et al. (USENIX ATC 2023, section 6.1).
"""

from collections.abc import Iterable, Iterator
from dataclasses import replace
from itertools import islice

import numpy as np

from linkwise.replay.job import FOREVER, Job

WINDOW = 1024
"""Jobs of a window."""

DRAWN_MAX = 200_000
"""Jobs of the start of a trace from which an inflation draws: about 60 MB."""


def arriving(
    jobs: Iterable[Job], seed: int, stretch: float = 1.0, until: float = FOREVER
) -> Iterator[Job]:
    """Yield the jobs of a run with departures.

    Args:
        jobs: The trace, by submit time.
        seed: 0: the trace itself.
        stretch: Factor of the times between arrivals.
        until: No job arrives later [s] after the first one.
    """
    draw = np.random.default_rng(seed)
    rest = iter(jobs)
    first: float | None = None
    while window := list(islice(rest, WINDOW)):
        order = draw.permutation(len(window)).tolist() if seed else range(len(window))
        first = window[0].submit if first is None else first
        for here, other in zip(window, order, strict=True):
            after = (here.submit - first) * stretch
            # The stretch that makes the last arrival be `until` is rounded.
            if after > until * (1 + 1e-9):
                return
            yield replace(window[other], submit=first + after)


def filling(jobs: Iterable[Job], seed: int, gpus: int) -> Iterator[Job]:
    """Yield jobs of a trace drawn at random until they ask for all GPUs; one arrives each second.

    Args:
        jobs: The trace; of a long one, the first `DRAWN_MAX` jobs count.
        seed: Of the draw.
        gpus: The size of the fleet.
    """
    draw, known = np.random.default_rng(seed), list(islice(jobs, DRAWN_MAX))
    demand, number = 0.0, 0
    while known and demand < gpus:
        job = known[int(draw.integers(len(known)))]
        yield replace(job, name=f"{job.name}-{number}", submit=float(number), duration=FOREVER)
        demand += job.shape.total
        number += 1


def stretch_for(load: float, gpu_seconds: float, span: float, gpus: int) -> float:
    """Return the factor of the times between arrivals at which a trace offers a load.

    Args:
        load: GPU time that is asked for in the span of the trace, as a part of the fleet's.
        gpu_seconds: GPU time of all jobs [s].
        span: From the first to the last arrival [s].
        gpus: The size of the fleet.
    """
    offered = gpu_seconds / (span * gpus) if span and gpus else 0.0
    return offered / load if offered else 1.0


def stretch_until(jobs: Iterable[Job], gpu_seconds: float, until: float) -> float:
    """Return the factor at which the first jobs of a trace ask for a GPU time until a time.

    Args:
        jobs: The trace, by submit time; it asks for this GPU time, and more.
        gpu_seconds: The GPU time [s].
        until: When the last of these jobs arrives [s] after the first one.
    """
    asked, first, span = 0.0, None, 0.0
    for job in jobs:
        first = job.submit if first is None else first
        asked, span = asked + job.gpu_seconds, job.submit - first
        if asked >= gpu_seconds and span:
            break
    return until / span if span else 1.0
