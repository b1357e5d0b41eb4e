"""Explains a pod or a gang to someone who may read its namespace alone. Pure.

Nodes and other pods are not known here: the reasons are those that the scorer has written into the
Gang and its Events, and what would be evicted is the answer of its dry-run API.
"""

from collections.abc import Callable, Sequence
from dataclasses import replace

from linkwise.cluster.finding import printable
from linkwise.cluster.gang import GangKey
from linkwise.cluster.requests.other_systems import gpus_of_others
from linkwise.cluster.whatif_api import FitResult
from linkwise.planning.gang.crd import (
    GPUS_AS_PLANNED,
    GPUS_HEALTHY,
    PREPARED,
    Gang,
    GangStatus,
    Phase,
)
from linkwise.planning.gang.plan_record import recorded_bandwidths
from linkwise.planning.gang.pod_info import PodInfo
from linkwise.planning.placement.baselines import IndexOrder
from linkwise.views.analysis.explain import reason_unplaced, unbound_reason
from linkwise.views.analysis.named_gangs import (
    ENDED,
    evicted_text,
    explain_empty_gang,
    gangs_named,
    members_of,
)
from linkwise.views.analysis.planner_view import PlannerView
from linkwise.views.analysis.suggestions import never_fits_because
from linkwise.views.analysis.unit_explanation import UnitExplanation, UnitState, pod_placement
from linkwise.workloads.rank import rank_order

Said = Callable[[str], str]
"""Returns what the last Event of Linkwise says about a pod, by its uid; empty: nothing."""

NOT_SAID = (
    "Linkwise has not said why: ask whether linkwise-scorer is ready, and look at `kubectl "
    "describe` of the pod"
)
_STATES = {
    Phase.ASSEMBLING: UnitState.WAITS,
    Phase.WAITING: UnitState.WAITS,
    Phase.COMMITTING: UnitState.FITS,
    Phase.PLACED: UnitState.PLACED,
    Phase.FINISHED: UnitState.ENDED,
}
_COMMITTING = "its GPUs are reserved, and its pods are released to kube-scheduler"


def explain_own_gang(view: PlannerView, namespace: str, name: str) -> tuple[UnitExplanation, ...]:
    """Explain the gangs of a name: several if a job was submitted again, none if there is none.

    Args:
        view: Of one namespace: its pods and Gangs, without nodes.
        namespace: The gang's namespace.
        name: The gang's name in its pods, or the name of its Gang object.
    """
    named = gangs_named(view, namespace, name)
    explained = [(_gang(view, key), key) for key in named.present]
    shown = {gang.metadata.name for gang, _ in explained if gang}
    empty = (gang for gang in named.empty if gang.metadata.name not in shown)
    present = (_explain_gang(view, key, gang) for gang, key in explained)
    return (*present, *map(explain_empty_gang, empty))


def explain_own_pod(
    view: PlannerView, namespace: str, name: str, said: Said
) -> UnitExplanation | None:
    """Explain a pod, together with its gang if it has one; None where there is no such pod.

    Args:
        view: Of one namespace: its pods and Gangs, without nodes.
        namespace: The pod's namespace.
        name: The pod's name.
        said: The Events.
    """
    info = next((info for info in view.pod_infos if info.key == (namespace, name)), None)
    if info is None:
        return None
    if info.gang is not None:
        key = view.owners.key(info)
        return _explain_gang(view, key, _gang(view, key))
    state, reason = _state_of_single(view, info, said)
    lacking = (name,) if state is UnitState.WAITS else ()
    pods = (pod_placement(info),)
    return UnitExplanation("pod", namespace, name, state, pods, reason, lacking=lacking)


def with_placement(unit: UnitExplanation, fit: FitResult) -> UnitExplanation:
    """Return a unit that waits, with what a simulation of its pods says; its reason stays."""
    if fit.fits:
        return unit
    return replace(
        unit,
        state=UnitState.NEVER if fit.never else unit.state,
        suggestions=(never_fits_because(),) if fit.never else (),
        preempts=tuple(fit.preempts or ()),
        preempts_others=fit.preempts_others or 0,
    )


def _gang(view: PlannerView, key: GangKey) -> Gang | None:
    """Return the object of a gang; by name where the owner of its pods may not be read."""
    if exact := view.gang_object(key):
        return exact
    same = [
        gang
        for gang in view.gangs.values()
        if (gang.key.namespace, gang.key.name) == (key.namespace, key.name)
    ]
    return same[0] if len(same) == 1 else None


def _explain_gang(view: PlannerView, key: GangKey, gang: Gang | None) -> UnitExplanation:
    members = members_of(view, key)
    members.sort(key=lambda pod: (*rank_order(view.pods[pod.key]), pod.name))
    status = gang.status if gang else GangStatus()
    state = _state_of_gang(members, status)
    explanation = UnitExplanation(
        "gang",
        key.namespace,
        key.name,
        state,
        tuple(map(pod_placement, members)),
        _reason(members, status, state),
        reserved=status.reserved,
        unhealthy=printable(status.problem(GPUS_HEALTHY) or ""),
        unplanned=printable(status.problem(GPUS_AS_PLANNED) or ""),
        unprepared=printable(status.problem(PREPARED) or ""),
        evicted=evicted_text(gang),
        lacking=_lacking(members, gang),
    )
    plan = gang.spec.plan if gang and state is UnitState.PLACED else None
    if plan is None:
        return explanation
    recorded = recorded_bandwidths(plan)
    return replace(
        explanation,
        bandwidth=recorded.planned,
        best_possible=recorded.best_possible,
        index_order=IndexOrder({}, recorded.index_order)
        if recorded.index_order.value is not None
        else None,
    )


def _lacking(members: Sequence[PodInfo], gang: Gang | None) -> tuple[str, ...]:
    """Return the members without which a gang does not start.

    While some are missing, those that are there would be taken for all; while others are evicted
    for it, a simulation would name more of them.
    """
    if gang is None or gang.status.phase is not Phase.WAITING or gang.status.nominated_nodes:
        return ()
    waiting = [pod.name for pod in members if pod.waiting is not None]
    if gang.spec.size is None:
        return tuple(waiting)
    settled = sum(pod.settled for pod in members)
    return tuple(waiting[: max(gang.spec.size - settled, 1)])


def _state_of_gang(members: Sequence[PodInfo], status: GangStatus) -> UnitState:
    if all(pod.usage is None for pod in members):
        return UnitState.ENDED
    # Pods may be newer than what is written about them.
    return _STATES.get(status.phase or Phase.GONE, UnitState.WAITS)


def _reason(members: Sequence[PodInfo], status: GangStatus, state: UnitState) -> str | None:
    if state is UnitState.ENDED:
        return ENDED
    said = unbound_reason(members) or printable(status.reason)
    if said or state is UnitState.PLACED:
        return said or None
    return _COMMITTING if state is UnitState.FITS else NOT_SAID


def _state_of_single(view: PlannerView, pod: PodInfo, said: Said) -> tuple[UnitState, str | None]:
    usage = pod.usage
    if usage is None:
        return UnitState.ENDED, ENDED
    if usage.places and pod.allocation:
        return UnitState.PLACED, unbound_reason([pod])
    if pod.waiting is not None:
        return UnitState.WAITS, pod.unplannable or printable(said(pod.uid)) or NOT_SAID
    if others := gpus_of_others(view.pods[pod.key].spec, usage.family):
        return UnitState.ALONE, f"it asks for {others}: Linkwise does not place it"
    return UnitState.ALONE, reason_unplaced(view, pod)
