"""The pending units of a cluster, and why each waits. Pure."""

from collections.abc import Hashable, Iterable, Iterator
from dataclasses import dataclass, replace

from linkwise.cluster.requests.request import Request
from linkwise.cluster.whatif_api import Preempted
from linkwise.planning.placement.baselines import never_fits
from linkwise.planning.placement.result import Plan
from linkwise.planning.whatif.preemption import Preemptions
from linkwise.views.analysis.planner_view import Decision, PlannerView
from linkwise.views.analysis.suggestions import suggested_change, suggestions

FITS = "it fits now: the planner places it next"
HELPED = 4
"""Pending units for which a change that would help is searched, the first ones that may fit."""
SEARCHES = 16
"""Pending units for which victims are searched, the first ones; each takes up to about 40 ms."""


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
    preempts: tuple[Preempted, ...] = ()
    """The units that would be evicted for it, beside those for the units before it."""
    help: str = ""
    """What would help, the first suggestion; empty: none was searched for, or found."""


def pending_units(view: PlannerView) -> list[PendingUnit]:
    """Return the pending units, in the order of the planner's cycle.

    Cost: a plan for each unit, one more for each kind of unit that is refused, `SEARCHES`
    searches for victims, and up to some dozens of plans for each of `HELPED` units.
    """
    never: dict[Hashable, bool] = {}
    running = view.running()
    preemptions = Preemptions(running, SEARCHES) if running else None
    decisions = {id(decision.unit): decision for decision in view.decisions.values()}
    units = [_pending_unit(decision, view, never, preemptions) for decision in decisions.values()]
    return list(_with_help(units, decisions.values()))


def _with_help(
    units: Iterable[PendingUnit], decisions: Iterable[Decision]
) -> Iterator[PendingUnit]:
    """Yield the units with what would help those that are refused."""
    left = HELPED
    for pending, decision in zip(units, decisions, strict=True):
        unit, outcome, before, _ = decision
        text = ""
        if pending.never:
            text = suggested_change(before, unit.least.members)
        elif not isinstance(outcome, Plan) and left:
            left -= 1
            text = next(suggestions(before, unit), "")
        yield replace(pending, help=text)


def _pending_unit(
    decision: Decision,
    view: PlannerView,
    never: dict[Hashable, bool],
    preemptions: Preemptions | None,
) -> PendingUnit:
    unit, outcome, before, reserved = decision
    never_placed, preempts = False, tuple[Preempted, ...]()
    if isinstance(outcome, Plan):
        gang = view.gang_object(unit.key)
        reason = (gang.status.reason if gang else "") or FITS
    else:
        reason = view.refusal(decision) or outcome.reason
        if unit.blocked is None:
            kind = unit.least.signature
            if kind not in never:
                never[kind] = never_fits(before, unit.least.members, unit.link)
            never_placed = never[kind]
        if preemptions and not never_placed:
            preempts = preemptions.find(before, unit.least)
    return PendingUnit(
        unit.key.namespace,
        unit.key.name,
        unit.is_gang,
        tuple(member.request for member in unit.members),
        unit.since,
        reason,
        never_placed,
        len(reserved),
        preempts,
    )
