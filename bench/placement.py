"""Placement at the size of a large cluster: ranking nodes for one pod, and planning a gang."""

import random
from collections.abc import Callable, Iterator
from dataclasses import replace
from time import perf_counter

import msgspec

from cluster.keys import GPU_WHOLE, NODE_MODE
from cluster.ledger import Holding, Ledger, NodeLedger
from cluster.mode import Mode
from cluster.node import Card, Node
from cluster.pod import Pod
from cluster.record import GPUShare
from scorer.member import Member, member_of
from scorer.outcome import Plan
from scorer.plan import plan
from scorer.rank import rank_nodes
from scorer.snapshot import Snapshot, snapshot_of
from topology.catalogue import entry

CLASSES = ("dgx1-v100", "dgx1-p100", "dgx-a100", "a100x8-bridges", "l4x8")
"""Five classes of eight GPUs each."""


def rows() -> Iterator[tuple[str, str, Callable[[], float]]]:
    """Yield what is measured: its name, its target, and what runs it once and returns seconds.

    Every repetition decides anew; the tables of the machine classes are built before.
    """
    ranked = _cluster(5000, CLASSES)
    names = list(ranked.ledger.nodes)
    request = _worker(0, 4).request
    yield (
        "ranking 5,000 nodes of 5 classes for a 4-GPU pod",
        "≤ 5 ms",
        lambda: _seconds(lambda: rank_nodes(ranked, names, request)),
    )
    half_full = _cluster(1000, CLASSES[:1])
    gang = [_worker(i, 1) for i in range(256)]
    yield (
        "a 256-worker gang on 1,000 half-full nodes, planned",
        "≤ 50 ms",
        lambda: _seconds(lambda: _planned(half_full, gang)),
    )


def _seconds(work: Callable[[], object]) -> float:
    start = perf_counter()
    work()
    return perf_counter() - start


def _planned(snapshot: Snapshot, gang: list[Member]) -> Plan:
    # A new view of the same cluster, as after every change; the choice tables stay.
    found = plan(replace(snapshot), gang)
    assert isinstance(found, Plan), found  # noqa: S101 (else something else is measured)
    return found


def _cluster(count: int, classes: tuple[str, ...]) -> Snapshot:
    """Return nodes of these classes in turn; other pods have about half of their GPUs."""
    draw = random.Random(0)  # noqa: S311 (the same cluster each time)
    ledgers: dict[str, NodeLedger] = {}
    for i in range(count):
        machine = entry(classes[i % len(classes)]).machine
        node = Node(
            f"node-{i:04}",
            {NODE_MODE: Mode.TOPOLOGY},
            Mode.TOPOLOGY,
            machine=machine,
            machine_known=True,
            cards=(Card(),) * machine.n,
            cpu=96_000,
            memory=768 << 30,
        )
        taken = (GPUShare(g) for g in range(machine.n) if draw.random() < 0.5)
        ledgers[node.name] = NodeLedger.empty(node).hold(Holding("o/p", f"p{i}", tuple(taken)))
    return snapshot_of(Ledger(ledgers))


def _worker(rank: int, gpus: int) -> Member:
    limits = {GPU_WHOLE: str(gpus), "cpu": "4", "memory": "16Gi"}
    pod = {
        "metadata": {"name": f"worker-{rank}", "namespace": "bench"},
        "spec": {"containers": [{"name": "c", "resources": {"limits": limits}}]},
    }
    return member_of(msgspec.convert(pod, Pod), "bench")
