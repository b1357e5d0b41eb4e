"""An earlier moment: its ledgers, nodes, and what a gang had, from the rows that are kept. Pure.

Rows have whole GPUs and their holders, so these are exact. Shares of GPUs are not restored, and the
links of a node are those that it has now.
"""

from collections.abc import Iterator, Mapping
from dataclasses import replace

from msgspec import Struct

from linkwise.cluster.account.node_ledger import Holding, NodeLedger
from linkwise.cluster.allocations.gpus import Counted, Exact, GPUShare
from linkwise.cluster.keys import GFD_PRODUCT, NODE_POOLS, NVIDIA_GPU
from linkwise.cluster.mode import NodeMode
from linkwise.cluster.nodes.node import Card, Node
from linkwise.cluster.nodes.node_reader import uniform_machine
from linkwise.dashboard.gang_changes import GangChange, Past, gang_changes
from linkwise.dashboard.moment import UnitRow
from linkwise.dashboard.node_view import DrawnNode, MarkedUnit, drawn_node, marks_of, node_drawing
from linkwise.dashboard.tree import Tree
from linkwise.dashboard.unit_view import NODES
from linkwise.views.analysis.fleet import CORDONED, UNHEALTHY, UNKNOWN
from linkwise.views.render.page.occupancy import Mark, letters
from linkwise.views.render.page.rows import HolderRow, NodeRow, colour_of


class EarlierPod(Struct, frozen=True):
    """A pod that had GPUs."""

    name: str
    node: str
    gpus: tuple[int, ...]
    amount: str


class EarlierNode(Struct, frozen=True):
    """A node at an earlier moment."""

    row: NodeRow
    drawing: Tree | None
    """With its present links; null for a node that offered no GPUs."""
    units: tuple[MarkedUnit, ...]
    """Those that had whole GPUs."""


class EarlierUnit(Struct, frozen=True):
    """A gang or a pod at an earlier moment."""

    kind: str
    namespace: str
    name: str
    colour: int
    waited: UnitRow | None
    """Null: it did not wait."""
    pods: tuple[EarlierPod, ...]
    """Those that had GPUs."""
    nodes: tuple[DrawnNode, ...]
    more: int
    """The number of nodes that are not drawn."""
    changes: tuple[GangChange, ...]
    """Of its GPUs until then; the oldest first."""


def earlier_ledgers(
    rows: Mapping[str, NodeRow], now: Mapping[str, NodeLedger]
) -> Iterator[NodeLedger]:
    """Yield the nodes as rows of an earlier moment have them.

    Args:
        rows: By name.
        now: The nodes of the present; the links of nodes that are gone are unknown.
    """
    for name, row in rows.items():
        ledger = now.get(name)
        yield _ledger(row, ledger.node if ledger else None)


def earlier_node(row: NodeRow, now: Mapping[str, NodeLedger]) -> EarlierNode:
    """Return a node as it was.

    Args:
        row: It on the map of that moment.
        now: The nodes of the present.
    """
    (ledger,) = earlier_ledgers({row.name: row}, now)
    marks, units = marks_of(ledger)
    return EarlierNode(row, node_drawing(ledger, marks), units)


def earlier_unit(
    past: Past, waited: UnitRow | None, now: Mapping[str, NodeLedger], key: tuple[str, str, str]
) -> EarlierUnit | None:
    """Return a gang or a pod as it was; None if it neither waited nor had GPUs.

    Args:
        past: The map of that moment, and the changes that led to it.
        waited: It among the units that waited then.
        now: The nodes of the present.
        key: Its kind, namespace and name.
    """
    kind, namespace, name = key
    unit = f"{namespace}/{name}"
    held = [
        (row.name, holder)
        for row in past.rows.values()
        for holder in row.holders
        if unit == (holder.gang if kind == "gang" else holder.pod)
    ]
    if not held and waited is None:
        return None
    held.sort(key=lambda each: each[1].pod)
    mark = Mark(letters(0), colour_of(unit))
    tags = {
        holder.pod: f"A{rank}" if kind == "gang" else "A" for rank, (_, holder) in enumerate(held)
    }
    nodes = list(dict.fromkeys(node for node, _ in held))
    ledgers = earlier_ledgers({node: past.rows[node] for node in nodes[:NODES]}, now)
    return EarlierUnit(
        kind,
        namespace,
        name,
        mark.colour,
        waited,
        tuple(_pod(node, holder) for node, holder in held),
        tuple(drawn_node(ledger, mark, tags) for ledger in ledgers),
        max(0, len(nodes) - NODES),
        gang_changes(past, unit) if kind == "gang" else (),
    )


def _pod(node: str, holder: HolderRow) -> EarlierPod:
    return EarlierPod(holder.pod.partition("/")[2], node, holder.gpus, holder.amount)


def _ledger(row: NodeRow, now: Node | None) -> NodeLedger:
    ledger = NodeLedger.empty(_node(row, now))
    if ledger.node.mode.shares_memory or ledger.node.replicas:
        return ledger
    for number, holder in enumerate(row.holders):
        gpus = (
            Counted(NVIDIA_GPU, holder.counted)
            if holder.counted
            else Exact(tuple(map(GPUShare, holder.gpus)))
        )
        ledger = ledger.hold(Holding(holder.pod, str(number), gpus, gang=holder.gang or None))
    unknown = "this was unknown" if UNKNOWN in row.states else None
    return replace(ledger, unaccounted=unknown)


def _node(row: NodeRow, now: Node | None) -> Node:
    """Return a node whose GPUs are usable, and which takes pods, as a row says."""
    n = len(row.states)
    if now is None or len(now.cards) != n or now.mode != row.mode:
        labels = {NODE_POOLS[0]: row.pool} if row.pool else {}
        now = Node(
            row.name,
            {**labels, GFD_PRODUCT: row.model} if row.model else labels,
            NodeMode(row.mode),
            machine=uniform_machine(n) if n else None,
            cards=(Card(),) * n,
            resources={NVIDIA_GPU: n},
        )
    cards = tuple(
        replace(card, healthy=state != UNHEALTHY, cordoned=state == CORDONED, claimed=False)
        for card, state in zip(now.cards, row.states, strict=True)
    )
    counted = sum(holder.counted for holder in row.holders)
    is_whole = now.is_counted and now.parts is None
    offered = {NVIDIA_GPU: row.free + counted} if is_whole else {}
    return replace(
        now,
        cards=cards,
        resources={**now.resources, **offered},
        ready=not row.closed,
        unschedulable=False,
        preparing=False,
        pool=replace(now.pool, missing=None) if now.pool else None,
    )
