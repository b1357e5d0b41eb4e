"""What `linkwise simulate` answers to scripts: the stable document of `-o json` and `-o yaml`."""

from msgspec import Struct
from msgspec.structs import asdict, replace

from cli.analysis.simulation import PodResult, UnitResult, notes_of
from cli.analysis.simulation import Simulation as Simulated
from cli.render.document import Document
from cluster.node_ledger import NodeLedger
from cluster.whatif_api import NodeLeft
from manifest.workload import Unjudged
from scorer.placement.baselines import IndexOrder as Order
from scorer.placement.explain import PlanExplanation, explain_plan
from scorer.whatif.fit import left_on
from webhook.outcome import Verdict


class PodFinding(Struct, frozen=True, kw_only=True):
    """One problem of a pod."""

    code: str
    message: str
    fix: str


class PodPlace(Struct, frozen=True, kw_only=True):
    """What becomes of one pod."""

    name: str
    namespace: str
    gang: str | None
    verdict: Verdict
    node: str | None
    gpus: list[int] | None
    """Null where it goes nowhere, or NVIDIA's plugin chooses."""
    reason: str | None
    """Why it has no node."""
    bandwidth: float | None
    """Of a pod on its own, modelled [GB/s]; of a member, see its gang."""
    best_possible: float | None
    """The same on the empty cluster [GB/s]."""
    never: bool
    """It would not fit if nothing else ran."""
    notes: list[str]
    """Of a pod on its own: what is not known, or left to others."""
    findings: list[PodFinding]


class GPUsTaken(Struct, frozen=True, kw_only=True):
    """A set of GPUs of one node."""

    gpus: list[int]
    bandwidth: float | None
    """[GB/s]"""


class IndexOrder(Struct, frozen=True, kw_only=True):
    """What nodes by name and lowest free indices would have given."""

    nodes: list[str]
    gpus: dict[str, list[int]]
    bandwidth: float | None
    """[GB/s]"""


class GangPlace(Struct, frozen=True, kw_only=True):
    """What becomes of a gang."""

    name: str
    namespace: str
    size: int
    """Members with GPUs that are there."""
    placed: bool
    nodes: list[str] = []
    gpus: dict[str, list[int]] = {}
    bandwidth: float | None = None
    """Modelled all-reduce bandwidth [GB/s]."""
    best_possible: float | None
    """The same on the empty cluster [GB/s]."""
    index_order: IndexOrder
    reason: str | None
    """Why it is not placed."""
    never: bool
    """It would not fit if nothing else ran."""
    bandwidth_note: str | None = None
    exact: bool | None = None
    """False where bandwidths are upper bounds; null where it is not placed."""
    why: str | None = None
    """Why these nodes."""
    notes: list[str] = []
    """What is not known, or left to others."""
    runner_up: dict[str, GPUsTaken | None] = {}
    """The next set on each node; null where every other set is alike."""


class NodeFree(NodeLeft, frozen=True, kw_only=True):
    """What a node has free, before and after."""

    unaccounted: str | None
    """A pod that has GPUs of the node while nobody knows which."""


class Simulation(Document, frozen=True, kw_only=True):
    """Where pods go, or why they go nowhere."""

    pods: list[PodPlace]
    """In the order in which they were given."""
    gangs: list[GangPlace]
    """In the order in which they were decided."""
    nodes: list[NodeFree]
    unjudged: tuple[Unjudged, ...]
    """What may make pods, and was not judged: its kind is not known."""


def document(simulated: Simulated, unjudged: tuple[Unjudged, ...]) -> Simulation:
    """Return the answer for scripts."""
    return Simulation(
        pods=[_pod(pod) for pod in simulated.pods],
        gangs=[_gang(one) for one in simulated.gangs if one.is_gang],
        nodes=[
            _node(before, simulated.after.ledger.nodes[before.node.name])
            for before in simulated.before.nodes
        ],
        unjudged=unjudged,
    )


def _pod(result: PodResult) -> PodPlace:
    request = result.applicant.outcome.request
    alone = result.unit if result.unit and not result.unit.is_gang else None
    return PodPlace(
        name=result.applicant.pod.metadata.name,
        namespace=result.applicant.namespace,
        gang=result.gang,
        verdict=result.applicant.outcome.verdict,
        node=result.node,
        gpus=[share.i for share in result.shares] if request.places and result.node else None,
        reason=result.reason,
        bandwidth=rounded(alone.plan.bandwidth if alone and alone.plan else None),
        best_possible=rounded(alone.best_possible if alone else None),
        never=bool(result.unit and result.unit.never),
        notes=notes_of(alone) if alone else [],
        findings=[
            PodFinding(code=one.code.value, message=one.message, fix=one.fix)
            for one in result.applicant.outcome.findings
        ],
    )


def _gang(gang: UnitResult) -> GangPlace:
    shown = GangPlace(
        name=gang.name,
        namespace=gang.namespace,
        size=len(gang.members),
        placed=gang.plan is not None,
        best_possible=rounded(gang.best_possible),
        index_order=index_order(gang.index_order),
        reason=gang.reason,
        never=gang.never,
    )
    if gang.plan is None:
        return shown
    told = explain_plan(gang.seen, gang.plan)
    return replace(
        shown,
        nodes=list(gang.plan.gpus),
        gpus=lists(gang.plan.gpus),
        bandwidth=rounded(gang.plan.bandwidth),
        bandwidth_note="nic unknown" if gang.plan.nic_unknown else None,
        exact=gang.plan.exact,
        why=told.nodes,
        notes=notes_of(gang),
        runner_up=runner_up(told),
    )


def index_order(order: Order | None) -> IndexOrder:
    """Return what nodes by name and lowest free indices would have given."""
    gpus = lists(order.gpus) if order else {}
    bandwidth = rounded(order.bandwidth) if order else None
    return IndexOrder(nodes=list(gpus), gpus=gpus, bandwidth=bandwidth)


def lists(gpus: dict[str, tuple[int, ...]]) -> dict[str, list[int]]:
    """Return the GPUs of each node."""
    return {node: list(taken) for node, taken in gpus.items()}


def runner_up(told: PlanExplanation) -> dict[str, GPUsTaken | None]:
    """Return the next set on each node, by node; None where every other set is alike."""
    return {
        node: (
            GPUsTaken(gpus=list(one.runner_up.gpus), bandwidth=rounded(one.runner_up.bandwidth))
            if one.runner_up
            else None
        )
        for node, one in told.gpus.items()
    }


def _node(before: NodeLedger, after: NodeLedger) -> NodeFree:
    return NodeFree(**asdict(left_on(before, after)), unaccounted=before.unaccounted)


def rounded(bandwidth: float | None) -> float | None:
    """Return a bandwidth as answers show it, to 0.1 GB/s."""
    return None if bandwidth is None else round(bandwidth, 1)
