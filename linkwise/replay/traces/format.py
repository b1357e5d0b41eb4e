"""The format of a trace: its columns, and the job of each line."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass

from linkwise.replay.fleet import TraceNode
from linkwise.replay.job import Job
from linkwise.replay.traces.table import Row, rows_of

GPUS_MAX = 65_536
"""No job of a trace has more GPUs."""
NODE_MAX = 16
"""No node of a trace has more GPUs."""
MIB, GIB = 1 << 20, 1 << 30


@dataclass(frozen=True, slots=True)
class LeftOut:
    """A line that is no job of a replay."""

    reason: str


Read = Callable[[Row], Job | LeftOut]
ReadRows = Callable[[Iterable[str], str, Sequence[str]], Iterator[Row]]
"""Splits lines of a file, with its name for messages, into rows with some columns."""

WITHOUT_GPUS = LeftOut("without GPUs")
NEVER_RAN = LeftOut("without a duration")
NOT_SUBMITTED = LeftOut("without a submit time")


@dataclass(frozen=True, slots=True)
class TraceFormat:
    """The format of a trace."""

    name: str
    title: str
    source: str
    """Where it is published: the name of its repository and file."""
    columns: tuple[str, ...]
    """The columns of jobs that are read."""
    read: Read
    node_columns: tuple[str, ...] = ()
    """The columns of its list of nodes; empty: it publishes none that has what a fleet needs."""
    read_node: Callable[[Row], TraceNode] | None = None
    nodes_source: str = ""
    """Where that list is published."""
    rows: ReadRows = rows_of
    """Reads the file; by default a CSV file with a header."""
