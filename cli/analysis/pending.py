"""The pending units of a cluster, and why each waits. Pure."""

from collections.abc import Hashable
from dataclasses import dataclass

from cli.analysis.planner_view import Decision, PlannerView
from cluster.requests.request import Request
from scorer.placement.baselines import never_fits
from scorer.placement.result import Plan

FITS = "it fits now: the planner places it next"


@dataclass(frozen=True, slots=True)
class PendingUnit:
    """A gang, or a pod on its own, that has no GPUs yet."""

    namespace: str
    name: str
    is_gang: bool
    requests: tuple[Request, ...]
    """Of its pods that wait."""
    since: str
    """Creation time of the first of them; empty if unknown."""
    reason: str
    never: bool
    """It would not fit if nothing else ran."""
    reserved_nodes: int
    """The number of nodes that are reserved for it, since it is starving."""


def pending_units(view: PlannerView) -> list[PendingUnit]:
    """Return the pending units, in the order of the planner's cycle.

    Cost: a plan for each unit, and one more for each kind of unit that is refused.
    """
    never: dict[Hashable, bool] = {}
    decisions = {id(decision.unit): decision for decision in view.decisions.values()}
    return [_pending_unit(decision, view, never) for decision in decisions.values()]


def _pending_unit(
    decision: Decision, view: PlannerView, never: dict[Hashable, bool]
) -> PendingUnit:
    unit, outcome, before, reserved = decision
    never_placed = False
    if isinstance(outcome, Plan):
        gang = view.gang_object(unit.key)
        reason = (gang.status.reason if gang else "") or FITS
    else:
        reason = outcome.reason
        if unit.blocked is None:
            kind = unit.signature
            if kind not in never:
                never[kind] = never_fits(before, unit.members, unit.link)
            never_placed = never[kind]
    return PendingUnit(
        unit.key.namespace,
        unit.key.name,
        unit.is_gang,
        tuple(member.request for member in unit.members),
        unit.since,
        reason,
        never_placed,
        len(reserved),
    )
