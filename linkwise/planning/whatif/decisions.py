"""Decide one unit as the planner would in its next cycles, if nothing else came or ended. Pure."""

from collections.abc import Hashable, Sequence
from dataclasses import replace

from linkwise.cluster.allocations.record import Allocation
from linkwise.planning.cycle.cycle import Reservation
from linkwise.planning.gang.plan_record import siblings_of
from linkwise.planning.gang.unit import Unit
from linkwise.planning.placement.options import PlanOptions
from linkwise.planning.placement.placements import new_plan
from linkwise.planning.placement.result import Placement, Plan, Refusal
from linkwise.planning.placement.siblings import plan_with_siblings
from linkwise.planning.placement.state.snapshot import Snapshot

Outcome = tuple[Unit, Plan | Refusal]
"""A unit, or a part of it, and whether it is placed."""


class Decisions:
    """Decides units one after another; equal pods that fit nowhere are planned once."""

    def __init__(self, reserved: Reservation | None) -> None:
        """Start without refusals.

        Args:
            reserved: Nodes that are reserved for a waiting unit; None: there are none.
        """
        self._reserved = reserved
        self._refused: dict[Hashable, Refusal] = {}

    def forget(self) -> None:
        """Plan every unit again, since the cluster has changed."""
        self._refused.clear()

    def decide(self, snapshot: Snapshot, unit: Unit) -> list[Outcome]:
        """Return the outcome of a unit: of all its members, or of those that start and of the rest.

        Where not all fit, those start that it needs, then as many more as fit, one by one.

        Cost: one or two plans; for an elastic gang that starts with a part, one for each member.
        """
        outcome, least = self._plan(snapshot, unit), unit.least
        if isinstance(outcome, Plan) or unit.blocked or least is unit:
            return [(unit, outcome)]
        started = self._plan(snapshot, least)
        if isinstance(started, Refusal):
            return [(unit, started)]
        after, placements = started.applied_to(snapshot), list(started.placements)
        refused: Refusal | None = None
        for count in range(len(placements), len(unit.members)):
            more = self._plan(after, _after(unit, count).first(1), placements)
            if isinstance(more, Refusal):
                refused = more
                break
            after, placements = more.applied_to(after), [*placements, *more.placements]
        count = len(placements)
        if count > len(least.members):
            started = new_plan(snapshot, placements, exact=False)
        if refused is None:
            return [(unit, started)]
        start = f"{count} of its {len(unit.members)} pods start now"
        reason = f"{start}; the next one waits: {refused.reason}"
        return [(unit.first(count), started), (_after(unit, count), Refusal(reason))]

    def _plan(
        self, snapshot: Snapshot, unit: Unit, started: Sequence[Placement] = ()
    ) -> Plan | Refusal:
        """Plan all members of a unit, beside those that have just been started."""
        if unit.blocked is not None:
            return Refusal(unit.blocked)
        reserved = self._reserved
        is_closed = reserved is not None and _waits_after(unit, reserved.priority)
        options = PlanOptions(unit.link, reserved.nodes if reserved and is_closed else frozenset())
        first = unit.members[0]
        key = None if unit.is_gang else (is_closed, unit.link, first.signature, first.neighbor)
        siblings = [*siblings_of(unit.settled), *(Allocation(p.node, p.gpus) for p in started)]
        known = self._refused.get(key)
        outcome = known or plan_with_siblings(snapshot, unit.members, siblings, options)
        if key and isinstance(outcome, Refusal):
            self._refused[key] = outcome
        return outcome


def _after(unit: Unit, count: int) -> Unit:
    """Return the waiting members of a gang after so many, one of which can be added at a time."""
    return replace(unit, waiting=unit.waiting[count:], members=unit.members[count:], needed=1)


def _waits_after(unit: Unit, priority: int) -> bool:
    """Return whether our planner places a unit, and only after a waiting one of this priority."""
    first = unit.members[0]
    return first.request.places and first.pod.spec.is_gated and unit.priority <= priority
