"""Gangs on a real scheduler: the cost of planning before the pods are written.

The same gangs are created on equal nodes in three ways: ours wait for the scorer; a bare client
lets each go as soon as it is there; and Kubernetes' own are placed by its scheduler.
"""

import asyncio
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from functools import partial
from signal import SIGKILL
from types import MappingProxyType

from controlplane.binaries import Binaries
from controlplane.claims_nodes import FENCED, RULES, claims_nodes
from controlplane.dra import claims_of
from controlplane.history import History
from controlplane.manifests import BASE
from controlplane.native_gangs import flags
from controlplane.process import wait_until
from controlplane.scorer import Scorer

from bench.gangs.crowd import WORKERS, By, Crowd, bound, crowd, freed, nodes_of
from bench.gangs.floor import Floor, floor
from bench.measure import Figure, cpu, rounds, spread
from cluster import keys

_NODES, _GANGS, _MANY = 128, 100, 140
_ROOM = {"cpu": 96, "memory": "768Gi"}
MACHINES = {"name": "gpu", "count": _NODES, "machine": "dgx1-v100", "mode": "topology", **_ROOM}
_COUNTED = {key: value for key, value in MACHINES.items() if key != "mode"}
"""The same nodes with NVIDIA's plugin, which chooses the GPUs."""
_CLAIMED = {
    "name": "gpu",
    "count": _NODES,
    "labels": {keys.NODE_MODE: str(MACHINES["mode"])},
    **_ROOM,
}
"""The same nodes with NVIDIA's DRA driver; kube-scheduler allocates the GPUs."""
_ALL = _GANGS * WORKERS
_ROUNDS, _SINGLES, _FAILOVERS = 7, 60, 3
_LEASE = 15
"""As it is shipped [s]."""
_FEW = 50
"""Writes that an API server takes [1/s]."""
_QUIET = 10.0
"""How long a scorer is looked at that has nothing to do [s]."""


def native(found: Binaries) -> AbstractContextManager[Floor]:
    """Set up the same where the scheduler knows gangs."""
    return floor(found, MACHINES, BASE, **flags())


def counted(found: Binaries) -> Iterator[Figure]:
    """Yield the rows of gangs for `nvidia.com/gpu`, where NVIDIA's plugin chooses the GPUs."""
    with floor(found, _COUNTED) as nodes:
        runs = rounds(
            partial(_run, nodes, By.SCORER, keys.NVIDIA_GPU),
            partial(_run, nodes, By.BARE_CLIENT, keys.NVIDIA_GPU),
            count=_ROUNDS,
        )
    yield from _beside_bare_client("by count", runs)


def claimed(found: Binaries) -> Iterator[Figure]:
    """Yield the rows of gangs for `nvidia.com/gpu`, where NVIDIA's DRA driver gives GPUs out."""
    with floor(found, _CLAIMED, **FENCED) as ready, claims_nodes(ready.plane.api) as nodes:
        for number in range(_NODES):
            nodes.offer(f"gpu-{number}", MACHINES["machine"])
        with ready.scorer():
            # It writes a rule for each node once, which is no part of the rounds.
            wait_until(lambda: _fences(ready) == _NODES, "all nodes are fenced")
        uuids = {name: [gpu.uuid for gpu in gpus] for name, gpus in nodes.gpus.items()}
        runs = rounds(
            partial(_run, ready, By.SCORER, keys.NVIDIA_GPU, uuids),
            partial(_run, ready, By.BARE_CLIENT, keys.NVIDIA_GPU, uuids),
            count=_ROUNDS,
        )
    yield from _beside_bare_client("by claims", runs)


def _fences(floor: Floor) -> int:
    return len(floor.plane.api.get(RULES)["items"])


def _beside_bare_client(kind: str, runs: Sequence[tuple["_Run", ...]]) -> Iterator[Figure]:
    """Yield the rows of rounds with our gangs and those of the bare client."""
    name = f"{_GANGS} gangs of {WORKERS} {kind}"
    values = [_rate(ours) / _rate(bare) for ours, bare in runs]
    yield Figure(f"{name}: pods/s, as a share of a bare client's", "≥ 0.8", spread(values))
    for whose, each in zip(("ours", "the bare client's"), zip(*runs, strict=True), strict=True):
        yield Figure(f"  {whose}, pods/s", "", spread([_rate(one) for one in each]))
        yield Figure(f"  {whose}, CPU for a pod", "", spread([_cpu(one) for one in each]), "ms")
        whole = [float(one.on_one_node) for one in each]
        yield Figure(f"  {whose}, gangs on one node", f"{_GANGS}", spread(whole))


def figures(floor: Floor, native: Floor) -> Iterator[Figure]:
    """Yield each row as soon as it is measured."""
    yield from _throughput(floor, native)
    yield from _offered_too_many(floor)
    yield _slowly(floor)
    yield from _alone(floor)
    yield _failover(floor)


@dataclass(frozen=True, slots=True)
class _Run:
    pods_per_second: float
    cpu_ms: float
    """Of all processes, for each pod."""
    on_one_node: int


def _run(
    floor: Floor,
    by: By,
    resource: str = keys.GPU_WHOLE,
    uuids: Mapping[str, Sequence[str]] = MappingProxyType({}),
) -> _Run:
    async def offered() -> _Run:
        async with crowd(floor.plane, namespace, resource, uuids) as pods:
            with floor.no_kubelets():
                watch = floor.stopwatch()
                await pods.offer(_GANGS, by)
                await pods.until(lambda pods: bound(pods) == _ALL)
                rate, each = _ALL / watch.seconds, watch.used / _ALL * 1e3
            found = nodes_of(list(pods.pods.values())).values()
            return _Run(rate, each, sum(len(set(nodes)) == 1 for nodes in found))

    namespace = floor.namespace()
    with floor.scorer() if by is By.SCORER else nullcontext():
        found = asyncio.run(offered())
    # They hold GPUs, and are deleted after their pods.
    wait_until(
        lambda: not uuids or not floor.plane.api.get(claims_of(namespace))["items"],
        "its claims are gone",
    )
    return found


def _throughput(floor: Floor, native: Floor) -> Iterator[Figure]:
    found = rounds(
        partial(_run, floor, By.SCORER),
        partial(_run, floor, By.BARE_CLIENT),
        partial(_run, native, By.SCHEDULER),
        count=_ROUNDS,
    )
    ours, bare, theirs = zip(*found, strict=True)
    shares = (
        ("pods/s, as a share of a bare client's", "≥ 0.8", _rate, bare),
        ("pods/s, as a share of Kubernetes' own gangs', on one node each", "≥ 1.7", _rate, theirs),
        ("CPU of all processes for a pod, as a share of theirs", "≤ 0.6", _cpu, theirs),
    )
    for name, target, of, others in shares:
        values = [of(one) / of(other) for one, other in zip(ours, others, strict=True)]
        yield Figure(f"{_GANGS} gangs of {WORKERS}: {name}", target, spread(values))
    for whose, runs in (("ours", ours), ("the bare client's", bare), ("Kubernetes' own", theirs)):
        yield Figure(f"  {whose}, pods/s", "", spread([_rate(one) for one in runs]))
        yield Figure(f"  {whose}, CPU for a pod", "", spread([_cpu(one) for one in runs]), "ms")
        whole = [float(one.on_one_node) for one in runs]
        yield Figure(f"  {whose}, gangs on one node", f"{_GANGS}", spread(whole))


def _rate(run: _Run) -> float:
    return run.pods_per_second


def _cpu(run: _Run) -> float:
    return run.cpu_ms


def _offered_too_many(floor: Floor) -> Iterator[Figure]:
    async def offered(scorer: Scorer) -> tuple[int, int, float]:
        async with crowd(floor.plane, namespace) as pods:
            await pods.offer(_MANY)
            await pods.until(lambda pods: bound(pods) == _NODES * WORKERS)
            # The last observation is followed by its explanation.
            await asyncio.sleep(_QUIET)
            used = cpu(scorer.process.pid)
            await asyncio.sleep(_QUIET)
            idle = (cpu(scorer.process.pid) - used) / _QUIET * 100
            gangs = nodes_of(list(pods.pods.values())).values()
            counts = [sum(map(bool, nodes)) for nodes in gangs]
            return counts.count(WORKERS), sum(0 < one < WORKERS for one in counts), idle

    namespace = floor.namespace()
    with floor.scorer() as scorer:
        whole, partial, idle = asyncio.run(offered(scorer))
    yield Figure(f"{_MANY} offered: gangs that are whole", f"{_NODES}", spread([whole]))
    yield Figure("  gangs that are bound in part", "0", spread([partial]))
    yield Figure("  the scorer afterwards, of a core", "≤ 1 %", spread([idle]), "%")


def _slowly(floor: Floor) -> Figure:
    async def offered() -> None:
        async with crowd(floor.plane, namespace) as pods:
            with floor.no_kubelets():
                await pods.offer(_GANGS)
                await pods.until(lambda pods: bound(pods) == _ALL)

    namespace = floor.namespace()
    with (
        floor.limited(_FEW) as server,
        floor.scorer(server=server),
        History(floor.plane.api) as history,
    ):
        asyncio.run(offered())
    longest = max(history.partly_bound().values())
    return Figure(f"at {_FEW} writes/s: longest bound in part", "≤ 0.5 s", spread([longest]), "s")


def _alone(floor: Floor) -> Iterator[Figure]:
    async def placed(pods: Crowd, number: int) -> float:
        await pods.create(f"gang-{number}")
        begin = time.perf_counter()
        await pods.until(lambda pods: freed(pods) == WORKERS)
        took = time.perf_counter() - begin
        await pods.clear()
        return took * 1e3

    async def all_of_them() -> list[float]:
        async with crowd(floor.plane, namespace) as pods:
            await placed(pods, _SINGLES)
            return sorted([await placed(pods, number) for number in range(_SINGLES)])

    namespace = floor.namespace()
    with floor.scorer(), floor.no_kubelets():
        found = asyncio.run(all_of_them())
    name = f"a gang of {WORKERS} alone: last member created to all let go"
    yield Figure(f"{name}, p50", "≤ 60 ms", spread(found), "ms")
    yield Figure(f"{name}, p99", "≤ 200 ms", spread(found[-1:]), "ms")


def _failover(floor: Floor) -> Figure:
    async def next_bound(leader: Scorer, namespace: str) -> float:
        async with crowd(floor.plane, namespace) as pods:
            await pods.offer(_GANGS)
            await pods.until(lambda pods: bound(pods) == _ALL)
            leader.process.signal(SIGKILL)
            begin = time.perf_counter()
            await pods.create("next")
            await pods.until(lambda pods: bound(pods) == _ALL + WORKERS)
            return time.perf_counter() - begin

    found = []
    for _ in range(_FAILOVERS):
        with floor.scorer() as leader, floor.scorer(leads=False):
            found.append(asyncio.run(next_bound(leader, floor.namespace())))
    name = f"leader killed beside {_ALL} pods: next gang bound"
    return Figure(name, f"≤ {_LEASE + 3} s", spread(found), "s")
