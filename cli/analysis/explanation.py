"""Why a pod or a gang is where it is, or why it is nowhere yet: the planner's own engine, asked.

What waits is explained by what the planner would decide of it, what has its GPUs by its records.
Pure.
"""

from cli.analysis.explain_placed import explain_placed
from cli.analysis.explained import Explained, UnitState, pod_placement, record_of
from cli.analysis.planner_view import PlannerView
from cli.analysis.suggestions import never_helped, suggestions
from cluster.gang import GangKey, Link, rank_order
from cluster.keys import ALLOCATION, GANG
from cluster.other_systems import gpus_of_others
from cluster.request import Family
from scorer.gang.crd import Gang, Phase, name_of
from scorer.gang.pod_info import PodInfo, pod_info
from scorer.placement.baselines import best_possible, index_order, never_fits
from scorer.placement.member import new_member
from scorer.placement.result import Plan, Refusal
from scorer.placement.schedule import plan
from scorer.queue.cycle import Decision

_WITHOUT_PODS = frozenset({Phase.SUSPENDED, Phase.GONE})
_ENDED = "it is finished and holds no GPUs"


def explain_gang(scene: PlannerView, namespace: str, name: str) -> tuple[Explained, ...]:
    """Explain the gangs of a name: several where a job was submitted again; none where none is.

    Args:
        scene: The cluster.
        namespace: Theirs.
        name: As their pods give it, or of the Gang object.
    """
    keys = {
        scene.owners.key(one): None
        for one in scene.seen
        if one.gang is not None and one.namespace == namespace
    }
    there = tuple(_gang(scene, key) for key in keys if name in {key.name, name_of(key)})
    gone = (gang for gang in scene.gangs.values() if gang.key not in keys)
    return there + tuple(
        _gone(gang)
        for gang in gone
        if gang.metadata.namespace == namespace and name in {gang.spec.gang, gang.metadata.name}
    )


def explain_pod(scene: PlannerView, namespace: str, name: str) -> Explained | None:
    """Explain a pod, with its gang where it has one; None where there is no such pod."""
    pod = scene.pods.get((namespace, name))
    if pod is None:
        return None
    one = pod_info(pod)
    if one.gang is not None:
        return _gang(scene, scene.owners.key(one))
    return _single(scene, one)


def _gang(scene: PlannerView, key: GangKey) -> Explained:
    found = [one for one in scene.seen if one.gang is not None and scene.owners.key(one) == key]
    for one in found:
        if decided := scene.decisions.get(one.key):
            return _waiting(scene, decided)
    found.sort(key=lambda one: (*rank_order(scene.pods[one.key]), one.name))
    if any(map(record_of, found)):
        return explain_placed(scene, "gang", key, found)
    left = next((one for one in found if one.usage is not None), None)
    state, reason = (
        (UnitState.WAITS, _why_alone(scene, left)) if left else (UnitState.ENDED, _ENDED)
    )
    return Explained(
        "gang", key.namespace, key.name, state, tuple(map(pod_placement, found)), reason
    )


def _gone(gang: Gang) -> Explained:
    """Explain a gang of which nothing but its Gang object is left."""
    is_suspended = gang.status.phase is Phase.SUSPENDED
    state = UnitState.SUSPENDED if is_suspended else UnitState.GONE
    reason = gang.status.reason if gang.status.phase in _WITHOUT_PODS else ""
    namespace, name = gang.metadata.namespace, gang.spec.gang
    return Explained("gang", namespace, name, state, (), reason or "none of its pods is there")


def _single(scene: PlannerView, one: PodInfo) -> Explained:
    if decided := scene.decisions.get(one.key):
        return _waiting(scene, decided)
    claimant = one.usage
    if claimant is not None and claimant.places and record_of(one) is not None:
        return explain_placed(scene, "pod", scene.owners.key(one), [one])
    outcome: Plan | Refusal | None = None
    change: str | None = None
    spec = scene.pods[one.key].spec
    others = gpus_of_others(spec, claimant.family) if claimant is not None else None
    if claimant is not None and claimant.family is not None and not claimant.node and not others:
        alone = [new_member(scene.pods[one.key], one.namespace)]
        outcome = plan(scene.snapshot, alone)
        if isinstance(outcome, Refusal) and never_fits(scene.snapshot, alone, Link.BEST):
            change = never_helped(scene.snapshot, alone)
    if claimant is None:
        state, reason = UnitState.ENDED, _ENDED
    elif isinstance(outcome, Refusal):
        state, reason = UnitState.NEVER if change else UnitState.WAITS, outcome.reason
    else:
        state = UnitState.ALONE
        reason = f"it asks for {others}: Linkwise does not place it" if others else ""
        reason = reason or _why_alone(scene, one)
    placed = outcome if isinstance(outcome, Plan) else None
    return Explained(
        "pod",
        one.namespace,
        one.name,
        state,
        (pod_placement(one),),
        reason,
        plan=placed,
        remedies=(change,) if change else (),
    )


def _waiting(scene: PlannerView, decided: Decision) -> Explained:
    unit, outcome, before = decided
    placed = outcome if isinstance(outcome, Plan) else None
    planned = {one.member.name: one for one in placed.placements} if placed else {}
    told = scene.gang_object(unit.key)
    refusal = None if isinstance(outcome, Plan) else outcome.reason
    never = refusal and not unit.blocked and never_fits(before, unit.members, unit.link)
    unplaced = UnitState.NEVER if never else UnitState.WAITS
    return Explained(
        kind="gang" if unit.is_gang else "pod",
        namespace=unit.key.namespace,
        name=unit.key.name,
        state=unplaced if placed is None else UnitState.FITS,
        pods=tuple(
            pod_placement(one, planned.get(f"{one.namespace}/{one.name}"))
            for one in (*unit.settled, *unit.waiting)
        ),
        reason=refusal or (told.status.reason if told else None) or None,
        plan=placed,
        seen=before,
        bandwidth=placed.bandwidth if placed else None,
        best_possible=None if unit.blocked else best_possible(before, unit.members),
        index_order=index_order(before, unit.members),
        remedies=tuple(suggestions(before, unit)) if placed is None else (),
    )


def _why_alone(scene: PlannerView, one: PodInfo) -> str:
    """Say why Linkwise has no part in where a pod is."""
    claimant = one.usage
    if claimant is None or claimant.family is None:
        return "it asks for no GPU; kube-scheduler chooses its node"
    if claimant.family is Family.NVIDIA:
        return "kube-scheduler chooses its node by count, and NVIDIA's plugin its GPUs"
    if not claimant.node:
        return f"it has no scheduling gate {GANG}: Linkwise was not asked when it was created"
    ledger = scene.snapshot.ledger.nodes.get(claimant.node)
    doubt = ledger.unaccounted if ledger else None
    return doubt or f"it has GPUs of {claimant.node}, but no {ALLOCATION}"
