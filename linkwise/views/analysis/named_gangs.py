"""Finds the gangs of a name, and explains those that have no pods. Pure."""

from typing import NamedTuple

from linkwise.cluster.gang import GangKey
from linkwise.planning.gang.crd import Gang, Phase, name_of
from linkwise.planning.gang.moved import moved_of
from linkwise.planning.gang.pod_info import PodInfo
from linkwise.runtime.process.clock import rfc3339
from linkwise.views.analysis.planner_view import PlannerView
from linkwise.views.analysis.unit_explanation import UnitExplanation, UnitState

ENDED = "it is finished and holds no GPUs"
"""The reason of a unit that has ended."""
_STATES_WITHOUT_PODS = {
    Phase.SUSPENDED: UnitState.SUSPENDED,
    Phase.FINISHED: UnitState.ENDED,
    Phase.GONE: UnitState.GONE,
}


class NamedGangs(NamedTuple):
    """The gangs of a name: several if a job was submitted again."""

    present: tuple[GangKey, ...]
    """Those that have pods."""
    empty: tuple[Gang, ...]
    """The objects of the others."""


def gangs_named(view: PlannerView, namespace: str, name: str) -> NamedGangs:
    """Return the gangs of a name.

    Args:
        view: The cluster.
        namespace: The gang's namespace.
        name: The gang's name in its pods, or the name of its Gang object.
    """
    keys = {
        view.owners.key(pod): None
        for pod in view.pod_infos
        if pod.gang is not None and pod.namespace == namespace
    }
    empty = (
        gang
        for gang in view.gangs.values()
        if gang.key not in keys
        and gang.metadata.namespace == namespace
        and name in {gang.spec.gang, gang.metadata.name}
    )
    present = (key for key in keys if name in {key.name, name_of(key)})
    return NamedGangs(tuple(present), tuple(empty))


def members_of(view: PlannerView, key: GangKey) -> list[PodInfo]:
    """Return the pods of a gang."""
    return [pod for pod in view.pod_infos if pod.gang is not None and view.owners.key(pod) == key]


def explain_empty_gang(gang: Gang) -> UnitExplanation:
    """Explain a gang that has a Gang object but no pods."""
    state = _STATES_WITHOUT_PODS.get(gang.status.phase or Phase.GONE)
    # A status of another phase was written before the pods were deleted.
    reason = gang.status.reason if state else ""
    reason = reason or (ENDED if state is UnitState.ENDED else "none of its pods is there")
    namespace, name = gang.metadata.namespace, gang.spec.gang
    state = state or UnitState.GONE
    evicted = evicted_text(gang)
    return UnitExplanation("gang", namespace, name, state, (), reason, evicted=evicted)


def evicted_text(gang: Gang | None) -> str:
    """Return when and why all members of a gang were evicted last; empty: never."""
    moved = moved_of(gang) if gang else None
    if moved is None:
        return ""
    why = moved.why or "a fault"
    return f"all its members were evicted at {rfc3339(moved.at)} because of {why}"
