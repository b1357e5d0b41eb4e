"""Completes the plans of units, and queues their commits."""

from contextlib import suppress

import structlog

from linkwise.planning.gang.crd_plan import GangPlan
from linkwise.planning.gang.plan_record import (
    plan_id_of,
    plan_of,
    recorded_bandwidths,
    remaining_placements,
    reserved_plan,
    with_baselines,
)
from linkwise.planning.gang.unit import Unit
from linkwise.planning.gang.whole_plan import all_members, whole_plan, without_siblings
from linkwise.planning.placement.bandwidth import UNDEFINED
from linkwise.planning.placement.baselines import best_possible, index_order
from linkwise.planning.placement.result import Plan
from linkwise.planning.placement.state.node_cache import DeadlineExceeded
from linkwise.planning.placement.state.snapshot import Snapshot
from scorer.commit.handle import Handle
from scorer.commit.write.queue import CommitQueue

_log = structlog.get_logger()


class AcceptedPlans:
    """The plans of one term of the Lease, on their way to the commit queue."""

    def __init__(self, handle: Handle, commit_queue: CommitQueue) -> None:
        """Start without plans."""
        self._informers, self._state = handle.informers, handle.informers.state
        self._term, self._commit_queue = handle.term, commit_queue
        self._plans = 0

    def accept(self, unit: Unit, plan: Plan, ready_since: float) -> None:
        """Queue the commit of a new plan.

        Args:
            unit: The unit.
            plan: Of its members that wait.
            ready_since: Since when all of it could be planned [s, of the loop's clock].
        """
        self._plans += 1
        recorded = plan_of(plan, f"{self._term}-{self._plans}")
        if unit.is_gang:
            before = self._informers.recorded_plan(unit.key)
            recorded = whole_plan(recorded, unit, self._snapshot(unit), before)
        recorded = self._compared(recorded, unit)
        placements = plan.placements[len(unit.late) :]
        self._commit_queue.add(unit, placements, recorded, ready_since=ready_since)
        if unit.late:
            self._informers.replacements.planned(unit.key, recorded)

    def _compared(self, plan: GangPlan, unit: Unit) -> GangPlan:
        """Return a plan with the best bandwidth on the empty cluster, and that of index order.

        What exceeds the deadline is left out: a plan does not wait for it.
        """
        snapshot, members = self._snapshot(unit), all_members(unit)
        order, best = None, UNDEFINED
        if members is None:
            return plan
        with suppress(DeadlineExceeded):
            order = index_order(without_siblings(snapshot, unit), members)
            planned = recorded_bandwidths(plan).planned
            best = best_possible(snapshot, members, planned, order)
        return with_baselines(plan, best, order.bandwidth if order else UNDEFINED)

    def resume(self, unit: Unit, ready_since: float) -> bool:
        """Queue the rest of a plan that a leader left interrupted; return whether there is one.

        The arguments are those of `accept`.
        """
        plan_ids = {plan_id_of(pod) for pod in unit.settled} - {None}
        if not plan_ids or not unit.is_gang:
            return False
        plan = self._informers.recorded_plan(unit.key)
        if plan is None or plan.id not in plan_ids:
            return False
        placements = remaining_placements(plan, unit, self._snapshot(unit))
        if placements is None:
            return False
        _log.info("Resuming plan", gang=f"{unit.key.namespace}/{unit.key.name}", plan=plan.id)
        self._commit_queue.add(unit, placements, plan, ready_since=ready_since)
        return True

    def reserved(self, unit: Unit, excluded: frozenset[str]) -> Plan | None:
        """Return the plan of a late launcher whose GPUs are reserved; None: it is planned again.

        Args:
            unit: The unit.
            excluded: Nodes that it may not use.
        """
        if not unit.is_gang or not unit.settled or unit.blocked:
            return None
        recorded = self._informers.recorded_plan(unit.key)
        return reserved_plan(recorded, unit, self._snapshot(unit).without(excluded))

    def _snapshot(self, unit: Unit) -> Snapshot:
        """Return the cluster, with the GPUs that are reserved for a unit free."""
        return self._state.snapshot_for(unit.key, unit.priority)
