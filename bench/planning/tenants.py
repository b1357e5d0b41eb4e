"""Planning time for many tenants, or a hostile one, during which all others wait."""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import partial
from time import process_time
from types import MappingProxyType

import msgspec
from prometheus_client import CollectorRegistry

from bench.planning.placement import CLASSES, cluster
from cluster.keys import GANG, GPU_WHOLE, POD_GROUP_MIN_AVAILABLE, POD_GROUP_NAME
from cluster.objects.pod import Pod
from scorer.cache.cluster_state import ClusterState
from scorer.gang.pod_info import PodInfo, pod_info
from scorer.gang.unit import Owners, Unit, units_of
from scorer.metrics import Metrics
from scorer.placement.result import Refusal
from scorer.placement.state.snapshot import Snapshot
from scorer.queue.cycle import SchedulingCycle, in_order
from scorer.queue.fault_isolation import FaultIsolation
from scorer.queue.pending import ClosedNodes, PendingUnits
from scorer.queue.starvation import StarvationGuard

_NODES, _MEMBERS, _GANGS, _PODS = 5000, 256, 1000, 10_000
_NO_OWNERS = Owners({}, {})
_SPEC = Callable[[int], Mapping[str, object]]
_UNEQUAL: Mapping[str, tuple[Callable[[int], int], _SPEC]] = {
    "CPU": (lambda _: 2, lambda _: {}),
    "GPUs and CPU": (lambda i: 1 + i % 4, lambda _: {}),
    "tolerations": (lambda _: 2, lambda i: {"tolerations": [_tolerated(f"key-{i}")]}),
    "node selectors": (lambda _: 2, lambda i: {"nodeSelector": {f"label-{i}": "none"}}),
}


def rows() -> Iterator[tuple[str, str, Callable[[], float]]]:
    """Yield each row: its name, its target, and what runs it once and returns seconds."""
    snapshot = cluster(_NODES, CLASSES)
    for what, (gpus, spec) in _UNEQUAL.items():
        gang = _gang(
            "unequal", [_pod("unequal", i, gpus(i), spec=spec(i)) for i in range(_MEMBERS)]
        )
        name = f"{_MEMBERS} members of unlike {what} on {_NODES:,} nodes (CPU)"
        yield name, "≤ 1.5 s", partial(_decided, snapshot, gang)
    never = [_gang(f"never-{i}", _never(i)) for i in range(_GANGS)]
    yield (
        f"{_GANGS:,} unlike gangs that never fit there, all refused",
        "≤ 5 s",
        lambda: _refused(snapshot, never),
    )
    yield "  the longest of them", "≤ 0.3 s", lambda: _longest(snapshot, never)
    waiting = _WaitingPods(snapshot)
    yield f"{_PODS:,} pods that wait, a look when nothing changed", "≤ 0.3 s", waiting


def _decided(snapshot: Snapshot, gang: Unit) -> float:
    start = process_time()
    _cycle().decide(_fresh(snapshot), gang)
    return process_time() - start


def _refused(snapshot: Snapshot, gangs: list[Unit]) -> float:
    return sum(_each(snapshot, gangs))


def _longest(snapshot: Snapshot, gangs: list[Unit]) -> float:
    return max(_each(snapshot, gangs))


def _each(snapshot: Snapshot, gangs: list[Unit]) -> Iterator[float]:
    cycle, fresh = _cycle(), _fresh(snapshot)
    for gang in in_order(gangs):
        start = process_time()
        found = cycle.decide(fresh, gang)
        took = process_time() - start
        assert isinstance(found, Refusal), found  # noqa: S101 (else something else is measured)
        yield took


@dataclass
class _WaitingPods:
    """Pods that wait and were all refused before."""

    snapshot: Snapshot
    state: ClusterState = field(default_factory=ClusterState)
    waiting: PendingUnits = field(init=False)
    starvation: StarvationGuard = field(default_factory=lambda: StarvationGuard(60))

    def __post_init__(self) -> None:
        faults = FaultIsolation(Metrics(CollectorRegistry()), lambda: None)
        self.waiting = PendingUnits(self.state, _NO_OWNERS, faults)
        for i in range(_PODS):
            pod = _pod(f"crowd-{i}", 0, 8, spec={"nodeSelector": {"rack": "none"}})
            self.state.update_pod(pod.key, pod)
        self.waiting.assemble(self.state.drain_dirty_groups())
        for unit in self.waiting:
            self.waiting.refuse(unit, Refusal("before"), ClosedNodes())

    def __call__(self) -> float:
        start = process_time()
        self.waiting.assemble(self.state.drain_dirty_groups())
        units = list(self.waiting)
        self.starvation.update(units, 0, None)
        cycle = _cycle()
        for unit in in_order(units):
            closed = ClosedNodes(reserved=cycle.reserved_nodes)
            cached = self.waiting.cached_refusal(unit, 0, closed)
            cycle.decide(self.snapshot, unit, cached)
        return process_time() - start


def _cycle() -> SchedulingCycle:
    return SchedulingCycle(is_starving=lambda _: False, excluded_nodes={})


def _fresh(snapshot: Snapshot) -> Snapshot:
    """Return the snapshot without cached answers."""
    return replace(snapshot, cache=snapshot.cache.fresh())


def _never(i: int) -> list[PodInfo]:
    name = f"never-{i}"
    spec = {"nodeSelector": {"team": f"{i}"}} if i % 2 else {}
    return [_pod(name, rank, 8, size=2, cpu=f"{97_000 + i}m", spec=spec) for rank in range(2)]


def _gang(name: str, pods: list[PodInfo]) -> Unit:
    (unit,) = units_of(pods, _NO_OWNERS)
    assert unit.key.name == name  # noqa: S101 (else something else is measured)
    return unit


def _pod(
    gang: str,
    i: int,
    gpus: int,
    *,
    size: int = 0,
    cpu: str = "",
    spec: Mapping[str, object] = MappingProxyType({}),
) -> PodInfo:
    """Return a member of a gang of so many; 0 stands for at least one."""
    amounts = {GPU_WHOLE: str(gpus), "cpu": cpu or f"{1000 + i}m", "memory": "16Gi"}
    name = f"{gang}-{i}"
    raw = {
        "metadata": {
            "name": name,
            "uid": name,
            "namespace": "bench",
            "creationTimestamp": "2026-01-01T00:00:00Z",
            "labels": {POD_GROUP_NAME: gang, POD_GROUP_MIN_AVAILABLE: str(size or 1)},
        },
        "spec": {
            "containers": [{"name": "c", "resources": {"limits": amounts}}],
            "schedulingGates": [{"name": GANG}],
            **spec,
        },
    }
    return pod_info(msgspec.convert(raw, Pod))


def _tolerated(key: str) -> dict[str, str]:
    return {"key": key, "operator": "Exists"}
