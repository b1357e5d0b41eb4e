"""Gangs on a real scheduler: the cost of planning before the pods are written.

The same gangs are created on equal nodes in three ways: ours wait for the scorer; a bare client
lets each go as soon as it is there; and Kubernetes' own are placed by its scheduler.
"""

import asyncio
from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from functools import partial
from types import MappingProxyType

from controlplane.binaries import Binaries
from controlplane.claims_nodes import FENCED, RULES, claims_nodes
from controlplane.dra import claims_of
from controlplane.native_gangs import flags
from controlplane.process import wait_until

from linkwise.cluster import keys
from tools.bench.gangs.crowd import WORKERS, By, bound, crowd, nodes_of
from tools.bench.gangs.floor import Floor, floor
from tools.bench.measure import Figure, rounds, spread

_NODES, _GANGS, _ROUNDS = 128, 100, 7
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


def native(found: Binaries) -> AbstractContextManager[Floor]:
    """Set up the same where the scheduler knows gangs."""
    return floor(found, MACHINES, **flags())


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


def figures(floor: Floor, native: Floor) -> Iterator[Figure]:
    """Yield the rows of exact GPUs, beside the bare client and Kubernetes' own gangs."""
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
