"""A scheduling cycle of the leader for a gang of 8 × 8 GPUs that fits nowhere on 5,000 full nodes.

The rows of `preemption` have the search alone. Here it is part of a cycle, with the units that it
reads from the cache: their owners, start times and disruption budgets.
"""

import asyncio
import gc
import json
from collections.abc import Callable, Iterable, Iterator, Mapping
from datetime import UTC, datetime
from time import process_time

import msgspec
from prometheus_client import CollectorRegistry
from structlog.testing import capture_logs

from linkwise.cluster.keys import (
    ALLOCATION,
    GANG,
    GPU_WHOLE,
    POD_GROUP_MIN_AVAILABLE,
    POD_GROUP_NAME,
)
from linkwise.cluster.objects.pod import Pod
from linkwise.planning.gang.pod_info import PodInfo, pod_info
from linkwise.planning.placement.state.snapshot import Snapshot
from linkwise.runtime.kube.client import Kube
from linkwise.runtime.kube.event_recorder import EventRecorder
from linkwise.runtime.process.lifecycle import tune_gc
from scorer.cache.informers import Informers
from scorer.cache.workloads.budget_informer import read_budget
from scorer.commit.binding.tracker import BindingTracker
from scorer.commit.binding.vain_preemptions import VainPreemptions
from scorer.commit.handle import Handle
from scorer.commit.healer import Healer
from scorer.commit.removal.removals import Removals
from scorer.commit.write.queue import CommitQueue
from scorer.metrics import Metrics
from scorer.preemption.preemptor import Preemptor
from scorer.queue.fault_isolation import FaultIsolation
from scorer.queue.gang_size import GangSizeResolver
from scorer.queue.pending import PendingUnits
from scorer.report.status_reporter import StatusReporter
from scorer.timings import Timings
from scorer.unit_scheduler import UnitScheduler
from tools.bench.planning.placement import CLASSES, cluster

_NOW = datetime(2026, 1, 2, tzinfo=UTC).timestamp()
_STARTED = "2026-01-01T12:00:00Z"
_UNLIMITED = Timings(first_limit=60, retry_limit=60)
_BUDGET = {
    "metadata": {"name": "train", "namespace": "o"},
    "spec": {"selector": {"matchLabels": {"app": "train"}}},
    "status": {"disruptionsAllowed": 20_000},
}
_SIZES = 1, 2, 4, 8


def rows() -> Iterator[tuple[str, str, Callable[[], float]]]:
    """Yield what is measured: its name, its target, and what runs it once and returns seconds."""
    empty = cluster(5000, CLASSES, busy=0)
    names = list(empty.ledger.nodes)
    for what, pods in (
        ("625 gangs of 8 × 8 GPUs", _gangs(names)),
        ("18,750 single pods of 1 to 8 GPUs", _single_pods(names)),
    ):
        full = list(pods)
        for name, target, spec in (
            (f"a cycle that preempts, nodes full of {what} (CPU)", "≤ 50 ms", {"priority": 9}),
            ("  the same, all have one priority (CPU)", "", {}),
            ("  the same, pods that never preempt (CPU)", "", {"preemptionPolicy": "Never"}),
        ):
            cycle = _Cycle(empty, [*full, *_waiting(spec)], preempts="priority" in spec)
            yield name, target, cycle


class _Cycle:
    """One cycle, repeated; afterwards nothing is evicted."""

    def __init__(self, empty: Snapshot, pods: Iterable[PodInfo], *, preempts: bool) -> None:
        kube = Kube("http://127.0.0.1:1")
        informers, metrics = Informers(kube), Metrics(CollectorRegistry())
        self._state, self._preempts = informers.state, preempts
        for name, ledger in empty.ledger.nodes.items():
            self._state.update_node(name, ledger.node, empty.tables[name])
        for pod in pods:
            self._state.update_pod(pod.key, pod)
        budget = read_budget(json.dumps(_BUDGET).encode())
        informers.budgets.reflector.replace(("o", "train"), budget)

        def clock() -> float:
            return _NOW

        faults = FaultIsolation(metrics, informers.changed.set)
        recorder = EventRecorder(kube, "bench", "bench", clock, lambda *_: None)
        reporter = StatusReporter(
            kube, informers, recorder, faults, clock, term=1, timings=_UNLIMITED
        )
        handle = Handle(kube, informers, reporter, metrics, faults, 1, clock, _UNLIMITED)
        removals = Removals(handle)
        vain = VainPreemptions(self._state)
        tracker = BindingTracker(handle, removals, vain)
        pending = PendingUnits(self._state, informers.owners, faults)
        pending.assemble(self._state.groups.drain_dirty())
        sizes = GangSizeResolver(kube, informers, faults, retry=_UNLIMITED.owner_retry)
        healer = Healer(handle, tracker, removals)
        self._units = list(pending)
        self._preemptor = Preemptor(handle, sizes, removals, healer.is_moving, vain)
        self._scheduler = UnitScheduler(
            handle,
            pending,
            CommitQueue(handle, tracker),
            tracker,
            removals,
            self._preemptor,
        )
        self._runner = asyncio.Runner()

    def __call__(self) -> float:
        """Return the seconds of CPU that the cycle takes, with garbage collected as in a scorer."""
        thresholds = gc.get_threshold()
        tune_gc()
        try:
            with capture_logs():
                return self._runner.run(self._run())
        finally:
            gc.set_threshold(*thresholds)
            gc.unfreeze()

    async def _run(self) -> float:
        # As after each change: no refusal is cached.
        self._state.capacity_version += 1
        start = process_time()
        self._scheduler.schedule(None)
        took = process_time() - start
        (unit,) = self._units
        preempts = self._preemptor.preempts_for(unit.key)
        assert preempts is self._preempts  # noqa: S101 (else something else is measured)
        self._preemptor.forget(unit.key)
        return took


def _gangs(nodes: list[str]) -> Iterator[PodInfo]:
    """Yield gangs of 8 pods, each with all GPUs of a node."""
    for i, node in enumerate(nodes):
        labels = {POD_GROUP_NAME: f"gang-{i // 8}", POD_GROUP_MIN_AVAILABLE: "8"}
        yield _placed(f"gang-{i // 8}-{i % 8}", node, range(8), f"gang-{i // 8}", labels)


def _single_pods(nodes: list[str]) -> Iterator[PodInfo]:
    """Yield pods of 1, 2, 4 or 8 GPUs: all of a node are equal."""
    for i, node in enumerate(nodes):
        size = _SIZES[i % len(_SIZES)]
        for first in range(0, 8, size):
            yield _placed(f"{node}-{first}", node, range(first, first + size), node, {})


def _waiting(spec: Mapping[str, object]) -> list[PodInfo]:
    """Return a gang of 8 pods of 8 GPUs that waits."""
    labels = {POD_GROUP_NAME: "high", POD_GROUP_MIN_AVAILABLE: "8"}
    gate = {"schedulingGates": [{"name": GANG}]}
    return [_pod(f"high-{i}", 8, "high", labels, {**gate, **spec}, {}) for i in range(8)]


def _placed(name: str, node: str, gpus: range, owner: str, labels: dict[str, str]) -> PodInfo:
    record = {"v": 1, "node": node, "gpus": [{"i": gpu} for gpu in gpus], "plan": f"1-{owner}"}
    annotations = {ALLOCATION: json.dumps(record)}
    return _pod(name, len(gpus), owner, labels, {"nodeName": node}, annotations)


def _pod(
    name: str,
    gpus: int,
    owner: str,
    labels: dict[str, str],
    spec: dict[str, object],
    annotations: dict[str, str],
) -> PodInfo:
    controller = {"apiVersion": "apps/v1", "kind": "StatefulSet", "name": owner, "uid": owner}
    limits = {GPU_WHOLE: str(gpus), "cpu": "4", "memory": "16Gi"}
    raw = {
        "metadata": {
            "name": name,
            "uid": name,
            "namespace": "o",
            "creationTimestamp": _STARTED,
            "labels": {"app": "train", **labels},
            "annotations": annotations,
            "ownerReferences": [{**controller, "controller": True}],
        },
        "spec": {"containers": [{"name": "c", "resources": {"limits": limits}}], **spec},
        "status": {"startTime": _STARTED} if annotations else {},
    }
    return pod_info(msgspec.convert(raw, Pod))
