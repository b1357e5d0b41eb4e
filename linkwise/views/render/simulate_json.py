"""The document of `linkwise simulate` for scripts."""

from msgspec import UNSET, Struct, UnsetType
from msgspec.structs import asdict, replace

from linkwise.admission.decide.outcome import Verdict
from linkwise.cluster.account.node_ledger import NodeLedger
from linkwise.cluster.allocations.gpus import number_counted
from linkwise.cluster.whatif_api import NodeLeft, Preempted
from linkwise.manifest.workload import Unjudged
from linkwise.planning.placement.baselines import IndexOrder as Order
from linkwise.planning.placement.explain import PlanExplanation, explain_plan
from linkwise.planning.whatif.fit import left_on
from linkwise.views.analysis.simulation import PodResult, UnitResult
from linkwise.views.analysis.simulation import Simulation as Simulated
from linkwise.views.output.document import Document, rounded


class PodFinding(Struct, frozen=True, kw_only=True):
    """One problem of a pod."""

    code: str
    message: str
    fix: str


class PodPlace(Struct, frozen=True, kw_only=True):
    """The result for one pod."""

    name: str
    namespace: str
    gang: str | None
    verdict: Verdict
    node: str | None
    gpus: list[int] | None
    """Null for a pod without a node, and where NVIDIA's plugin chooses."""
    count: int | None = None
    """Number of GPUs where NVIDIA's plugin chooses."""
    reason: str | None
    """Why it has no node."""
    bandwidth: float | None
    """Of a pod on its own, modelled [GB/s]; of a member, see its gang."""
    best_possible: float | None
    """The same on the empty cluster [GB/s]."""
    never: bool
    """It would not fit if nothing else ran."""
    preempts: list[Preempted] | UnsetType = UNSET
    """Of a pod on its own: the units that would be evicted for it; unset where there are none."""
    notes: list[str]
    """Of a pod on its own: what the plan could not know, or leaves to others."""
    findings: list[PodFinding]


class GPUsTaken(Struct, frozen=True, kw_only=True):
    """A set of GPUs of one node."""

    gpus: list[int]
    bandwidth: float | None
    """[GB/s]"""


class IndexOrder(Struct, frozen=True, kw_only=True):
    """The baseline: nodes by name and lowest free indices."""

    nodes: list[str]
    gpus: dict[str, list[int]]
    bandwidth: float | None
    """[GB/s]"""


class GangPlace(Struct, frozen=True, kw_only=True):
    """The result for a gang."""

    name: str
    namespace: str
    size: int
    """The number of members with GPUs that are present."""
    placed: bool
    nodes: list[str] = []
    gpus: dict[str, list[int]] = {}
    """By node; empty where NVIDIA's plugin chooses."""
    counts: dict[str, int] = {}
    """By node: number of GPUs where NVIDIA's plugin chooses."""
    bandwidth: float | None = None
    """Modelled all-reduce bandwidth [GB/s]."""
    best_possible: float | None
    """The same on the empty cluster [GB/s]."""
    index_order: IndexOrder
    reason: str | None
    """Why it is not placed."""
    never: bool
    """It would not fit if nothing else ran."""
    preempts: list[Preempted] | UnsetType = UNSET
    """The units that would be evicted for it; unset where there are none."""
    bandwidth_note: str | None = None
    """`nic unknown`: the NICs do not count in the bandwidth. `GPUs unknown`: there is none,
    since NVIDIA's plugin chooses some of the GPUs."""
    best_possible_nodes: int | None = None
    """The number of nodes on the empty cluster."""
    exact: bool | None = None
    """False where bandwidths are upper bounds; null where it is not placed."""
    why: str | None = None
    """The reason for these nodes."""
    notes: list[str] = []
    """Facts that the plan could not know, and decisions left to others."""
    runner_up: dict[str, GPUsTaken | None] = {}
    """The second-best set of each node; null where every other set is equivalent."""


class NodeFree(NodeLeft, frozen=True, kw_only=True):
    """The free GPUs of a node, before and after."""

    unaccounted: str | None
    """A pod that has GPUs of the node, but it is not known which."""


class Simulation(Document, frozen=True, kw_only=True):
    """The results for pods, gangs and nodes."""

    pods: list[PodPlace]
    """In the order in which they were given."""
    gangs: list[GangPlace]
    """In the order in which they were decided."""
    nodes: list[NodeFree]
    unjudged: tuple[Unjudged, ...]
    """Objects that may create pods and were not judged, because their kind is not known."""


def document(simulated: Simulated, unjudged: tuple[Unjudged, ...]) -> Simulation:
    """Return the document of a simulation."""
    return Simulation(
        pods=[_pod(pod) for pod in simulated.pods],
        gangs=[_gang(unit) for unit in simulated.units if unit.is_gang],
        nodes=[
            _node(before, simulated.after.ledger.nodes[before.node.name])
            for before in simulated.before.nodes
        ],
        unjudged=unjudged,
    )


def _pod(result: PodResult) -> PodPlace:
    alone = result.unit if result.unit and not result.unit.is_gang else None
    return PodPlace(
        name=result.admitted.pod.metadata.name,
        namespace=result.admitted.namespace,
        gang=result.gang,
        verdict=result.admitted.outcome.verdict,
        node=result.node,
        gpus=[share.i for share in result.gpus.shares] or None,
        count=number_counted(result.gpus) or None,
        reason=result.reason,
        bandwidth=rounded(alone.plan.bandwidth.value if alone and alone.plan else None),
        best_possible=rounded(alone.best_possible.value if alone else None),
        never=bool(result.unit and result.unit.never),
        preempts=list(alone.preempts if alone else ()) or UNSET,
        notes=alone.notes if alone else [],
        findings=[
            PodFinding(code=finding.code.value, message=finding.message, fix=finding.fix)
            for finding in result.admitted.outcome.findings
        ],
    )


def _gang(gang: UnitResult) -> GangPlace:
    shown = GangPlace(
        name=gang.name,
        namespace=gang.namespace,
        size=len(gang.members),
        placed=gang.plan is not None,
        best_possible=rounded(gang.best_possible.value),
        best_possible_nodes=gang.best_possible.nodes,
        index_order=index_order(gang.index_order),
        reason=gang.reason,
        never=gang.never,
        preempts=list(gang.preempts) or UNSET,
    )
    if gang.plan is None:
        return shown
    explanation = explain_plan(gang.seen, gang.plan)
    return replace(
        shown,
        nodes=list(gang.plan.gpus),
        gpus=lists(gang.plan.gpus),
        counts=gang.plan.counts,
        bandwidth=rounded(gang.plan.bandwidth.value),
        bandwidth_note=gang.plan.bandwidth.note,
        exact=gang.plan.exact,
        why=explanation.nodes,
        notes=gang.notes,
        runner_up=runner_up(explanation),
    )


def index_order(order: Order | None) -> IndexOrder:
    """Return the baseline: nodes by name and lowest free indices."""
    gpus = lists(order.gpus) if order else {}
    bandwidth = rounded(order.bandwidth.value) if order else None
    return IndexOrder(nodes=list(gpus), gpus=gpus, bandwidth=bandwidth)


def lists(gpus: dict[str, tuple[int, ...]]) -> dict[str, list[int]]:
    """Return the GPUs of each node."""
    return {node: list(taken) for node, taken in gpus.items()}


def runner_up(explanation: PlanExplanation) -> dict[str, GPUsTaken | None]:
    """Return the second-best set of each node; None where every other set is equivalent."""
    return {
        node: (
            GPUsTaken(gpus=list(second.gpus), bandwidth=rounded(second.bandwidth))
            if (second := choice.runner_up)
            else None
        )
        for node, choice in explanation.gpus.items()
    }


def _node(before: NodeLedger, after: NodeLedger) -> NodeFree:
    return NodeFree(**asdict(left_on(before, after)), unaccounted=before.unaccounted)
