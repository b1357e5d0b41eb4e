"""The view of one node as the page gets it: its drawing, holders and free sets. Pure."""

from collections.abc import Iterator, Mapping

from msgspec import Struct

from linkwise.cluster.account.node_ledger import NodeLedger
from linkwise.cluster.allocations.gpus import Counted
from linkwise.dashboard.moment import Moment
from linkwise.dashboard.tree import Tree, tree_of
from linkwise.topology.choice import ChoiceMode, ChoiceRequest, choose
from linkwise.topology.machine import gpus_of, mask_of
from linkwise.views.analysis.fleet import fleet_of
from linkwise.views.analysis.inspection import InspectedNode
from linkwise.views.output.printer import sentence
from linkwise.views.render import inspect_json
from linkwise.views.render.inspect_json import NodeReport
from linkwise.views.render.page.drawing import drawing_of
from linkwise.views.render.page.occupancy import Mark, MarkedPods, letters, marked_node
from linkwise.views.render.page.rows import colour_of

SIZES = (2, 4, 8)
"""Sizes of GPU sets whose bandwidth a node's view shows."""


class Worth(Struct, frozen=True):
    """What the free GPUs of a node are worth to a job of one size."""

    size: int
    gpus: tuple[int, ...]
    """The fastest free set."""
    bandwidth: float
    """[GB/s]"""
    best: float
    """Of the empty machine [GB/s]."""


class MarkedUnit(Struct, frozen=True):
    """A gang or a pod in a drawing."""

    letters: str
    colour: int
    kind: str
    """`gang` or `pod`."""
    name: str
    """`namespace/name`."""
    gpus: int


class NodeView(Struct, frozen=True):
    """One node."""

    report: NodeReport
    drawing: Tree | None
    """Null for a node that offers no GPUs."""
    links: str
    """The source of the links that are drawn."""
    units: tuple[MarkedUnit, ...]
    worth: tuple[Worth, ...]
    notes: tuple[str, ...]


class DrawnNode(Struct, frozen=True):
    """A node of a gang."""

    name: str
    drawing: Tree


def node_view(moment: Moment, name: str) -> NodeView | None:
    """Return the view of a node; None if there is no node with GPUs of this name."""
    inspected = moment.node(name)
    if inspected is None:
        return None
    marks, units = marks_of(inspected.ledger)
    (fleet,) = fleet_of((inspected.ledger,))
    return NodeView(
        inspect_json.document([inspected]).nodes[0],
        node_drawing(inspected.ledger, marks),
        f"The links of these GPUs are {inspected.node.machine_source.words}.",
        units,
        tuple(_worth(inspected)),
        tuple(map(sentence, (*fleet.problems, *fleet.notes, *inspected.node.warnings))),
    )


def marks_of(ledger: NodeLedger) -> tuple[MarkedPods, tuple[MarkedUnit, ...]]:
    """Return a mark for each pod of a node, and the gangs and pods that have them."""
    groups: dict[tuple[str, str], list[str]] = {}
    for uid, holding in sorted(ledger.holdings.items(), key=lambda item: item[1].pod):
        if holding.gpus:
            unit = ("gang", holding.gang) if holding.gang else ("pod", holding.pod)
            groups.setdefault(unit, []).append(uid)
    marks: dict[str, tuple[Mark, str]] = {}
    units: list[MarkedUnit] = []
    for number, ((kind, name), uids) in enumerate(groups.items()):
        mark = Mark(letters(number), colour_of(name))
        for member, uid in enumerate(uids):
            marks[uid] = mark, f"{mark.letters}{member}" if kind == "gang" else mark.letters
        gpus = sum(len(ledger.holdings[uid].gpus) for uid in uids)
        units.append(MarkedUnit(mark.letters, mark.colour, kind, name, gpus))
    return marks, tuple(units)


def node_drawing(ledger: NodeLedger, marks: MarkedPods) -> Tree | None:
    """Return a node with marked pods as a drawing; None if it offers no GPUs."""
    machine = ledger.node.machine
    if machine is None or not ledger.node.cards:
        return None
    return tree_of(drawing_of(marked_node(ledger, marks), machine))


def _worth(inspected: InspectedNode) -> Iterator[Worth]:
    """Yield the fastest free sets; none where links or free GPUs are unknown."""
    if not inspected.node.machine_known or inspected.node.mode.shares_memory:
        return
    table, free = inspected.table, mask_of(inspected.free)
    for size in SIZES:
        chosen = choose(table, ChoiceRequest(free, size, mode=ChoiceMode.FAST))
        if chosen is not None:
            bandwidth, best = table.bandwidth(chosen), table.best_possible(size)
            yield Worth(size, gpus_of(chosen), bandwidth, best)


def drawn_node(ledger: NodeLedger, mark: Mark, tags: Mapping[str, str]) -> DrawnNode:
    """Return a drawing in which only the pods with a tag are marked."""
    marks = {
        uid: (mark, tags[holding.pod])
        for uid, holding in ledger.holdings.items()
        if holding.pod in tags and not isinstance(holding.gpus, Counted)
    }
    return DrawnNode(ledger.node.name, node_drawing(ledger, marks) or [])
