"""Explains a placed pod or gang: its records, compared with the plan that would be made now.

That plan is made for the cluster without the unit. Pure.
"""

from collections.abc import Iterable, Sequence
from dataclasses import replace

from linkwise.cluster.gang import GangKey
from linkwise.planning.gang.patches import unpinned
from linkwise.planning.gang.plan_record import RecordedBandwidths, recorded_bandwidths
from linkwise.planning.gang.pod_info import PodInfo
from linkwise.planning.gang.unit import link_of
from linkwise.planning.placement.bandwidth import UNDEFINED, Bandwidth
from linkwise.planning.placement.baselines import IndexOrder, best_possible, index_order
from linkwise.planning.placement.options import PlanOptions
from linkwise.planning.placement.placements import new_plan
from linkwise.planning.placement.pods.member import new_member
from linkwise.planning.placement.result import Placement, Plan, Refusal
from linkwise.planning.placement.schedule import plan
from linkwise.planning.placement.state.snapshot import Snapshot
from linkwise.views.analysis.planner_view import PlannerView
from linkwise.views.analysis.unit_explanation import (
    UnitExplanation,
    UnitState,
    pod_placement,
)


def explain_placed(
    view: PlannerView, kind: str, key: GangKey, pods: Sequence[PodInfo]
) -> UnitExplanation:
    """Explain a pod on its own or a gang, none of whose pods waits.

    Args:
        view: The cluster.
        kind: `pod` or `gang`.
        key: The unit's key.
        pods: Its pods, in rank order; at least one has an allocation record.
    """
    running = [(pod, record) for pod in pods if (record := pod.allocation) is not None]
    gang = f"{key.namespace}/{key.name}" if kind == "gang" else None
    placements = tuple(
        Placement(
            new_member(unpinned(view.pods[pod.key], record.node), pod.namespace, gang),
            record.node,
            record.gpus,
        )
        for pod, record in running
    )
    recorded = _recorded_bandwidths(view, key, {pod.uid for pod, _ in running})
    explanation = UnitExplanation(
        kind,
        key.namespace,
        key.name,
        UnitState.PLACED,
        tuple(map(pod_placement, pods)),
        bandwidth=recorded.planned if recorded else UNDEFINED,
        best_possible=recorded.best_possible if recorded else UNDEFINED,
    )
    if not all(placement.node in view.snapshot.ledger.nodes for placement in placements):
        return replace(explanation, changed="a node of it is gone")
    without = _without(view.snapshot.without_holdings(view.reserved.of(key)), placements)
    return _compared(explanation, without, placements, recorded)


def _recorded_bandwidths(
    view: PlannerView, key: GangKey, running: set[str]
) -> RecordedBandwidths | None:
    """Return the bandwidths in the Gang object, if its plan is that of the running pods (uids)."""
    gang = view.gang_object(key)
    recorded = gang.spec.plan if gang else None
    if recorded is None or {member.uid for member in recorded.members} != running:
        return None
    return recorded_bandwidths(recorded)


def _compared(
    explanation: UnitExplanation,
    before: Snapshot,
    placements: tuple[Placement, ...],
    recorded: RecordedBandwidths | None,
) -> UnitExplanation:
    """Add the engine's reasons and the plan that it would make now.

    Args:
        explanation: What the records say.
        before: The cluster without the unit.
        placements: Where the unit's pods are.
        recorded: The bandwidths in the Gang object.
    """
    members = [placement.member for placement in placements]
    link = link_of(members, is_gang=explanation.kind == "gang")
    current = plan(before, members, PlanOptions(link))
    shown, changed = new_plan(before, placements, exact=True), None
    if isinstance(current, Plan) and _nodes(current) == _nodes(shown):
        shown = replace(current, placements=placements)
    else:
        changed = _change_text(current)
    order = index_order(before, members)
    if recorded and recorded.index_order.value is not None:
        order = IndexOrder(order.gpus if order else {}, recorded.index_order)
    bandwidth = recorded.planned if recorded else shown.bandwidth
    if bandwidth.value is None:
        bandwidth = Bandwidth(sets_unknown=shown.bandwidth.sets_unknown)
    best = (
        recorded.best_possible
        if recorded
        else best_possible(before, members, shown.bandwidth, order)
    )
    return replace(
        explanation,
        plan=shown,
        snapshot=before,
        bandwidth=bandwidth,
        best_possible=best,
        index_order=order,
        changed=changed,
    )


def _nodes(planned: Plan) -> tuple[dict[str, tuple[int, ...]], dict[str, int]]:
    """Return the GPUs on each node, or their number."""
    return planned.gpus, planned.counts


def _change_text(current: Plan | Refusal) -> str:
    """Describe the decision that would be made now."""
    if isinstance(current, Refusal):
        return f"decided now, it would wait: {current.reason}"
    gpus = "; ".join(
        f"{node}: {' '.join(map(str, taken)) or f'{current.counts.get(node)} by count'}"
        for node, taken in current.gpus.items()
    )
    bandwidth, is_known = current.bandwidth, current.bandwidth.value is not None
    speed = f" at {bandwidth.value:.1f} GB/s{bandwidth.uncounted}" if is_known else ""
    return f"decided now, it would be {gpus}{speed}"


def _without(snapshot: Snapshot, placements: Iterable[Placement]) -> Snapshot:
    """Return the cluster without these pods."""
    ledger = snapshot.ledger
    for placement in placements:
        ledger = ledger.release(placement.member.pod.metadata.uid or placement.member.name)
    return replace(snapshot, ledger=ledger)
