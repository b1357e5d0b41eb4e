"""The formats of published traces: their columns, and the job of each line.

The names and units of columns are those of the documentation of each trace.
"""

from collections.abc import Callable
from dataclasses import dataclass
from math import ceil

from replay.fleet import TraceNode
from replay.job import FOREVER, MILLI, Job, Shape
from replay.traces.table import Row

MANY = 65_536
"""No job of a trace has more GPUs."""
NODE_MAX = 16
"""No node of a trace has more GPUs."""
_GIB, _MIB = 1 << 30, 1 << 20


@dataclass(frozen=True, slots=True)
class LeftOut:
    """A line that is no job of a replay."""

    reason: str


Read = Callable[[Row], Job | LeftOut]

WITHOUT_GPUS = LeftOut("without GPUs")
NEVER_RAN = LeftOut("without a duration")
_NOT_SUBMITTED = LeftOut("without a submit time")


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
    has_shares: bool = False


def workers_of(row: Row, gpus: int, nodes: int = 0, *, on_node: int = 8) -> Shape | LeftOut:
    """Return pods of equal numbers of GPUs for a job of whole GPUs.

    Args:
        row: Its line.
        gpus: GPUs of the job.
        nodes: The number of its nodes, if the trace has it.
        on_node: GPUs of a pod where the trace does not say how many nodes there are.
    """
    if not gpus:
        return WITHOUT_GPUS
    pods = nodes or ceil(gpus / on_node)
    if pods > gpus:
        raise row.error(f"{pods} nodes for {gpus} GPUs; each node of a job has a GPU.")
    # Jobs whose GPUs cannot be divided evenly get whole pods: the last GPUs stay idle.
    return Shape(ceil(gpus / pods), pods=pods)


def _openb(row: Row) -> Job | LeftOut:
    gpus = row.whole("num_gpu", NODE_MAX)
    milli = row.whole("gpu_milli", MILLI)
    submit, end = row.number("creation_time"), row.number("deletion_time")
    start = row.number("scheduled_time")
    if not gpus:
        return WITHOUT_GPUS
    if not milli:
        raise row.error("gpu_milli is 0 for a pod with GPUs; 1 to 1000 is expected.")
    if submit is None:
        return _NOT_SUBMITTED
    shape = Shape(
        gpus,
        milli if gpus == 1 else MILLI,
        row.whole("cpu_milli", 1 << 40),
        row.whole("memory_mib", 1 << 40) * _MIB,
        frozenset(filter(None, row.text("gpu_spec").split("|"))),
    )
    begin = submit if start is None else start
    duration = FOREVER if end is None else max(0.0, end - begin)
    return Job(row.text("name") or f"line-{row.line}", submit, duration, shape)


def _openb_node(row: Row) -> TraceNode:
    return TraceNode(
        row.text("sn") or f"line-{row.line}",
        row.whole("gpu", NODE_MAX),
        row.text("model"),
        row.whole("cpu_milli", 1 << 40),
        row.whole("memory_mib", 1 << 40) * _MIB,
    )


OPENB = TraceFormat(
    "openb",
    "Alibaba, GPU sharing, 2023",
    "alibaba/clusterdata, cluster-trace-gpu-v2023/csv/openb_pod_list_default.csv",
    (
        "name",
        "cpu_milli",
        "memory_mib",
        "num_gpu",
        "gpu_milli",
        "gpu_spec",
        "creation_time",
        "deletion_time",
        "scheduled_time",
    ),
    _openb,
    ("sn", "cpu_milli", "memory_mib", "gpu", "model"),
    _openb_node,
    "alibaba/clusterdata, cluster-trace-gpu-v2023/csv/openb_node_list_gpu_node.csv",
    has_shares=True,
)

FORMATS: tuple[TraceFormat, ...] = (OPENB,)
