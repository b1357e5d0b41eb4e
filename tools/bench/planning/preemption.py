"""Preemption at the size of a large cluster: which units make room for a gang on full nodes."""

from collections.abc import Callable, Iterator
from dataclasses import replace
from time import perf_counter

from msgspec import structs

from linkwise.cluster.account.node_ledger import Holding
from linkwise.cluster.allocations.gpus import Exact, GPUShare
from linkwise.cluster.requests.demand import Demand
from linkwise.planning.placement.pods.member import Member
from linkwise.planning.placement.preemption.search import Eviction, find_victims
from linkwise.planning.placement.preemption.victim import Disruptions, Victim, VictimPod
from linkwise.planning.placement.state.snapshot import Snapshot
from tools.bench.planning.placement import CLASSES, cluster, worker

_NOW = 2_000.0


def rows() -> Iterator[tuple[str, str, Callable[[], float]]]:
    """Yield what is measured: its name, its target, and what runs it once and returns seconds."""
    empty = cluster(5000, CLASSES, busy=0)
    for name, units in (
        ("625 gangs of 8 × 8 GPUs", _gangs(empty)),
        ("18,750 single pods of 1 to 8 GPUs", _single_pods(empty)),
    ):
        pods = [pod for unit in units for pod in unit.pods]
        snapshot = empty.hold_all((pod.node, pod.holding) for pod in pods)
        for gpus in (1, 8):
            search = _Search(snapshot, units, [_high(worker(rank, gpus)) for rank in range(8)])
            search()
            yield f"victims for 8 × {gpus} GPUs on 5,000 nodes full of {name}", "≤ 50 ms", search


class _Search:
    """One search, repeated; the values of the units are computed before."""

    def __init__(self, snapshot: Snapshot, units: list[Victim], gang: list[Member]) -> None:
        self._snapshot, self._units, self._gang = snapshot, units, gang

    def __call__(self) -> float:
        """Return the seconds that the search takes."""
        start = perf_counter()
        found = find_victims(self._snapshot, self._gang, self._units, Disruptions(_NOW))
        took = perf_counter() - start
        assert isinstance(found, Eviction), found  # noqa: S101 (else something else is measured)
        return took


def _gangs(snapshot: Snapshot) -> list[Victim]:
    """Return gangs of 8 pods, each with all GPUs of a node."""
    pods = [_pod(node, range(8), float(i % 977)) for i, node in enumerate(snapshot.ledger.nodes)]
    parts = [pods[i : i + 8] for i in range(0, len(pods), 8)]
    return [Victim(f"o/gang-{i}", i % 3, tuple(part)) for i, part in enumerate(parts)]


def _single_pods(snapshot: Snapshot) -> list[Victim]:
    """Return pods of 1, 2, 4 or 8 GPUs: all of a node are equal."""
    units: list[Victim] = []
    for i, node in enumerate(snapshot.ledger.nodes):
        size = (1, 2, 4, 8)[i % 4]
        for first in range(0, 8, size):
            pod = _pod(node, range(first, first + size), float(i % 977))
            units.append(Victim(pod.holding.pod, i % 3, (pod,)))
    return units


def _pod(node: str, gpus: range, started: float) -> VictimPod:
    name = f"{node}-{gpus.start}"
    held = Exact(tuple(GPUShare(i) for i in gpus))
    return VictimPod(node, Holding(f"o/{name}", name, held, Demand(4_000, 16 << 30)), started)


def _high(member: Member) -> Member:
    spec = structs.replace(member.pod.spec, priority=9)
    return replace(member, pod=structs.replace(member.pod, spec=spec))
