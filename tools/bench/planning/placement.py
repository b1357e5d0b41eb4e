"""Placement at the size of a large cluster: ranking nodes for one pod, and planning a gang."""

import json
import random
from collections import deque
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from functools import partial
from time import perf_counter, process_time

import msgspec

from linkwise.cluster.account.ledger import Ledger
from linkwise.cluster.account.node_ledger import Holding, NodeLedger
from linkwise.cluster.allocations.gpus import Exact, GPUShare
from linkwise.cluster.keys import CLAIM_PREFIX, CLAIMED_GPUS, GPU_WHOLE, NODE_MODE, POD_CLAIM
from linkwise.cluster.mode import NodeMode
from linkwise.cluster.nodes.node import Card, DevicePool, MachineSource, Node
from linkwise.cluster.objects.pod import Pod
from linkwise.cluster.requests.claimed import claim_request
from linkwise.cluster.requests.request import Request
from linkwise.planning.placement.baselines import best_possible, index_order
from linkwise.planning.placement.pods.member import Member, new_member
from linkwise.planning.placement.result import Plan
from linkwise.planning.placement.schedule import plan
from linkwise.planning.placement.score import node_value, scores
from linkwise.planning.placement.state.snapshot import Snapshot, snapshot_of
from linkwise.topology.catalogue import entry
from tools.bench.measure import Figure, rounds, spread

CLASSES = ("dgx1-v100", "dgx1-p100", "dgx-a100", "a100x8-bridges", "l4x8")
"""Five classes of eight GPUs each."""
_ROOM = {"cpu": "4", "memory": "16Gi"}


def rows() -> Iterator[tuple[str, str, Callable[[], float]]]:
    """Yield what is measured: its name, its target, and what runs it once and returns seconds.

    Every repetition decides again; the tables of the machine classes are built before.
    """
    ranked = cluster(5000, CLASSES)
    names = list(ranked.ledger.nodes)
    request = worker(0, 4).request
    yield (
        "ranking 5,000 nodes of 5 classes for a 4-GPU pod",
        "≤ 5 ms",
        lambda: _seconds(lambda: _ranked(ranked, names, request)),
    )
    for gpus in (1, 4, 8):
        steps = _Steps(5000, gpus)
        yield f"8 workers of {gpus} GPU each planned on 5,000 nodes (CPU)", "≤ 10 ms", steps
    half_full = cluster(1000, CLASSES[:1])
    gang = [worker(i, 1) for i in range(256)]
    yield (
        "a 256-worker gang on 1,000 half-full nodes, planned",
        "≤ 50 ms",
        lambda: _seconds(lambda: _planned(half_full, gang)),
    )


def _ranked(snapshot: Snapshot, names: list[str], request: Request) -> list[int]:
    nodes, tables = snapshot.ledger.nodes, snapshot.tables
    mode, strategy = snapshot.preferences.mode, snapshot.preferences.placement
    values = [node_value(nodes[name], tables[name], request, mode, strategy) for name in names]
    return scores(values, strategy)


def figures() -> Iterator[Figure]:
    """Yield how planning grows with the cluster, of rounds in which both take their turn."""
    few, many = _Steps(500, 1), _Steps(5000, 1)
    few(), many()
    ratios = [there / here for here, there in rounds(few, many)]
    name = "planning time on 5,000 nodes, over that on 500"
    yield Figure(name, "≤ 3", spread(ratios), "×")
    claims = _Steps(5000, 1, claims=True)
    claims()
    ratios = [by_claim / exact for exact, by_claim in rounds(many, claims)]
    name = "planning time by claims on 5,000 claims nodes, over that on exact nodes"
    yield Figure(name, "≤ 1", spread(ratios), "×")


class _Steps:
    """Gangs of 8 workers that come one after another; each ends when two more run."""

    def __init__(self, nodes: int, gpus: int, *, claims: bool = False) -> None:
        self._snapshot = cluster(nodes, CLASSES, busy=0.25, claims=claims)
        self._worker = partial(_claiming if claims else worker, gpus=gpus)
        self._number = 0
        self._running: deque[Plan] = deque()

    def __call__(self) -> float:
        """Return the seconds of CPU that one gang takes: all that is decided, and compared."""
        self._number += 1
        gang = [self._worker(rank, gang=f"gang-{self._number}") for rank in range(8)]
        start = process_time()
        found = plan(self._snapshot, gang)
        assert isinstance(found, Plan), found  # noqa: S101 (else something else is measured)
        best_possible(self._snapshot, gang)
        index_order(self._snapshot, gang)
        self._snapshot = found.applied_to(self._snapshot)
        took = process_time() - start
        self._running.append(found)
        if len(self._running) > 2:
            self._end(self._running.popleft())
        return took

    def _end(self, past: Plan) -> None:
        nodes = dict(self._snapshot.ledger.nodes)
        for placement in past.placements:
            uid = placement.member.pod.metadata.uid
            nodes[placement.node] = nodes[placement.node].release(uid)
        self._snapshot = replace(self._snapshot, ledger=Ledger(nodes))


def _seconds(work: Callable[[], object]) -> float:
    start = perf_counter()
    work()
    return perf_counter() - start


def _planned(snapshot: Snapshot, gang: list[Member]) -> Plan:
    # A new view of the same cluster, as after every change; the choice tables stay.
    found = plan(replace(snapshot), gang)
    assert isinstance(found, Plan), found  # noqa: S101 (else something else is measured)
    return found


def cluster(
    count: int, classes: tuple[str, ...], *, busy: float = 0.5, claims: bool = False
) -> Snapshot:
    """Return nodes of these classes in turn; other pods have about so many of their GPUs.

    Args:
        count: Of nodes.
        classes: Names of their machines.
        busy: Share of the GPUs that other pods have.
        claims: NVIDIA's DRA driver gives the GPUs out.
    """
    draw = random.Random(0)  # noqa: S311 (the same cluster each time)
    ledgers: dict[str, NodeLedger] = {}
    for i in range(count):
        machine = entry(classes[i % len(classes)]).machine
        node = Node(
            f"node-{i:04}",
            {NODE_MODE: NodeMode.TOPOLOGY},
            NodeMode.TOPOLOGY,
            machine=machine,
            machine_source=MachineSource.AGENT,
            cards=(Card(),) * machine.n,
            cpu=96_000,
            memory=768 << 30,
            pool=_pool(f"node-{i:04}", machine.n) if claims else None,
        )
        taken = (GPUShare(g) for g in range(machine.n) if draw.random() < busy)
        ledgers[node.name] = NodeLedger.empty(node).hold(
            Holding("o/p", f"p{i}", Exact(tuple(taken)))
        )
    return snapshot_of(Ledger(ledgers))


def _pool(node: str, gpus: int) -> DevicePool:
    return DevicePool(node, tuple(f"gpu-{gpu}" for gpu in range(gpus)))


def worker(rank: int, gpus: int, gang: str = "gang") -> Member:
    """Return a member of a gang with so many GPUs."""
    resources = {"limits": {GPU_WHOLE: str(gpus), **_ROOM}}
    return _member(f"{gang}-{rank}", {"containers": [{"name": "c", "resources": resources}]})


def _claiming(rank: int, gpus: int, gang: str) -> Member:
    """Return the same by a claim, as admission writes it."""
    request = claim_request(0)
    resources = {"limits": _ROOM, "claims": [{"name": POD_CLAIM, "request": request}]}
    claim = {"name": POD_CLAIM, "resourceClaimName": f"{CLAIM_PREFIX}{rank:032x}"}
    spec = {"containers": [{"name": "c", "resources": resources}], "resourceClaims": [claim]}
    return _member(f"{gang}-{rank}", spec, {CLAIMED_GPUS: json.dumps({request: gpus})})


def _member(
    name: str, spec: dict[str, object], annotations: Mapping[str, str] | None = None
) -> Member:
    metadata = {"name": name, "uid": name, "namespace": "bench", "annotations": annotations or {}}
    return new_member(msgspec.convert({"metadata": metadata, "spec": spec}, Pod), "bench")
