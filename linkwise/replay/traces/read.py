"""Recognises the format of a trace by its header, and reads its jobs in the order of the file."""

from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field

from linkwise.manifest.value import InputError
from linkwise.replay.fleet import TraceNode
from linkwise.replay.job import FOREVER, Job, Shape
from linkwise.replay.traces.format import LeftOut, TraceFormat
from linkwise.replay.traces.formats import FORMATS, TABLES
from linkwise.replay.traces.philly import PHILLY_JSON
from linkwise.replay.traces.table import rows_of

SORTED_MAX = 2_000_000
"""Jobs of an unsorted trace, which are sorted in memory: about 700 MB."""
_NODES_MAX = 20_000
_SHAPES_MAX = 10_000

Lines = Callable[[], Iterable[str]]
"""Opens a file, and returns its lines."""


@dataclass(slots=True)
class Survey:
    """What a first reading of a trace found."""

    jobs: int = 0
    gpu_seconds: float = 0.0
    """GPU time of all jobs that end [s]."""
    first: float = FOREVER
    """The first submit time [s]."""
    last: float = 0.0
    """The last submit time [s]."""
    gpus: float = 0.0
    """GPUs of all jobs."""
    shapes: Counter[Shape] = field(default_factory=Counter)
    """Jobs by shape; of a trace with more than `_SHAPES_MAX` shapes, those met first."""
    is_sorted: bool = True
    has_shares: bool = False
    """A job asks for a part of a GPU."""
    left_out: Counter[str] = field(default_factory=Counter)
    """Lines that are no jobs of a replay, by reason."""

    @property
    def span(self) -> float:
        """From the first to the last arrival [s]."""
        return max(0.0, self.last - self.first)

    def add(self, job: Job) -> None:
        """Count a job."""
        self.jobs += 1
        self.is_sorted = self.is_sorted and job.submit >= self.last
        self.first, self.last = min(self.first, job.submit), max(self.last, job.submit)
        self.gpus += job.shape.total
        self.has_shares = self.has_shares or job.shape.is_share
        if job.shape in self.shapes or len(self.shapes) < _SHAPES_MAX:
            self.shapes[job.shape] += 1
        self.gpu_seconds += job.gpu_seconds


@dataclass(frozen=True, slots=True)
class TraceReader:
    """Reads a trace as often as there are runs."""

    file: str
    """Its name, for messages."""
    lines: Lines
    format: TraceFormat

    def survey(self) -> Survey:
        """Read all lines once.

        Raises:
            InputError: A line is wrong, or there is no job.
        """
        survey = Survey()
        for each in self._each():
            if isinstance(each, LeftOut):
                survey.left_out[each.reason] += 1
            else:
                survey.add(each)
        if not survey.jobs:
            raise InputError(f"{self.file}: there is no job with GPUs in it.")
        if not survey.is_sorted and survey.jobs > SORTED_MAX:
            problem = f"{survey.jobs:,} jobs that are not sorted by their submit time"
            raise InputError(f"{self.file}: {problem}; sort the lines, at most {SORTED_MAX:,} are.")
        return survey

    def jobs(self, *, is_sorted: bool) -> Iterable[Job]:
        """Return the jobs by submit time; a sorted trace is read as it is replayed."""
        jobs = (each for each in self._each() if isinstance(each, Job))
        return jobs if is_sorted else sorted(jobs, key=lambda job: job.submit)

    def _each(self) -> Iterator[Job | LeftOut]:
        for row in self.format.rows(self.lines(), self.file, self.format.columns):
            yield self.format.read(row)


def format_of(header: str, file: str) -> TraceFormat:
    """Return the format of a trace by its first line: the columns of a table, or a JSON list.

    Raises:
        InputError: No format has these columns.
    """
    if header.lstrip().startswith("["):
        return PHILLY_JSON
    found = {name.strip().strip('"') for name in header.split(",")}
    for known in TABLES:
        if found.issuperset(known.columns):
            return known
    names = "; ".join(f"{known.name}: {known.source}" for known in FORMATS)
    raise InputError(f"{file}:1: these are not the columns of a known trace. Known are {names}.")


def fleet_format_of(header: str) -> TraceFormat | None:
    """Return the format of a list of nodes by its first line; None: it is no such list."""
    found = {name.strip().strip('"') for name in header.split(",")}
    return next((f for f in FORMATS if f.node_columns and found.issuperset(f.node_columns)), None)


def read_nodes(lines: Iterable[str], file: str, known: TraceFormat) -> list[TraceNode]:
    """Return the nodes of a published list that have GPUs.

    Raises:
        InputError: A line is wrong, two nodes have one name, or there are too many.
    """
    nodes: dict[str, TraceNode] = {}
    for row in rows_of(lines, file, known.node_columns):
        node = known.read_node(row) if known.read_node else None
        if node is None or not node.gpus:
            continue
        if node.name in nodes:
            raise row.error(f"there is a node {node.name} already.")
        if len(nodes) == _NODES_MAX:
            raise row.error(f"more than {_NODES_MAX:,} nodes with GPUs.")
        nodes[node.name] = node
    if not nodes:
        raise InputError(f"{file}: there is no node with GPUs in it.")
    return list(nodes.values())
