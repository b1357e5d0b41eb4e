"""A cluster's own history: the jobs that `linkwise snapshot --watch` saw.

Jobs are in the order of their ends, and have numbers instead of names.
"""

from linkwise.replay.job import FOREVER, MILLI, Job, Shape
from linkwise.replay.traces.format import (
    MIB,
    NODE_MAX,
    NOT_SUBMITTED,
    WITHOUT_GPUS,
    LeftOut,
    TraceFormat,
)
from linkwise.replay.traces.table import Row

COLUMNS = (
    "job",
    "submit_time",
    "duration",
    "pods",
    "gpus",
    "gpu_milli",
    "cpu_milli",
    "memory_mib",
)
"""Times are in seconds, the first since 1970. Amounts are those of a pod; `gpu_milli` is the part
of each GPU [1/1000]. A job without a duration still ran at the end."""

_PODS_MAX = 65_536


def _read(row: Row) -> Job | LeftOut:
    gpus, submit = row.whole("gpus", NODE_MAX), row.number("submit_time")
    if not gpus:
        return WITHOUT_GPUS
    if submit is None:
        return NOT_SUBMITTED
    milli, duration = row.whole("gpu_milli", MILLI) or MILLI, row.number("duration")
    shape = Shape(
        gpus,
        # A share of several GPUs is replayed as whole ones.
        milli if gpus == 1 else MILLI,
        row.whole("cpu_milli", 1 << 40),
        row.whole("memory_mib", 1 << 40) * MIB,
        pods=max(1, row.whole("pods", _PODS_MAX)),
    )
    name = row.text("job") or f"line-{row.line}"
    return Job(name, submit, FOREVER if duration is None else duration, shape)


HISTORY = TraceFormat(
    "history",
    "A cluster's own history",
    "linkwise snapshot --watch --to history.csv",
    COLUMNS,
    _read,
)
