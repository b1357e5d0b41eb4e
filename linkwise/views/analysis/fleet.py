"""An overview of all nodes with GPUs: how full each is, its pods and its problems. Pure.

The page of `inspect` shows the fleet as it is, the page of `simulate` after the placement of pods.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import cache
from typing import TypeAlias

from linkwise.cluster.account.node_ledger import Holding, NodeLedger
from linkwise.cluster.account.slots import takes_pods
from linkwise.cluster.allocations.gpus import Counted, number_counted
from linkwise.cluster.keys import NVIDIA_GPU, NVIDIA_GPU_SHARED
from linkwise.cluster.mode import NodeMode
from linkwise.cluster.nodes.node import Node
from linkwise.topology.machine import gpus_of
from linkwise.topology.table import Table, table_of
from linkwise.views.analysis.counted_sets import counted_sets
from linkwise.views.output.words import amount_text, plural

FREE, WHOLE, NEW, COUNTED, UNKNOWN, UNHEALTHY, CORDONED = ".#+c?xo"
"""The state of a GPU as a character; a shared one has a digit, the ninths that are given out."""

_BestBandwidth: TypeAlias = Callable[[Table, int], float]
"""Returns the best bandwidth of a number of GPUs of an empty machine [GB/s]."""


@dataclass(frozen=True, slots=True)
class FleetPod:
    """A pod that holds GPUs of a node."""

    namespace: str
    name: str
    gang: str | None
    gpus: tuple[int, ...]
    """Ascending; empty for GPUs that NVIDIA's plugin chooses."""
    counted: int
    """The number of whole GPUs that NVIDIA's plugin chose for it."""
    amount: str
    """The amounts that it holds, in words."""
    is_new: bool
    """This simulation placed it."""


@dataclass(frozen=True, slots=True)
class FleetNode:
    """One node of the map."""

    node: Node
    pool: str
    model: str
    states: str
    """A character for each GPU."""
    used: int
    """The part of its GPUs that is given out [%]."""
    free: int
    """The number of GPUs without holders."""
    links: tuple[float, float] | None
    """Bandwidth of its free GPUs, and of as many GPUs of an empty machine at best [GB/s]."""
    pods: tuple[FleetPod, ...]
    closed: bool
    """It takes no pods now."""
    problems: tuple[str, ...]
    notes: tuple[str, ...]
    """The bandwidth of each pod or gang whose GPUs NVIDIA's plugin chooses, and what the
    policies of the kubelet mean."""

    @property
    def stranded(self) -> int:
        """The number of free GPUs beside taken ones: no pod can have the whole node."""
        return self.free if self.used else 0


@dataclass(slots=True)
class NamespaceUsage:
    """The GPUs that the pods of a namespace hold."""

    namespace: str
    pods: int = 0
    gpus: int = 0
    """Whole GPUs, including those that NVIDIA's plugin chooses."""
    memory: int = 0
    """Shares of GPUs [GiB]."""
    replicas: int = 0
    nodes: set[str] = field(default_factory=set)

    def add(self, other: "NamespaceUsage") -> None:
        """Add what its pods hold elsewhere."""
        self.pods += other.pods
        self.gpus += other.gpus
        self.memory += other.memory
        self.replicas += other.replicas
        self.nodes |= other.nodes


def fleet_of(ledgers: Iterable[NodeLedger], new: frozenset[str] = frozenset()) -> list[FleetNode]:
    """Return the nodes that have GPUs, in the order of the ledgers.

    Args:
        ledgers: Nodes.
        new: The uids of the pods that a simulation placed.
    """
    best = cache(Table.best_possible)
    return [_node(ledger, new, best) for ledger in ledgers if ledger.has_gpus]


def usage_of(ledgers: Iterable[NodeLedger]) -> list[NamespaceUsage]:
    """Return the usage of each namespace, the most GPUs first."""
    return total_usage(each for ledger in ledgers for each in node_usage(ledger))


def node_usage(ledger: NodeLedger) -> tuple[NamespaceUsage, ...]:
    """Return the usage of each namespace on one node."""
    usages: dict[str, NamespaceUsage] = {}
    for holding in ledger.holdings.values():
        if holding.gpus:
            namespace = holding.pod.partition("/")[0]
            _add(usages.setdefault(namespace, NamespaceUsage(namespace)), holding, ledger.node)
    return tuple(usages.values())


def total_usage(usages: Iterable[NamespaceUsage]) -> list[NamespaceUsage]:
    """Return the sum for each namespace, the most GPUs first."""
    totals: dict[str, NamespaceUsage] = {}
    for each in usages:
        totals.setdefault(each.namespace, NamespaceUsage(each.namespace)).add(each)
    return sorted(totals.values(), key=lambda usage: (-usage.gpus, -usage.memory, usage.namespace))


def _add(usage: NamespaceUsage, holding: Holding, node: Node) -> None:
    usage.pods += 1
    usage.nodes.add(node.name)
    gpus = holding.gpus
    are_replicas = node.mode is NodeMode.TIMESLICE or node.replicas
    if are_replicas or number_counted(gpus, NVIDIA_GPU_SHARED):
        usage.replicas += len(gpus)
        return
    usage.memory += sum(share.mem or 0 for share in gpus.shares)
    usage.gpus += len(gpus) - sum(share.mem is not None for share in gpus.shares)


def _node(ledger: NodeLedger, new: frozenset[str], best: _BestBandwidth) -> FleetNode:
    node = ledger.node
    states = "".join(_states(ledger, new))
    return FleetNode(
        node=node,
        pool=node.node_pool or "",
        model=node.model or "",
        states=states,
        used=_used(states),
        free=states.count(FREE) + states.count("0"),
        links=_links(ledger, best),
        pods=tuple(_pods(ledger, new)),
        closed=not takes_pods(ledger),
        problems=tuple(_problems(ledger)),
        notes=tuple(_notes(ledger)),
    )


def _states(ledger: NodeLedger, new: frozenset[str]) -> Iterator[str]:
    new_gpus = {
        i for uid in new & ledger.holdings.keys() for i in ledger.holdings[uid].gpus.indices
    }
    # It is not known which GPUs NVIDIA's plugin chose: the last ones are shown as taken.
    last = ledger.gpus_free
    for i, (card, taken) in enumerate(zip(ledger.node.cards, ledger.taken, strict=True)):
        if taken.whole:
            yield NEW if i in new_gpus else WHOLE
        elif not card.usable:
            yield CORDONED if card.healthy else UNHEALTHY
        elif ledger.unaccounted or (ledger.node.pool and ledger.node.pool.missing):
            yield UNKNOWN
        elif ledger.has_counted_pods:
            yield COUNTED if i >= last else FREE
        elif capacity := ledger.node.replicas or (
            (card.memory or 0) if ledger.node.mode.shares_memory else 0
        ):
            given = taken.holders if ledger.node.replicas else taken.memory
            yield str(min(9, -(-9 * given // capacity)))
        else:
            yield FREE


def _used(states: str) -> int:
    parts = {WHOLE: 1.0, NEW: 1.0, COUNTED: 1.0}
    given = sum(parts.get(gpu) or (int(gpu) / 9 if gpu.isdigit() else 0) for gpu in states)
    usable = sum(gpu not in {UNHEALTHY, CORDONED} for gpu in states)
    return min(100, max(1, round(100 * given / usable))) if usable and given else 0


def _links(ledger: NodeLedger, best: _BestBandwidth) -> tuple[float, float] | None:
    node, mask = ledger.node, ledger.free_mask
    partly = 1 < mask.bit_count() < len(node.cards)
    if node.machine is None or not node.machine_known or not partly or ledger.has_counted_pods:
        return None
    if ledger.unaccounted:
        return None
    table = table_of(node.machine)
    return table.bandwidth(mask), best(table, len(gpus_of(mask)))


def _pods(ledger: NodeLedger, new: frozenset[str]) -> Iterator[FleetPod]:
    for uid, holding in sorted(ledger.holdings.items(), key=lambda item: item[1].pod):
        if holding.gpus:
            namespace, _, name = holding.pod.partition("/")
            gpus = tuple(sorted(set(holding.gpus.indices)))
            gang = holding.gang.partition("/")[2] if holding.gang else None
            counted = number_counted(holding.gpus, NVIDIA_GPU)
            amount = _amount(holding, ledger.node)
            yield FleetPod(namespace, name, gang, gpus, counted, amount, uid in new)


def _amount(holding: Holding, node: Node) -> str:
    gpus = holding.gpus
    if isinstance(gpus, Counted):
        return f"{gpus.number} by count"
    if node.replicas:
        return f"{len(gpus)} {plural('replica', len(gpus))}"
    return amount_text(gpus.shares)


def _notes(ledger: NodeLedger) -> Iterator[str]:
    yield from _counted_bandwidths(ledger)
    if note := ledger.node.kubelet.numa_note:
        yield note


def _counted_bandwidths(ledger: NodeLedger) -> Iterator[str]:
    for each in counted_sets(ledger):
        unit = f"Gang {each.gang}" if each.gang else f"Pod {each.holdings[0].pod}"
        if each.bandwidth is not None:
            yield f"{unit} has all {each.count} GPUs: {each.bandwidth:.1f} GB/s."
        elif each.is_unknown:
            yield f"{unit}: the bandwidth is not known, since NVIDIA's plugin chooses its GPUs."


def _problems(ledger: NodeLedger) -> Iterator[str]:
    node = ledger.node
    if not node.ready:
        yield "not ready"
    if node.unschedulable:
        yield "unschedulable"
    if ledger.unaccounted:
        yield f"it is unknown which GPUs are allocated: {ledger.unaccounted}"
    if node.pool and node.pool.missing:
        yield f"nothing new is placed here: {node.pool.missing}"
    unusable = sum(card.cordoned or not card.healthy for card in node.cards)
    if unusable:
        yield f"{unusable} {plural('GPU', unusable)} unhealthy or cordoned"
    cards = zip(node.cards, ledger.taken, strict=True)
    claimed = sum(card.claimed and not taken.holders for card, taken in cards)
    if claimed:
        yield f"{claimed} {plural('GPU', claimed)} held by claims"


def nodes_by_free_gpus(nodes: Iterable[FleetNode]) -> Mapping[int, int]:
    """Return the number of nodes by their number of free GPUs, without fully taken nodes."""
    counts: dict[int, int] = {}
    for node in nodes:
        if node.free:
            counts[node.free] = counts.get(node.free, 0) + 1
    return dict(sorted(counts.items()))
