"""What `explain` answers to scripts."""

from collections.abc import Iterable

from msgspec import Struct

from cli.analysis.explained import Explained, PodPlacement, UnitState
from cli.render.document import Document
from cli.render.simulate_json import GPUsTaken, IndexOrder, index_order, lists, rounded, runner_up
from scorer.placement.explain import explain_plan


class ExplainedPod(Struct, frozen=True, kw_only=True):
    """Where one pod is."""

    name: str
    node: str | None
    gpus: list[int]
    state: str


class ExplainedUnit(Struct, frozen=True, kw_only=True):
    """Why a pod or a gang is where it is, or why nowhere yet."""

    kind: str
    """`pod` or `gang`."""
    namespace: str
    name: str
    state: UnitState
    reason: str | None
    help: list[str]
    """What would let it be placed."""
    nodes: list[str]
    gpus: dict[str, list[int]]
    bandwidth: float | None
    """Modelled all-reduce bandwidth [GB/s]."""
    best_possible: float | None
    """The same on the empty cluster [GB/s]."""
    index_order: IndexOrder
    runner_up: dict[str, GPUsTaken | None]
    """The next set on each node; null where every other set is alike."""
    why: str | None
    """Why these nodes."""
    changed: str | None
    """What would be decided now, where that differs."""
    notes: list[str]
    pods: list[ExplainedPod]


class Explanation(Document, frozen=True, kw_only=True):
    """One item for a pod; of gangs several, where a job was submitted again."""

    items: list[ExplainedUnit]


def document(found: Iterable[Explained]) -> Explanation:
    """Return the answer for scripts."""
    return Explanation(items=[_unit(one) for one in found])


def _unit(one: Explained) -> ExplainedUnit:
    told = explain_plan(one.seen, one.plan) if one.plan and one.seen else None
    return ExplainedUnit(
        kind=one.kind,
        namespace=one.namespace,
        name=one.name,
        state=one.state,
        reason=one.reason,
        help=list(one.remedies),
        nodes=list(one.plan.gpus) if one.plan else [],
        gpus=lists(one.plan.gpus) if one.plan else {},
        bandwidth=rounded(one.bandwidth),
        best_possible=rounded(one.best_possible),
        index_order=index_order(one.index_order),
        runner_up=runner_up(told) if told else {},
        why=told.nodes if told and one.changed is None else None,
        changed=one.changed,
        notes=list(told.notes) if told else [],
        pods=[_pod(pod) for pod in one.pods],
    )


def _pod(pod: PodPlacement) -> ExplainedPod:
    return ExplainedPod(name=pod.name, node=pod.node, gpus=list(pod.gpus), state=pod.state)
