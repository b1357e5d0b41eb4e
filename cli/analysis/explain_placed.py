"""Why something that has its GPUs has these: its records, beside what would be decided now.

It is decided again on the cluster without it. Pure.
"""

from collections.abc import Iterable, Sequence
from dataclasses import replace

from cli.analysis.explained import Explained, UnitState, pod_placement, record_of
from cli.analysis.planner_view import PlannerView
from cluster.gang import GangKey
from scorer.commit.patches import unpinned
from scorer.gang.crd import GangPlan
from scorer.gang.pod_info import PodInfo
from scorer.gang.unit import link_of
from scorer.placement.baselines import IndexOrder, best_possible, index_order
from scorer.placement.member import new_member
from scorer.placement.node_assignment import bandwidth_over
from scorer.placement.pod_by_pod import assignments_of
from scorer.placement.result import Placement, Plan, Refusal
from scorer.placement.schedule import plan
from scorer.placement.snapshot import Snapshot


def explain_placed(
    scene: PlannerView, kind: str, key: GangKey, pods: Sequence[PodInfo]
) -> Explained:
    """Explain a pod on its own, or a gang, of which nobody waits.

    Args:
        scene: The cluster.
        kind: `pod` or `gang`.
        key: Its own.
        pods: Its pods, in rank order; one of them at least has a record.
    """
    running = [(one, record) for one in pods if (record := record_of(one)) is not None]
    gang = f"{key.namespace}/{key.name}" if kind == "gang" else None
    placements = tuple(
        Placement(
            new_member(unpinned(scene.pods[one.key], record.node), one.namespace, gang),
            record.node,
            record.gpus,
        )
        for one, record in running
    )
    told = _told(scene, key, {record.plan for _, record in running})
    known = Explained(
        kind,
        key.namespace,
        key.name,
        UnitState.PLACED,
        tuple(map(pod_placement, pods)),
        bandwidth=told.bandwidth if told else None,
        best_possible=told.best_possible if told else None,
    )
    if not all(one.node in scene.snapshot.ledger.nodes for one in placements):
        return replace(known, changed="a node of it is gone")
    return _judged(known, _without(scene.snapshot, placements), placements, told)


def _told(scene: PlannerView, key: GangKey, plans: set[str | None]) -> GangPlan | None:
    """Return the plan that stands in the Gang object, if it is the one that was carried out."""
    found = scene.gang_object(key)
    written = found.spec.plan if found else None
    return written if written and plans == {written.id} else None


def _judged(
    known: Explained, before: Snapshot, placements: tuple[Placement, ...], told: GangPlan | None
) -> Explained:
    """Add to what the records tell what the engine says of it now, on the cluster without it."""
    members = [one.member for one in placements]
    link = link_of(members, is_gang=known.kind == "gang")
    again = plan(before, members, link=link)
    bandwidth = bandwidth_over(assignments_of(before, placements), before.nic_bandwidth)
    shown, changed = Plan(placements, bandwidth=bandwidth), None
    if isinstance(again, Plan) and again.gpus == shown.gpus:
        shown = replace(again, placements=placements)
    else:
        changed = _instead(again)
    order = index_order(before, members)
    if told and told.index_order is not None:
        order = IndexOrder(order.gpus if order else {}, told.index_order)
    return replace(
        known,
        plan=shown,
        seen=before,
        bandwidth=known.bandwidth if told else shown.bandwidth,
        best_possible=known.best_possible if told else best_possible(before, members),
        index_order=order,
        changed=changed,
    )


def _instead(again: Plan | Refusal) -> str:
    """Say what would be decided now in place of what was."""
    if isinstance(again, Refusal):
        return f"decided now, it would wait: {again.reason}"
    gpus = "; ".join(f"{node}: {' '.join(map(str, taken))}" for node, taken in again.gpus.items())
    speed = f" at {again.bandwidth:.1f} GB/s" if again.bandwidth is not None else ""
    return f"decided now, it would be {gpus}{speed}"


def _without(snapshot: Snapshot, placements: Iterable[Placement]) -> Snapshot:
    """Return the cluster as if these pods were not there."""
    ledger = snapshot.ledger
    for one in placements:
        ledger = ledger.release(one.member.pod.metadata.uid or one.member.name)
    return replace(snapshot, ledger=ledger)
