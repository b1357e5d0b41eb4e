"""The pending units, and the view of one gang or pod, as the page gets them. Pure."""

from collections.abc import Mapping, Sequence

from msgspec import Struct

from linkwise.cluster.account.node_ledger import NodeLedger
from linkwise.cluster.objects.pod import Pod
from linkwise.cluster.whatif_api import Preempted
from linkwise.dashboard.gang_changes import GangChange, Past, gang_changes
from linkwise.dashboard.gang_history import GangEvent, gang_history
from linkwise.dashboard.moment import Moment
from linkwise.dashboard.node_view import DrawnNode, drawn_node
from linkwise.planning.gang.crd import Gang
from linkwise.views.analysis.explain import explain_gang, explain_pod
from linkwise.views.analysis.unit_explanation import UnitExplanation, UnitState
from linkwise.views.output.document import rounded
from linkwise.views.output.printer import sentence
from linkwise.views.render import explain_json
from linkwise.views.render.explain_json import ExplainedUnit
from linkwise.views.render.page.occupancy import Mark, letters
from linkwise.views.render.page.rows import colour_of
from linkwise.views.render.page.unit_results import request_text
from linkwise.views.render.preempted_text import preempted_text

NODES = 12
"""The number of nodes of a gang that are drawn."""
PREEMPTED = 5
"""The number of units that would be evicted for another one and are named."""


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
