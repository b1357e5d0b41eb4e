"""The document of `linkwise explain` for scripts."""

from collections.abc import Iterable

from msgspec import UNSET, Struct, UnsetType

from linkwise.cluster.allocations.gpus import number_counted
from linkwise.cluster.whatif_api import Preempted
from linkwise.planning.placement.explain import explain_plan
from linkwise.views.analysis.unit_explanation import PodPlacement, UnitExplanation, UnitState
from linkwise.views.output.document import Document, rounded
from linkwise.views.render.simulate_json import GPUsTaken, IndexOrder, index_order, lists, runner_up


class ExplainedPod(Struct, frozen=True, kw_only=True):
    """Place of one pod."""

    name: str
    node: str | None
    gpus: list[int]
    count: int | None = None
    """Number of GPUs where NVIDIA's plugin chooses them."""
    state: str


class ReservedGPUs(Struct, frozen=True, kw_only=True):
    """Reserved GPUs of one node."""

    node: str
    gpus: list[int]
    """Empty where NVIDIA's plugin chooses."""
    count: int | None = None
    """Number of GPUs where NVIDIA's plugin chooses them."""


class ExplainedUnit(Struct, frozen=True, kw_only=True):
    """The placement of a pod or a gang, or why it waits."""

    kind: str
    """`pod` or `gang`."""
    namespace: str
    name: str
    state: UnitState
    reason: str | None
    membership: str | None
    """Why its pods are a gang, if nothing in their manifest marks them."""
    reserved: list[ReservedGPUs]
    """GPUs that are reserved for members that it lacks, by node."""
    unhealthy: str | None
    """Its unhealthy GPUs, and the pods that have them."""
    help: list[str]
    """Changes that would let it be placed."""
    preempts: list[Preempted] | UnsetType = UNSET
    """The units that would be evicted for it; unset where there are none."""
    preempts_others: int | UnsetType = UNSET
    """The number of such units of other namespaces that may not be named; unset: none."""
    nodes: list[str]
    gpus: dict[str, list[int]]
    bandwidth: float | None
    """Modelled all-reduce bandwidth [GB/s]."""
    bandwidth_note: str | None
    """`nic unknown`: the NICs do not count in the bandwidth. `GPUs unknown`: there is none,
    since NVIDIA's plugin chooses some of the GPUs."""
    best_possible: float | None
    """The same on the empty cluster [GB/s]."""
    best_possible_nodes: int | None
    """The number of nodes there."""
    index_order: IndexOrder
    runner_up: dict[str, GPUsTaken | None]
    """The second-best set of each node; null where every other set is equivalent."""
    why: str | None
    """The reason for these nodes."""
    changed: str | None
    """The plan that would be made now, if it differs."""
    notes: list[str]
    pods: list[ExplainedPod]


class Explanation(Document, frozen=True, kw_only=True):
    """One item for a pod or gang; several for gangs of one name, if a job was submitted again."""

    items: list[ExplainedUnit]


def document(units: Iterable[UnitExplanation]) -> Explanation:
    """Return the document of explanations."""
    return Explanation(items=[_unit(unit) for unit in units])


def _notes(unit: UnitExplanation) -> list[str]:
    unplanned = [f"it has {unit.unplanned}"] if unit.unplanned else []
    return [*unplanned, *filter(None, (unit.unprepared, unit.evicted))]


def _unit(unit: UnitExplanation) -> ExplainedUnit:
    explanation = explain_plan(unit.snapshot, unit.plan) if unit.plan and unit.snapshot else None
    return ExplainedUnit(
        kind=unit.kind,
        namespace=unit.namespace,
        name=unit.name,
        state=unit.state,
        reason=unit.reason,
        membership=unit.membership,
        reserved=[
            ReservedGPUs(node=each.node, gpus=list(each.indices), count=each.count or None)
            for each in unit.reserved
        ],
        unhealthy=unit.unhealthy or None,
        help=list(unit.suggestions),
        preempts=list(unit.preempts) or UNSET,
        preempts_others=unit.preempts_others or UNSET,
        nodes=list(unit.plan.gpus) if unit.plan else [],
        gpus=lists(unit.plan.gpus) if unit.plan else {},
        bandwidth=rounded(unit.bandwidth.value),
        bandwidth_note=unit.bandwidth.note,
        best_possible=rounded(unit.best_possible.value),
        best_possible_nodes=unit.best_possible.nodes,
        index_order=index_order(unit.index_order),
        runner_up=runner_up(explanation) if explanation else {},
        why=explanation.nodes if explanation and unit.changed is None else None,
        changed=unit.changed,
        notes=[*_notes(unit), *(explanation.notes if explanation else ())],
        pods=[_pod(pod) for pod in unit.pods],
    )


def _pod(pod: PodPlacement) -> ExplainedPod:
    return ExplainedPod(
        name=pod.name,
        node=pod.node,
        gpus=list(pod.gpus.indices),
        count=number_counted(pod.gpus) or None,
        state=pod.state,
    )
