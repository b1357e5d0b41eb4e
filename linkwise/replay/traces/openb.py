"""Pods of a cluster with GPU sharing: Alibaba, `cluster-trace-gpu-v2023`.

Q. Weng et al., USENIX ATC 2023; columns and units are those of its README.
"""

from linkwise.replay.fleet import TraceNode
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
        return NOT_SUBMITTED
    shape = Shape(
        gpus,
        milli if gpus == 1 else MILLI,
        row.whole("cpu_milli", 1 << 40),
        row.whole("memory_mib", 1 << 40) * MIB,
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
        row.whole("memory_mib", 1 << 40) * MIB,
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
)
