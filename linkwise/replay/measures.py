"""The figures of a run that people compare."""

from dataclasses import dataclass, field
from enum import StrEnum

from linkwise.replay.job import Shape

SET_SIZE = 4
"""GPUs of the free sets that are counted."""


class Size(StrEnum):
    """Jobs by their number of GPUs."""

    SHARE = "share"
    ONE = "1"
    NODE = "2-8"
    MANY = ">8"


@dataclass(slots=True)
class Waits:
    """How long jobs of a size waited: until they started, or the run ended."""

    jobs: int = 0
    total: float = 0.0
    """[s]"""
    longest: float = 0.0
    """[s]"""

    def add(self, seconds: float) -> None:
        """Count a job that waited so long."""
        self.jobs += 1
        self.total += seconds
        self.longest = max(self.longest, seconds)

    @property
    def mean(self) -> float:
        """The mean wait [s]."""
        return self.total / self.jobs if self.jobs else 0.0


@dataclass(frozen=True, slots=True)
class Point:
    """A point of the curves of a run."""

    time: float
    """[s]"""
    demand: float
    """GPUs asked for by all jobs that arrived, as a part of the fleet."""
    allocated: float
    """GPUs in use, as a part of the fleet."""
    free_sets: int
    """Free sets of `SET_SIZE` GPUs on one node."""
    waiting: int
    """Jobs that wait."""


@dataclass(slots=True)
class Measures:
    """The figures of one run; parts are of 1."""

    gpus: int
    """GPUs of the fleet."""
    arrived: int = 0
    started: int = 0
    unplaced: int = 0
    """Jobs that were refused for good, or still wait at the end."""
    decisions: int = 0
    demand: float = 0.0
    """GPUs of all jobs that arrived."""
    at_first_refusal: float | None = None
    """The part of the GPUs in use when a job was refused first; None: none was."""
    allocated_at_end: float = 0.0
    """The part of the GPUs in use after the last arrival."""
    mean_allocated: float = 0.0
    """The part of the GPUs in use, averaged over the time until the last arrival."""
    mean_free_sets: float = 0.0
    """Free sets of `SET_SIZE` GPUs, averaged over the same time."""
    waits: dict[Size, Waits] = field(default_factory=lambda: {size: Waits() for size in Size})
    known: int = 0
    """Started jobs whose modelled bandwidth is known, and the best possible one."""
    comparable: int = 0
    """Those of them on as many nodes as the best possible set, so that both compare."""
    on_best: int = 0
    """Those of them on a set as fast as the best possible one."""
    bandwidth: float = 0.0
    """The sum of the bandwidths of the comparable ones [GB/s]."""
    lost: float = 0.0
    """The sum of what is missing to the best possible ones [GB/s]."""
    split: int = 0
    """Started jobs on more nodes than their GPUs need."""
    split_over_domains: int | None = None
    """Those in more domains than their GPUs need; None: the fleet has no domains."""
    evictions: int = 0
    """Times that a job lost its place to one of a higher priority."""
    lost_gpu_seconds: float = 0.0
    """GPU time of evicted jobs [s], which run again from the beginning."""
    urgent_waits: Waits = field(default_factory=Waits)
    """Of the jobs above the lowest priority."""
    points: list[Point] = field(default_factory=list)

    @property
    def best_share(self) -> float | None:
        """The part of the jobs of known bandwidth that are on a best set; None without any."""
        return self.on_best / self.known if self.known else None

    @property
    def mean_bandwidth(self) -> float | None:
        """Mean bandwidth [GB/s]; None without jobs that compare."""
        return self.bandwidth / self.comparable if self.comparable else None

    @property
    def mean_lost(self) -> float | None:
        """Mean bandwidth that is lost [GB/s]; None without jobs that compare."""
        return self.lost / self.comparable if self.comparable else None

    @property
    def wait(self) -> float:
        """The mean wait of all jobs [s]."""
        waits = self.waits.values()
        return sum(each.total for each in waits) / max(1, sum(each.jobs for each in waits))


def size_of(shape: Shape) -> Size:
    """Return the size of a job."""
    if shape.is_share:
        return Size.SHARE
    gpus = shape.pods * shape.gpus
    return Size.ONE if gpus == 1 else Size.NODE if gpus <= 8 else Size.MANY
