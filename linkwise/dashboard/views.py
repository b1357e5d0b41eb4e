"""The views of the page as JSON: a node, pending units, a gang or pod, namespaces. Pure."""

from collections.abc import Iterable, Iterator, Mapping, Sequence

from msgspec import Struct

from linkwise.cluster.account.node_ledger import NodeLedger
from linkwise.cluster.allocations.gpus import Counted
from linkwise.cluster.objects.pod import Pod
from linkwise.cluster.whatif_api import Preempted
from linkwise.dashboard.gang_changes import GangChange, Past, gang_changes
from linkwise.dashboard.gang_history import GangEvent, gang_history
from linkwise.dashboard.moment import Moment, colour_of
from linkwise.dashboard.tree import Tree, tree_of
from linkwise.planning.gang.crd import Gang
from linkwise.topology.choice import ChoiceMode, ChoiceRequest, choose
from linkwise.topology.machine import gpus_of, mask_of
from linkwise.views.analysis.explain import explain_gang, explain_pod
from linkwise.views.analysis.fleet import NamespaceUsage, fleet_of
from linkwise.views.analysis.inspection import InspectedNode
from linkwise.views.analysis.unit_explanation import UnitExplanation, UnitState
from linkwise.views.output.document import rounded
from linkwise.views.output.printer import sentence
from linkwise.views.render import explain_json, inspect_json
from linkwise.views.render.explain_json import ExplainedUnit
from linkwise.views.render.inspect_json import NodeReport
from linkwise.views.render.page.drawing import drawing_of
from linkwise.views.render.page.occupancy import Mark, MarkedPods, letters, marked_node
from linkwise.views.render.page.unit_results import request_text
from linkwise.views.render.preempted_text import preempted_text

SIZES = (2, 4, 8)
"""Sizes of GPU sets whose bandwidth a node's view shows."""
NODES = 12
"""The number of nodes of a gang that are drawn."""
PREEMPTED = 5
"""The number of units that would be evicted for another one and are named."""


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


class WaitingUnit(Struct, frozen=True):
    """A pending unit."""

    kind: str
    namespace: str
    name: str
    asks: str
    pods: int
    since: str
    """RFC 3339; empty if unknown."""
    reason: str
    never: bool
    """It would not fit if nothing else ran."""
    reserved: int
    """The number of nodes that are reserved for it, since it is starving."""
    preempts: tuple[str, ...]
    """The units that would be evicted for it, in words."""
    help: str
    """What would help; empty if that is not known."""


class PlanView(Struct, frozen=True):
    """The plan in a Gang object, and the gang's state."""

    phase: str
    members: str
    created: str
    bandwidth: float | None
    best: float | None
    nodes: tuple[str, ...]
    events: tuple[GangEvent, ...]
    """The oldest first."""


class DrawnNode(Struct, frozen=True):
    """A node of a gang."""

    name: str
    drawing: Tree


class UnitView(Struct, frozen=True):
    """A gang or a pod."""

    unit: ExplainedUnit
    colour: int
    plan: PlanView | None
    """Null without a Gang object."""
    nodes: tuple[DrawnNode, ...]
    more: int
    """The number of nodes that are not drawn."""
    changes: tuple[GangChange, ...]
    """Of its GPUs, since the page is served; the oldest first."""
    preempts: tuple[str, ...]
    """The units that would be evicted for it, in words."""


class NamespaceRow(Struct, frozen=True):
    """The GPUs of one namespace."""

    namespace: str
    pods: int
    gpus: int
    memory: int
    """[GiB]"""
    replicas: int
    nodes: int
    hours: float
    """GPU-hours in the time that is kept."""


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


def waiting_view(moment: Moment) -> list[WaitingUnit]:
    """Return the pending units, in the order of planning."""
    return [
        WaitingUnit(
            kind="gang" if unit.is_gang else "pod",
            namespace=unit.namespace,
            name=unit.name,
            asks=" or ".join(dict.fromkeys(map(request_text, unit.requests))),
            pods=len(unit.requests),
            since=unit.since,
            reason=sentence(unit.reason),
            never=unit.never,
            reserved=unit.reserved_nodes,
            preempts=_preempts(unit.preempts),
            help=sentence(unit.help) if unit.help else "",
        )
        for unit in moment.pending
    ]


def _preempts(units: Sequence[Preempted]) -> tuple[str, ...]:
    """Return units in words; after the first few only their number."""
    texts, rest = map(preempted_text, units[:PREEMPTED]), len(units) - PREEMPTED
    return (*texts, *((f"{rest:,} more",) if rest > 0 else ()))


def unit_views(moment: Moment, past: Past, kind: str, namespace: str, name: str) -> list[UnitView]:
    """Return the gangs of a name, else a pod; several gangs if a job was submitted again."""
    planner = moment.planner
    explained = explain_gang(planner, namespace, name) if kind == "gang" else ()
    if not explained:
        pod = explain_pod(planner, namespace, name)
        explained = (pod,) if pod else ()
    gangs = {(gang.metadata.namespace, gang.spec.gang): gang for gang in planner.gangs.values()}
    return [_unit(moment, past, unit, gangs.get((unit.namespace, unit.name))) for unit in explained]


def _unit(moment: Moment, past: Past, unit: UnitExplanation, gang: Gang | None) -> UnitView:
    document = explain_json.document([unit]).items[0]
    name = f"{unit.namespace}/{unit.name}"
    mark = Mark(letters(0), colour_of(name))
    tags = {
        f"{unit.namespace}/{pod.name}": f"A{rank}" if unit.kind == "gang" else "A"
        for rank, pod in enumerate(unit.pods)
    }
    ledgers = _ledgers(moment, unit)
    known = moment.planner.pods
    pods = [known[key] for pod in unit.pods if (key := (unit.namespace, pod.name)) in known]
    held = [node for node in dict.fromkeys(pod.node for pod in unit.pods) if node in ledgers]
    drawn = [node for node in held if node][:NODES]
    return UnitView(
        document,
        mark.colour,
        _plan(gang, pods) if gang else None,
        tuple(
            drawn_node(ledgers[node], mark, tags) for node in drawn if ledgers[node].node.machine
        ),
        len(held) - len(drawn),
        gang_changes(past, name) if unit.kind == "gang" else (),
        _preempts(unit.preempts),
    )


def _ledgers(moment: Moment, unit: UnitExplanation) -> Mapping[str, NodeLedger]:
    """Return the nodes; for a unit that fits and is not placed yet, as they would be with it."""
    if unit.state is UnitState.FITS and unit.plan and unit.snapshot:
        return unit.plan.applied_to(unit.snapshot).ledger.nodes
    return moment.current.cluster.ledger.nodes


def drawn_node(ledger: NodeLedger, mark: Mark, tags: Mapping[str, str]) -> DrawnNode:
    """Return a drawing in which only the pods with a tag are marked."""
    marks = {
        uid: (mark, tags[holding.pod])
        for uid, holding in ledger.holdings.items()
        if holding.pod in tags and not isinstance(holding.gpus, Counted)
    }
    return DrawnNode(ledger.node.name, node_drawing(ledger, marks) or [])


def _plan(gang: Gang, pods: Sequence[Pod]) -> PlanView:
    plan, status = gang.spec.plan, gang.status
    return PlanView(
        phase=status.phase.value if status.phase else "",
        members=status.members,
        created=gang.metadata.creation_timestamp or "",
        bandwidth=rounded(plan.bandwidth) if plan else None,
        best=rounded(plan.best_possible) if plan else None,
        nodes=plan.nodes if plan else (),
        events=gang_history(gang, pods),
    )


def namespace_rows(
    usage: Iterable[NamespaceUsage], gpu_seconds: Mapping[str, float]
) -> list[NamespaceRow]:
    """Return the GPUs of namespaces that hold some, or held some before.

    Args:
        usage: What they hold.
        gpu_seconds: The GPU time of each namespace [s].
    """
    rows = [
        NamespaceRow(
            each.namespace,
            each.pods,
            each.gpus,
            each.memory,
            each.replicas,
            len(each.nodes),
            gpu_seconds.get(each.namespace, 0) / 3600,
        )
        for each in usage
    ]
    present = {row.namespace for row in rows}
    past = (
        NamespaceRow(namespace, 0, 0, 0, 0, 0, seconds / 3600)
        for namespace, seconds in sorted(gpu_seconds.items())
        if namespace not in present and seconds
    )
    return [*rows, *past]
