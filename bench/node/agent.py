"""The agent of a node: memory and processor at rest, binding, lost GPUs, writes.

`python -m bench.node.agent` prints these figures alone.
"""

import asyncio
import statistics
from collections.abc import Iterator
from pathlib import Path
from time import perf_counter

from nvml.standin import compiler
from support.waiting import until

from agent.publish.publisher import Publication, Publisher
from bench.measure import Figure, Spread, cpu, spread
from bench.node.stub_node import NODE, Api, StubNode, stub_node
from cluster import keys
from cluster.nodes.topology_configmap import PublishedTopology
from runtime.kube.client import Kube
from topology.catalogue import entry

_REST = 60.0
"""How long an agent is left alone [s]."""
_BINDS, _LOSSES = 500, 5
_DAY = 144
"""Checks of what is published in a day, one in 600 s."""
_BUCKET = 'linkwise_agent_bind_seconds_bucket{le="0.02"}'


def figures() -> Iterator[Figure]:
    """Yield each row about an agent whose kubelet and API server are stand-ins."""
    if compiler() is None:
        print("rows of the agent are left out: no gcc to build the stand-in for NVML")
        return
    yield from asyncio.run(_measured())


async def _measured() -> list[Figure]:
    async with stub_node() as node:
        found = [*await _at_rest(node), *await _binding(node), await _loss(node)]
    return [*found, await _day_of_writes()]


async def _at_rest(node: StubNode) -> list[Figure]:
    """Return what an agent takes while nothing changes; its start is over."""
    await asyncio.sleep(_REST / 4)
    writes, reads = len(node.api.writes), node.api.reads
    shares, resident = [], []
    for _ in range(3):
        began, used = perf_counter(), cpu(node.pid)
        await asyncio.sleep(_REST)
        shares.append(100 * (cpu(node.pid) - used) / (perf_counter() - began))
        resident.append(_resident(node.pid))
    idle = f"agent at rest with {len(node.driver.cards)} GPUs"
    return [
        Figure(f"{idle}: resident memory", "≤ 64", spread(resident), "MiB"),
        Figure(f"{idle}: share of a core", "≤ 0.3", spread(shares), "%"),
        _one(f"  requests in {3 * _REST:g} s", "", node.api.reads - reads),
        _one("  writes in that time", "0", len(node.api.writes) - writes),
    ]


async def _binding(node: StubNode) -> list[Figure]:
    """Return the time of PreStartContainer, as its caller and as the agent sees it."""
    slots = sorted(node.plugin.devices)
    seconds = []
    for number in range(_BINDS):
        i = number % len(slots)
        # The pod before has ended.
        node.kubelet.listed.ClearField("pod_resources")
        node.api.pods.clear()
        node.add_pod(f"worker-{number}", slots[i], i)
        began = perf_counter()
        await node.plugin.pre_start([slots[i]])
        seconds.append(1000 * (perf_counter() - began))
    within = 100 * node.metric(_BUCKET) / node.metric("linkwise_agent_bind_seconds_count")
    return [
        Figure("PreStartContainer, p50", "", spread(seconds), "ms"),
        _one("PreStartContainer, p99", "≤ 20", statistics.quantiles(seconds, n=100)[-1], "ms"),
        _one("  share within 20 ms by the agent's own metric", "≥ 99", within, "%"),
    ]


async def _loss(node: StubNode) -> Figure:
    """Return the time from a GPU that falls off the bus to the write that says so."""
    seconds = []
    for i in range(_LOSSES):
        # At another moment of the agent's intervals each time.
        await asyncio.sleep(0.37 * i)
        began = perf_counter()
        node.driver.lose(i)
        await until(lambda lost=str(i): lost in node.api.unhealthy)
        seconds.append(perf_counter() - began)
    return Figure("GPU lost to ConfigMap written", "≤ 5", spread(seconds), "s")


async def _day_of_writes() -> Figure:
    """Return the writes of as many checks as a day has, at a shorter interval."""
    machine = entry("dgx1-v100").machine
    topology = PublishedTopology(machine, (True,) * machine.n)
    bandwidth = [[0.0] * machine.n] * machine.n
    api = Api()
    async with api.serve() as server, Kube(server) as kube:
        publisher = Publisher(kube, NODE, interval=0.001)
        publisher.set(Publication(topology, bandwidth, {keys.DRIVER_VERSION: "535.161.08"}))
        running = asyncio.create_task(publisher.run())
        await until(lambda: api.applied)
        reads, writes = api.reads, len(api.writes)
        # Each check reads the Node and the ConfigMap.
        await until(lambda: api.reads >= reads + 2 * _DAY)
        running.cancel()
        await asyncio.wait((running,))
    return _one(f"writes in {_DAY} checks, which are a day's", "≤ 1", len(api.writes) - writes)


def _resident(pid: int) -> float:
    lines = Path(f"/proc/{pid}/status").read_text(encoding="utf-8").splitlines()
    status = dict(line.split(":", 1) for line in lines)
    return int(status["VmRSS"].split()[0]) / 1024


def _one(name: str, target: str, value: float, unit: str = "") -> Figure:
    return Figure(name, target, Spread(value, value, value), unit)


if __name__ == "__main__":
    for figure in figures():
        print(figure)
