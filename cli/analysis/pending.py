"""What of a cluster waits for GPUs, and why. Pure."""

from collections.abc import Hashable
from dataclasses import dataclass

from cli.analysis.planner_view import PlannerView
from cluster.request import Request
from scorer.placement.baselines import never_fits
from scorer.placement.result import Plan
from scorer.queue.cycle import Decision

FITS = "it fits now: the planner places it next"


@dataclass(frozen=True, slots=True)
class PendingWork:
    """A gang, or a pod on its own, without its GPUs."""

    namespace: str
    name: str
    is_gang: bool
    requests: tuple[Request, ...]
    """Of those of its pods that wait."""
    since: str
    """When the first of them was created; empty where nothing tells."""
    reason: str
    never: bool
    """It would not fit if nothing else ran."""


def pending_work(scene: PlannerView) -> list[PendingWork]:
    """Return everything that waits, in the order in which it is planned.

    Cost: a plan for each unit, and one more for each kind that is refused.
    """
    never: dict[Hashable, bool] = {}
    units = {id(one.unit): one for one in scene.decisions.values()}
    return [_waiting(one, scene, never) for one in units.values()]


def _waiting(decided: Decision, scene: PlannerView, never: dict[Hashable, bool]) -> PendingWork:
    unit, outcome, before = decided
    gang = scene.gang_object(unit.key)
    if isinstance(outcome, Plan):
        reason = (gang.status.reason if gang else "") or FITS
    else:
        reason = outcome.reason
    lost = False
    if not isinstance(outcome, Plan) and unit.blocked is None:
        kind = unit.link, tuple(member.signature for member in unit.members)
        if kind not in never:
            never[kind] = never_fits(before, unit.members, unit.link)
        lost = never[kind]
    requests = tuple(member.request for member in unit.members)
    return PendingWork(
        unit.key.namespace, unit.key.name, unit.is_gang, requests, unit.since, reason, lost
    )
