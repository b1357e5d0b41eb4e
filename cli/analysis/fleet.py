"""All nodes with GPUs at a glance: how full each is, who is there, who holds what. Pure.

The pages of `inspect` and `simulate` show the same fleet: one of a cluster as it is, the other of
one with the pods that were placed.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import cache
from typing import TypeAlias

from cluster.keys import GFD_PRODUCT, NODE_POOLS, NVIDIA_GPU_SHARED
from cluster.mode import Mode
from cluster.node import Node
from cluster.node_ledger import Holding, NodeLedger
from topology.machine import gpus_of
from topology.table import Table, table_of

FREE, WHOLE, NEW, COUNTED, UNKNOWN, UNHEALTHY, CORDONED = ".#+c?xo"
"""What a GPU is, in one character; one that is given out by parts has a digit, its ninths."""

_Best: TypeAlias = Callable[[Table, int], float]
"""The best bandwidth of so many GPUs of an empty machine."""


@dataclass(frozen=True, slots=True)
class Holder:
    """A pod that has something of a node's GPUs."""

    namespace: str
    name: str
    gang: str | None
    gpus: tuple[int, ...]
    """Ascending; empty where NVIDIA's plugin chooses them."""
    amount: str
    """How much it has, in words."""
    is_new: bool
    """It was placed in this simulation."""


@dataclass(frozen=True, slots=True)
class FleetNode:
    """One node of the map."""

    node: Node
    pool: str
    model: str
    states: str
    """A character for each GPU."""
    used: int
    """How much of its GPUs is given out [%]."""
    free: int
    """GPUs of which nobody has anything."""
    links: tuple[float, float] | None
    """What its free GPUs reach together, and as many of such a machine at best [GB/s]."""
    holders: tuple[Holder, ...]
    problems: tuple[str, ...]

    @property
    def stranded(self) -> int:
        """GPUs that are free beside others that are taken: no pod can have the whole node."""
        return self.free if self.used else 0


@dataclass(slots=True)
class Usage:
    """What the pods of a namespace hold."""

    namespace: str
    pods: int = 0
    gpus: int = 0
    """Whole GPUs, those that NVIDIA's plugin chooses among them."""
    memory: int = 0
    """Shares of GPUs [GiB]."""
    replicas: int = 0
    nodes: set[str] = field(default_factory=set)


def fleet_of(ledgers: Iterable[NodeLedger], new: frozenset[str] = frozenset()) -> list[FleetNode]:
    """Return the nodes that have GPUs, in the order of the ledgers.

    Args:
        ledgers: Nodes.
        new: The uids of pods that were placed just now.
    """
    best = cache(Table.best_possible)
    return [_node(one, new, best) for one in ledgers if one.has_gpus]


def usage_of(ledgers: Iterable[NodeLedger]) -> list[Usage]:
    """Return what each namespace holds, the most GPUs first."""
    found: dict[str, Usage] = {}
    for ledger in ledgers:
        for holding in ledger.holdings.values():
            if holding.has_gpus:
                namespace = holding.pod.partition("/")[0]
                _add(found.setdefault(namespace, Usage(namespace)), holding, ledger.node)
    return sorted(found.values(), key=lambda one: (-one.gpus, -one.memory, one.namespace))


def _add(usage: Usage, holding: Holding, node: Node) -> None:
    usage.pods += 1
    usage.nodes.add(node.name)
    if node.mode is Mode.TIMESLICE or node.replicas or holding.counted == NVIDIA_GPU_SHARED:
        usage.replicas += len(holding.shares) + holding.nvidia
        return
    usage.memory += sum(share.mem or 0 for share in holding.shares)
    usage.gpus += sum(share.mem is None for share in holding.shares) + holding.nvidia


def _node(ledger: NodeLedger, new: frozenset[str], best: _Best) -> FleetNode:
    node = ledger.node
    states = "".join(_states(ledger, new))
    return FleetNode(
        node=node,
        pool=next((node.labels[key] for key in NODE_POOLS if key in node.labels), ""),
        model=(node.machine.model if node.machine else None) or node.labels.get(GFD_PRODUCT, ""),
        states=states,
        used=_used(states),
        free=states.count(FREE) + states.count("0"),
        links=_links(ledger, best),
        holders=tuple(_holders(ledger, new)),
        problems=tuple(_problems(ledger)),
    )


def _states(ledger: NodeLedger, new: frozenset[str]) -> Iterator[str]:
    fresh = {
        share.i for uid in new & ledger.holdings.keys() for share in ledger.holdings[uid].shares
    }
    # NVIDIA's plugin chooses which: the last ones are shown as taken.
    last = ledger.gpus_free
    for i, (card, taken) in enumerate(zip(ledger.node.cards, ledger.taken, strict=True)):
        if taken.whole:
            yield NEW if i in fresh else WHOLE
        elif not card.usable:
            yield CORDONED if card.healthy else UNHEALTHY
        elif ledger.unaccounted:
            yield UNKNOWN
        elif _is_counted(ledger):
            yield COUNTED if i >= last else FREE
        elif capacity := ledger.node.replicas or (
            (card.memory or 0) if ledger.node.mode.shares_memory else 0
        ):
            given = taken.holders if ledger.node.replicas else taken.memory
            yield str(min(9, -(-9 * given // capacity)))
        else:
            yield FREE


def _is_counted(ledger: NodeLedger) -> bool:
    return any(holding.nvidia for holding in ledger.holdings.values())


def _used(states: str) -> int:
    parts = {WHOLE: 1.0, NEW: 1.0, COUNTED: 1.0}
    given = sum(parts.get(one) or (int(one) / 9 if one.isdigit() else 0) for one in states)
    usable = sum(one not in {UNHEALTHY, CORDONED} for one in states)
    return min(100, max(1, round(100 * given / usable))) if usable and given else 0


def _links(ledger: NodeLedger, best: _Best) -> tuple[float, float] | None:
    node, mask = ledger.node, ledger.free_mask
    partly = 1 < mask.bit_count() < len(node.cards)
    if node.machine is None or not node.machine_known or not partly or _is_counted(ledger):
        return None
    if ledger.unaccounted:
        return None
    table = table_of(node.machine)
    return table.bandwidth(mask), best(table, len(gpus_of(mask)))


def _holders(ledger: NodeLedger, new: frozenset[str]) -> Iterator[Holder]:
    for uid, holding in sorted(ledger.holdings.items(), key=lambda one: one[1].pod):
        if holding.has_gpus:
            namespace, _, name = holding.pod.partition("/")
            gpus = tuple(sorted({share.i for share in holding.shares}))
            gang = holding.gang.partition("/")[2] if holding.gang else None
            yield Holder(namespace, name, gang, gpus, _amount(holding, ledger.node), uid in new)


def _amount(holding: Holding, node: Node) -> str:
    if holding.nvidia:
        return f"{holding.nvidia} by count"
    if node.replicas:
        number = len(holding.shares)
        return f"{number} replica{'s' * (number != 1)}"
    memory = sum(share.mem or 0 for share in holding.shares)
    core = sum(share.core or 0 for share in holding.shares)
    return f"{memory} GiB{f', {core} %' if core else ''}" if memory else ""


def _problems(ledger: NodeLedger) -> Iterator[str]:
    node = ledger.node
    if not node.ready:
        yield "not ready"
    if node.unschedulable:
        yield "unschedulable"
    if ledger.unaccounted:
        yield f"nobody knows what is taken: {ledger.unaccounted}"
    ill = sum(not card.usable for card in node.cards)
    if ill:
        yield f"{ill} GPU{'s' * (ill != 1)} unhealthy or cordoned"


def pieces_of(nodes: Iterable[FleetNode]) -> Mapping[int, int]:
    """Return how many nodes have so many GPUs free, by that number; those with none left out."""
    found: dict[int, int] = {}
    for node in nodes:
        if node.free:
            found[node.free] = found.get(node.free, 0) + 1
    return dict(sorted(found.items()))
