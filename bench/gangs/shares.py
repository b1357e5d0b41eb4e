"""GPU shares on a real scheduler, with and without the extender."""

import asyncio
import time
from collections.abc import Iterator
from pathlib import Path
from tempfile import mkdtemp

from controlplane.binaries import Binaries
from controlplane.credentials import SCHEDULER
from controlplane.manifests import WITH_SCHEDULER
from controlplane.pods import container
from controlplane.sidecar import run_sidecar, start_scheduler

from bench.gangs.crowd import bound, crowd
from bench.gangs.floor import Floor, floor
from bench.measure import Figure, rounds, spread
from cluster import keys

_NODES, _PODS, _ROUNDS = 200, 1000, 5
_LINE = {
    "name": "share",
    "count": _NODES,
    "machine": "t4x4",
    "mode": "core_mem",
    "gpuMemory": 15,
    "cpu": 96,
    "memory": "768Gi",
}
_PLAIN = "plain"
_ASKED = {keys.GPU_MEM: 5, keys.GPU_CORE: 30}


def figures(found: Binaries) -> Iterator[Figure]:
    """Yield the throughput of a scheduler with the extender, relative to one without."""
    with floor(found, _LINE, WITH_SCHEDULER) as ready:
        pairs = rounds(lambda: _extended(ready), lambda: _plain(ready), count=_ROUNDS)
    name = f"{_PODS} shares on {_NODES} nodes: pods/s, as a share of those without the extender"
    yield Figure(name, "≥ 0.5", spread([ours / plain for ours, plain in pairs]))
    yield Figure("  with it", "", spread([ours for ours, _ in pairs]), "/s")
    yield Figure("  without it", "", spread([plain for _, plain in pairs]), "/s")


def _extended(floor: Floor) -> float:
    with run_sidecar(floor.plane, _folder(floor)):
        return asyncio.run(_offered(floor, floor.namespace(), keys.SCHEDULER))


def _plain(floor: Floor) -> float:
    plane, user = floor.plane, floor.plane.site.kubeconfig(SCHEDULER)
    configuration = {
        "apiVersion": "kubescheduler.config.k8s.io/v1",
        "kind": "KubeSchedulerConfiguration",
        "clientConnection": {"kubeconfig": str(user), "qps": 500, "burst": 1000},
        "leaderElection": {"leaderElect": False},
        "profiles": [{"schedulerName": _PLAIN}],
    }
    process = start_scheduler(plane, _folder(floor), configuration)
    try:
        return asyncio.run(_offered(floor, floor.namespace(), _PLAIN))
    finally:
        plane.processes.stop(process)


def _folder(floor: Floor) -> Path:
    return Path(mkdtemp(dir=floor.folder))


async def _offered(floor: Floor, namespace: str, scheduler: str) -> float:
    """Return pods bound per second, from the first creation to the last binding."""
    spec = {"schedulerName": scheduler, "containers": [container(_ASKED)]}
    bodies = [{"metadata": {"name": f"pod-{i}"}, "spec": spec} for i in range(_PODS)]
    async with crowd(floor.plane, namespace) as pods:
        with floor.no_kubelets():
            begin = time.perf_counter()
            await pods.make(bodies)
            await pods.until(lambda pods: bound(pods) == _PODS)
            return _PODS / (time.perf_counter() - begin)
