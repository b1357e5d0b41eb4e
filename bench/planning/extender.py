"""The extender at the size of a large cluster: latency over HTTP and of binding.

A scorer as it runs, in a process with the API server of the tests. Between two measurements a pod
comes to some node, and what asks waits until that is known.
"""

import asyncio
import logging
import random
from collections.abc import Callable, Iterator
from http.client import HTTPConnection
from itertools import count
from multiprocessing import get_context
from multiprocessing.connection import Connection
from time import perf_counter, sleep
from typing import Any, cast

import msgspec
import uvloop
from controlplane.process import free_ports, wait_until
from prometheus_client import CollectorRegistry
from support.servers.fake_cluster import FakeCluster

from cluster import keys
from cluster.allocations.gpus import Exact, GPUShare
from cluster.allocations.record import Allocation, Isolation, format_record
from cluster.mode import NodeMode
from cluster.nodes.node import Card, Node
from cluster.objects.pod import Pod
from cluster.requests.request import read_request
from runtime.process.clock import wall
from runtime.process.logs import configure
from scorer.__main__ import run_scorer
from scorer.cache.informers import Informers
from scorer.extender.bind import Binder
from scorer.extender.wire import Binding
from scorer.gang.pod_info import pod_info
from scorer.metrics import Metrics
from scorer.queue.fault_isolation import FaultIsolation
from scorer.settings import Settings
from scorer.timings import Timings
from topology.catalogue import entry

_BINDS = 100
_NODES = 5_000
_CLASSES = ("dgx1-v100", "dgx1-p100", "dgx-a100", "a100x8-bridges", "l4x8")
_CLASS = "bench/class"


def rows() -> Iterator[tuple[str, str, Callable[[], float]]]:
    """Yield what is measured: its name, its target, and what runs it once and returns seconds."""
    # A tenth of the nodes shall take no less than a tenth of the time of all.
    for nodes, target in ((_NODES // 10, ""), (_NODES, "≤ 8 ms")):
        name = f"filter and prioritize the names of {nodes:,} nodes, over HTTP"
        yield name, target, _Running(nodes).asked
    yield "bind, without the API server's part", "≤ 0.3 ms", _bound


class _Running:
    """A scorer that leads, in a process of its own, with half of all GPUs in use."""

    def __init__(self, nodes: int) -> None:
        self._draw = random.Random(0)  # noqa: S311 (the same cluster each time)
        self._names = [f"node-{i:04}" for i in range(nodes)]
        context = get_context("spawn")
        self._pipe, there = context.Pipe()
        context.Process(target=_serve, args=(there, nodes), daemon=True).start()
        self._connection = HTTPConnection("127.0.0.1", self._pipe.recv())
        wait_until(self._leads, "the scorer leads")

    def asked(self) -> float:
        """Return the duration of a request about all nodes [s]."""
        number, body = len(self._names), _args(self._names)
        self._pipe.send(self._draw.choice(self._names))
        sleep(0.05)
        start = perf_counter()
        able = msgspec.json.decode(self._post("filter", body))["NodeNames"]
        self._post("prioritize", _args(able))
        seconds = perf_counter() - start
        assert number / 2 < len(able) < number, len(able)  # noqa: S101 (else it is of another thing)
        return seconds

    def _leads(self) -> bool:
        try:
            answer = msgspec.json.decode(self._post("filter", _args(["node-0000"])))
        except OSError:
            self._connection.close()
            return False
        return not answer["Error"]

    def _post(self, verb: str, body: bytes) -> bytes:
        self._connection.request("POST", f"/{verb}", body, {"Content-Type": "application/json"})
        return self._connection.getresponse().read()


def _serve(pipe: Connection, nodes: int) -> None:
    configure(level="error")
    # A watch that its client leaves is no error of what is measured.
    logging.getLogger("aiohttp.server").setLevel(logging.CRITICAL)
    uvloop.run(_scorer(pipe, nodes))


async def _scorer(pipe: Connection, nodes: int) -> None:
    """Run a scorer until the pipe ends; each node that it names gets another pod."""
    draw, numbers, stop = random.Random(0), count(), asyncio.Event()  # noqa: S311
    loop = asyncio.get_running_loop()

    def on_readable() -> None:
        try:
            _put(cluster, pipe.recv(), (7,), next(numbers))
        except EOFError:
            loop.remove_reader(pipe.fileno())
            stop.set()

    async with FakeCluster() as cluster:
        _policy(cluster)
        for i in range(nodes):
            labels = {keys.NODE_MODE: NodeMode.TOPOLOGY, _CLASS: _CLASSES[i % len(_CLASSES)]}
            amounts = {keys.GPU_WHOLE: "8", "cpu": "96", "memory": "768Gi"}
            body = {"metadata": {"labels": labels}, "status": {"allocatable": amounts}}
            cluster.put(f"/api/v1/nodes/node-{i:04}", body)
            # One is left for the pods that come later.
            taken = tuple(gpu for gpu in range(7) if draw.random() < 0.5)
            _put(cluster, f"node-{i:04}", taken, next(numbers))
        loop.add_reader(pipe.fileno(), on_readable)
        probe, inspect, extender, fit = free_ports(4)
        settings = Settings(
            host="127.0.0.1",
            probe_port=probe,
            inspect_port=inspect,
            extender_port=extender,
            fit_port=fit,
            api_server=cluster.url,
            log_level="error",
        )
        scorer = asyncio.create_task(run_scorer(settings, Timings(), "bench", stop))
        pipe.send(settings.extender_port)
        while not scorer.done():
            _renew(cluster, next(numbers))
            await asyncio.sleep(1)


def _put(cluster: FakeCluster, node: str, gpus: tuple[int, ...], number: int) -> None:
    """Give a pod GPUs of a node; a later pod replaces an earlier one."""
    if not gpus:
        return
    name = f"{node}-{gpus[-1] == 7}"
    pod = _pod(name, len(gpus))
    given = Allocation(node, Exact(tuple(map(GPUShare, gpus))), plan=f"{number}")
    pod["metadata"]["annotations"] = format_record(
        given,
        request=read_request(msgspec.convert(pod, Pod))[0],
        term=1,
        isolation=Isolation.NONE,
        now_ns=0,
        node_card_memory=None,
    )
    pod["spec"]["nodeName"] = node
    cluster.put(f"/api/v1/namespaces/bench/pods/{name}", pod)


class _Instant:
    """An API server that accepts every write immediately."""

    async def create(self, *_: object, **__: object) -> None:
        """Return at once."""


def _bound() -> float:
    """Return how long one binding takes of many on a cluster [s]."""
    return asyncio.run(_binding()) / _BINDS


async def _binding() -> float:
    informers: Any = Informers(cast("Any", None))
    for i in range(_NODES):
        informers.state.update_node(f"node-{i:04}", _node(f"node-{i:04}"))
    for i in range(_BINDS):
        found = pod_info(msgspec.convert(_pod(f"pod-{i}", 4), Pod))
        informers.state.update_pod(found.key, found)
    faults = FaultIsolation(Metrics(CollectorRegistry()), informers.changed.set)
    binder = Binder(
        cast("Any", _Instant()), informers, faults, term=1, clock=wall, timings=Timings()
    )
    running = asyncio.create_task(binder.run())
    await asyncio.sleep(0)
    start = perf_counter()
    for i in range(_BINDS):
        why = await binder.bind(Binding(f"pod-{i}", "bench", f"pod-{i}", f"node-{i // 2:04}"))
        assert not why, why  # noqa: S101 (else something else is measured)
    seconds = perf_counter() - start
    running.cancel()
    return seconds


def _node(name: str) -> Node:
    machine = entry(_CLASSES[0]).machine
    return Node(name, mode=NodeMode.TOPOLOGY, machine=machine, cards=(Card(),) * machine.n)


def _pod(name: str, gpus: int) -> dict[str, Any]:
    limits = {keys.GPU_WHOLE: str(gpus), "cpu": "4", "memory": "16Gi"}
    return {
        "metadata": {"name": name, "namespace": "bench", "uid": name},
        "spec": {"containers": [{"name": "c", "resources": {"limits": limits}}]},
    }


def _args(names: list[str]) -> bytes:
    return msgspec.json.encode({"Pod": _pod("asking", 4), "Nodes": None, "NodeNames": names})


def _renew(cluster: FakeCluster, number: int) -> None:
    """Hold the Lease as a scheduler beside the scorer does."""
    spec = {"holderIdentity": "bench_scheduler", "leaseTransitions": 1, "renewTime": f"{number}"}
    path = f"/apis/coordination.k8s.io/v1/namespaces/{keys.POLICY_NAMESPACE}/leases/{keys.SCORER}"
    cluster.put(path, {"metadata": {}, "spec": spec})


def _policy(cluster: FakeCluster) -> None:
    """Return the policy that names the machine of each class of nodes."""
    lines = [f"- {{nodeLabels: {{{_CLASS}: {name}}}, machine: {name}}}" for name in _CLASSES]
    text = "\n".join(["apiVersion: linkwise.dev/v1alpha1", "kind: Policy", "machines:", *lines])
    path = f"/api/v1/namespaces/{keys.POLICY_NAMESPACE}/configmaps/{keys.POLICY_NAME}"
    cluster.put(path, {"metadata": {}, "data": {keys.POLICY_KEY: text}})
