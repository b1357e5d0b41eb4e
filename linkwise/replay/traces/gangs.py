"""Traces of jobs with whole GPUs, on one node or several."""

from dataclasses import replace
from math import ceil

from linkwise.replay.density import NIC_PERCENT
from linkwise.replay.fleet import TraceNode
from linkwise.replay.job import FOREVER, Job, Shape
from linkwise.replay.traces.format import (
    GIB,
    GPUS_MAX,
    NEVER_RAN,
    NODE_MAX,
    NOT_SUBMITTED,
    WITHOUT_GPUS,
    LeftOut,
    TraceFormat,
)
from linkwise.replay.traces.table import Row

_ON_NODE = 8
"""GPUs of a pod where a trace does not say on how many nodes a job was."""
_CPU_MAX, _GIB_MAX = 1 << 30, 1 << 20
"""No pod has more CPUs, or memory [GiB]."""

_NO_LIMIT = ("-1", "-1.0")
_NODE_PODS_MAX = 1 << 20

_GFS_PRIORITIES = {"HP": 1, "Spot": 0}
"""High-priority jobs, and those that run on what is left."""


def workers(gpus: int, nodes: int) -> Shape | LeftOut:
    """Return equal pods for a job of whole GPUs.

    Args:
        gpus: All GPUs of the job.
        nodes: The number of its nodes; 0: unknown.
    """
    if not gpus:
        return WITHOUT_GPUS
    pods = nodes or ceil(gpus / _ON_NODE)
    if pods > gpus:
        return LeftOut("with more nodes than GPUs")
    # GPUs that cannot be divided evenly are rounded up, so that all pods are equal.
    return Shape(ceil(gpus / pods), pods=pods)


def _philly(row: Row) -> Job | LeftOut:
    submit, duration = row.time("timestamp"), row.number("duration")
    if submit is None or duration is None:
        return NOT_SUBMITTED if submit is None else NEVER_RAN
    shape = workers(row.whole("num_gpus", GPUS_MAX), 0)
    return shape if isinstance(shape, LeftOut) else Job(f"line-{row.line}", submit, duration, shape)


def _helios(row: Row) -> Job | LeftOut:
    return _slurm(row, row.number("duration"))


def _acme(row: Row) -> Job | LeftOut:
    start, end = row.time("start_time"), row.time("end_time")
    # The column `duration` has the time in the queue, too, in the file of Kalos.
    return _slurm(row, None if start is None or end is None else max(0.0, end - start))


def _slurm(row: Row, duration: float | None) -> Job | LeftOut:
    submit = row.time("submit_time")
    if submit is None or duration is None:
        return NOT_SUBMITTED if submit is None else NEVER_RAN
    shape = workers(row.whole("gpu_num", GPUS_MAX), row.whole("node_num", GPUS_MAX))
    if isinstance(shape, LeftOut):
        return shape
    cpu = ceil(1000 * row.whole("cpu_num", _CPU_MAX) / shape.pods)
    return Job(row.text("job_id") or f"line-{row.line}", submit, duration, replace(shape, cpu=cpu))


def _gfs(row: Row) -> Job | LeftOut:
    gpus, submit = row.number("gpu_request") or 0.0, row.number("submit_time")
    duration = row.number("duration")
    if not gpus:
        return WITHOUT_GPUS
    if gpus != int(gpus):
        return LeftOut("with a part of a GPU")
    if submit is None or duration is None:
        return NOT_SUBMITTED if submit is None else NEVER_RAN
    shape = Shape(
        row.whole("gpu_request", NODE_MAX),
        cpu=round(1000 * (row.number("cpu_request", _CPU_MAX) or 0.0)),
        models=frozenset(filter(None, [row.text("gpu_model")])),
        pods=max(1, row.whole("worker_num", GPUS_MAX)),
        priority=_gfs_priority(row),
    )
    return Job(row.text("job_name") or f"line-{row.line}", submit, duration, shape)


def _gfs_priority(row: Row) -> int:
    kind = row.text("job_type")
    if kind not in _GFS_PRIORITIES:
        raise row.error(f"job_type is {kind[:40]!r}; {' or '.join(_GFS_PRIORITIES)} is expected.")
    return _GFS_PRIORITIES[kind]


def _gfs_node(row: Row) -> TraceNode:
    return TraceNode(
        f"node-{row.text('node_name') or row.line}",
        row.whole("gpu_capacity_num", NODE_MAX),
        row.text("gpu_model"),
        1000 * row.whole("cpu_num", _CPU_MAX),
    )


def _dlrm(row: Row) -> Job | LeftOut:
    gpus = row.whole("gpu_request", NODE_MAX)
    if not gpus:
        return WITHOUT_GPUS
    # An instance without a creation time was there before the trace begins.
    submit, end = row.number("creation_time") or 0.0, row.number("deletion_time")
    column = "max_instance_per_node"
    most = 0 if row.text(column) in _NO_LIMIT else row.whole(column, _NODE_PODS_MAX)
    shape = Shape(
        gpus,
        cpu=round(1000 * (row.number("cpu_request", _CPU_MAX) or 0.0)),
        memory=round(GIB * (row.number("memory_request", _GIB_MAX) or 0.0)),
        rdma=row.whole("rdma_request", NIC_PERCENT),
        application=row.text("app_name") if most else "",
        most_per_node=most,
    )
    duration = FOREVER if end is None else max(0.0, end - submit)
    return Job(row.text("instance_sn") or f"line-{row.line}", submit, duration, shape)


PHILLY = TraceFormat(
    "philly",
    "Microsoft, Philly, 2017",
    "siasosp23/artifacts and petuum/adaptdl, philly.csv",
    ("timestamp", "duration", "num_gpus"),
    _philly,
)
"""M. Jeon et al., USENIX ATC 2019; the table that papers after it use."""

HELIOS = TraceFormat(
    "helios",
    "SenseTime, Helios, 2020",
    "S-Lab-System-Group/HeliosData, cluster_log.csv of each cluster",
    ("job_id", "vc", "gpu_num", "cpu_num", "node_num", "submit_time", "duration"),
    _helios,
)
"""Q. Hu et al., SC 2021."""

ACME = TraceFormat(
    "acme",
    "Shanghai AI Lab, Acme, 2023",
    "InternLM/AcmeTrace, data/job_trace/trace_seren.csv and trace_kalos.csv",
    ("job_id", "type", "gpu_num", "cpu_num", "node_num", "submit_time", "start_time", "end_time"),
    _acme,
)
"""Q. Hu et al., NSDI 2024."""

GFS = TraceFormat(
    "gfs",
    "Alibaba, spot GPUs, 2026",
    "alibaba/clusterdata, cluster-trace-v2026-spot-gpu/job_info_df.csv",
    (
        "job_name",
        "gpu_model",
        "cpu_request",
        "gpu_request",
        "worker_num",
        "submit_time",
        "duration",
        "job_type",
    ),
    _gfs,
    ("node_name", "gpu_model", "gpu_capacity_num", "cpu_num"),
    _gfs_node,
    "alibaba/clusterdata, cluster-trace-v2026-spot-gpu/node_info_df.csv",
)
"""J. Duan et al., ASPLOS 2026."""

DLRM = TraceFormat(
    "dlrm",
    "Alibaba, recommendation models, 2025",
    "alibaba/clusterdata, cluster-trace-gpu-v2025/disaggregated_DLRM_trace.csv",
    (
        "instance_sn",
        "role",
        "app_name",
        "cpu_request",
        "gpu_request",
        "rdma_request",
        "memory_request",
        "max_instance_per_node",
        "creation_time",
        "deletion_time",
    ),
    _dlrm,
)
"""L. Yang et al., NSDI 2025."""
