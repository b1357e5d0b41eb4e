"""Scheduling of pending units: each cycle plans as many as the API server can take.

Planning blocks the event loop, and so all requests and the renewal of the Lease. So a cycle ends
when the commit queue is full or its time is over, and the next one continues with the other units.
A unit that takes too long, or whose planning raises, backs off and is planned after the others.
"""

from collections.abc import Callable, Collection, Iterable, Mapping
from contextlib import suppress

import structlog

from cluster.gang import GangKey
from runtime.kube.objects import Key
from runtime.process.clock import loop_time
from scorer.commit.binding_tracker import BindingTracker
from scorer.commit.handle import Handle
from scorer.commit.healer import Healer
from scorer.commit.queue import CommitQueue
from scorer.gang.crd import Gang, GangPlan, Phase
from scorer.gang.plan_record import (
    plan_id_of,
    plan_of,
    recorded_bandwidths,
    remaining_placements,
    reserved_plan,
    with_baselines,
)
from scorer.gang.unit import Unit
from scorer.gang.whole_plan import all_members, whole_plan, without_siblings
from scorer.metrics import Stage
from scorer.placement.bandwidth import UNDEFINED
from scorer.placement.baselines import best_possible, index_order
from scorer.placement.options import PlanOptions
from scorer.placement.result import Plan, Refusal
from scorer.placement.state.node_cache import DeadlineExceeded
from scorer.placement.state.snapshot import Snapshot
from scorer.preemption.preemptor import Preemptor
from scorer.queue.cycle import Reservation, SchedulingCycle, in_order
from scorer.queue.fault_isolation import FAULT
from scorer.queue.pending import ClosedNodes, PendingUnits
from scorer.queue.settling import Settling
from scorer.queue.starvation import StarvationGuard
from scorer.queue.time_budget import TimeBudget
from scorer.report.status_update import StatusUpdate

_OPEN = ClosedNodes()

_log = structlog.get_logger()


class UnitScheduler:
    """Plans pending units, and queues the commits of their plans."""

    def __init__(
        self,
        handle: Handle,
        pending: PendingUnits,
        commit_queue: CommitQueue,
        binding_tracker: BindingTracker,
        healer: Healer,
        preemptor: Preemptor,
    ) -> None:
        """Start without cycles."""
        self._informers, self._state = handle.informers, handle.informers.state
        self._status_reporter, self._metrics = handle.status_reporter, handle.metrics
        self._term, self._clock, self._timings = handle.term, handle.clock, handle.timings
        self._faults = handle.faults
        self._pending, self._commit_queue = pending, commit_queue
        self._binding_tracker = binding_tracker
        self._healer, self._preemptor = healer, preemptor
        self._time_budget = TimeBudget(handle.timings, handle.informers.changed.set)
        self._starvation = StarvationGuard(handle.timings.min_reservation)
        self._settling = Settling()
        self._capacity_version = 0
        """Of the cluster state when the current pass over all pending units began."""
        self._is_pass_complete = True
        self._plans = 0
        self.reservation: Reservation | None = None
        """The nodes that the last cycle reserved for a starving unit; None: it reserved none."""

    def forget(self, key: GangKey) -> None:
        """Drop what is known of a unit that has no pods left."""
        self._time_budget.reset(key)
        self._end_settling(key)
        self._preemptor.forget(key)

    def time_left(self) -> float | None:
        """Return the time until a reservation, or the wait of a unit, ends [s]; None: never."""
        now = self._clock()
        times = self._starvation.reservation_left(now), self._settling.time_left(now)
        return min((left for left in times if left is not None), default=None)

    def schedule(self, units: Collection[Unit], gangs: Mapping[Key, Gang] | None) -> None:
        """Run one cycle.

        Args:
            units: All pending units.
            gangs: As in `StarvationGuard.update`.
        """
        self._starvation.update(units, self._clock(), gangs)
        if not self._commit_queue.is_full:
            self._run_cycle(units)

    def _run_cycle(self, units: Iterable[Unit]) -> None:
        started, excluded_nodes = loop_time(), self._binding_tracker.excluded_nodes
        if self._is_pass_complete:
            # Else a unit that has just come would get capacity before older ones that were refused.
            self._capacity_version = self._state.capacity_version
        self._preemptor.start_cycle()
        cycle = SchedulingCycle(
            is_starving=self._is_starving,
            excluded_nodes=excluded_nodes,
            ending=self._state.ending(),
            may_settle=self._may_settle,
            held_claims=self._informers.claims.claims.items,
        )
        # First of all, so that the GPUs that interrupted plans still need are not given to others.
        unplanned = self._resume_plans([unit for unit in units if self._may_be_planned(unit)])
        slow = self._time_budget.slow_namespaces
        is_complete = True
        for unit in sorted(in_order(unplanned), key=lambda unit: self._is_last(unit, slow)):
            expired = _expires(self._time_budget.limit(unit))
            with self._state.snapshot().cache.deadline(expired):
                excluded = excluded_nodes.get(unit.key, frozenset())
                self._schedule_one(cycle, unit, excluded)
            is_late = cycle.planned and loop_time() - started > self._timings.round
            if self._commit_queue.is_full or is_late:
                is_complete = False
                break
        self._finish_cycle(cycle, is_complete=is_complete)
        if cycle.planned:
            self._metrics.planned(loop_time() - started)

    def _finish_cycle(self, cycle: SchedulingCycle, *, is_complete: bool) -> None:
        """Request another cycle if units are left, and update the reservation."""
        self._is_pass_complete = is_complete
        if not is_complete or self._state.capacity_version != self._capacity_version:
            # Units that were refused in this pass have a cached refusal in its next cycle.
            self._informers.changed.set()
        if is_complete or cycle.starving:
            self.reservation = cycle.reservation
            self._starvation.reserve(cycle.starving, self._clock(), self._ageing)

    def _schedule_one(self, cycle: SchedulingCycle, unit: Unit, excluded: frozenset[str]) -> None:
        """Decide one unit within its deadline, and start what was decided."""
        closed = ClosedNodes(excluded, cycle.reserved_nodes)
        cached = self._pending.cached_refusal(unit, self._capacity_version, closed)
        try:
            outcome: Plan | Refusal | None = self._reserved_plan(unit, excluded)
            outcome = outcome or cycle.decide(self._snapshot(unit), unit, cached)
            if isinstance(outcome, Plan):
                self._accept(unit, outcome)
                self._end_settling(unit.key)
            elif outcome.is_settling:
                self._settling.wait(unit.key, self._clock(), self._settle_seconds)
                self._refuse(unit, outcome, closed)
            elif cached is None or not outcome.is_cacheable:
                self._preempt(unit, outcome, closed)
                self._refuse(unit, outcome, closed)
            else:
                self._preempt(unit, outcome, closed)
                if outcome is not cached:
                    self._pending.update(unit, outcome)
                if self._preemptor.reason(unit.key):
                    self._report(unit, outcome)
        except DeadlineExceeded:
            self._postpone(unit)
        except Exception:  # noqa: BLE001 - a fault with one unit must not stop the others.
            self._fail(unit)
        else:
            self._time_budget.reset(unit.key)

    def _preempt(self, unit: Unit, refusal: Refusal, closed: ClosedNodes) -> None:
        """Let others be evicted for a unit that lacks capacity.

        The search has a time limit of its own: with many pods it takes longer than a plan.
        """
        if not refusal.is_cacheable or unit.blocked:
            return
        snapshot = self._snapshot(unit).without(closed.excluded)
        options = PlanOptions(unit.link, closed.reserved)
        waited = self._starvation.waited(unit, self._clock())
        with self._state.snapshot().cache.deadline(_expires(self._timings.retry_limit)):
            self._preemptor.consider(unit, snapshot, options, waited=waited)

    def _may_be_planned(self, unit: Unit) -> bool:
        """Return whether a unit neither backs off nor is being evicted."""
        backs_off = self._commit_queue.backoff_reason(unit.key) is not None
        backs_off = backs_off or self._time_budget.is_backing_off(unit)
        is_evicting = self._binding_tracker.is_evicting(unit.key)
        return not (backs_off or is_evicting or self._healer.is_evicting(unit.key))

    def _is_last(self, unit: Unit, slow_namespaces: frozenset[str]) -> bool:
        """Return whether a unit is planned after the others: it might hold them up."""
        return unit.key.namespace in slow_namespaces or self._commit_queue.has_failed(unit.key)

    def _is_starving(self, unit: Unit) -> bool:
        return self._starvation.is_starving(unit, self._clock(), self._ageing)

    def _may_settle(self, unit: Unit) -> bool:
        may_wait = self._settling.may_wait
        return unit.is_gang and may_wait(unit.key, self._clock(), self._settle_seconds)

    def _end_settling(self, key: GangKey) -> None:
        """Forget the wait of a unit; the GPUs that it had meanwhile may fit others."""
        if self._settling.end(key):
            self._state.capacity_version += 1
            self._informers.changed.set()

    @property
    def _settle_seconds(self) -> float:
        return self._informers.policy.policy.gangs.settle_seconds

    @property
    def _ageing(self) -> float:
        return self._informers.policy.policy.gangs.ageing_minutes * 60

    def _accept(self, unit: Unit, plan: Plan) -> None:
        """Queue the commit of a new plan."""
        self._pending.accept(unit)
        self._starvation.placed(unit.key)
        self._preemptor.placed(unit.key)
        self._plans += 1
        recorded = plan_of(plan, f"{self._term}-{self._plans}")
        if unit.is_gang:
            before = self._informers.recorded_plan(unit.key)
            recorded = whole_plan(recorded, unit, self._snapshot(unit), before)
        recorded = self._compared(recorded, unit)
        placements = plan.placements[len(unit.late) :]
        self._commit_queue.add(unit, placements, recorded, ready_since=self._ready_since(unit))
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

    def _refuse(self, unit: Unit, refusal: Refusal, closed: ClosedNodes = _OPEN) -> None:
        """Cache and report a refusal."""
        self._pending.refuse(unit, refusal, closed)
        self._report(unit, refusal)

    def _report(self, unit: Unit, refusal: Refusal) -> None:
        """Report why a unit waits, and what is evicted for it."""
        # Isolated: it is called for units whose planning raised, too.
        with self._faults.isolate(Stage.REPORT, unit.key):
            preemption = self._preemptor.reason(unit.key)
            reason = f"{refusal.reason}; {preemption}" if preemption else refusal.reason
            phase = Phase.ASSEMBLING if unit.blocked else Phase.WAITING
            self._status_reporter.enqueue(
                StatusUpdate(unit, phase, (unit.present, unit.needed), reason=reason)
            )

    def _postpone(self, unit: Unit) -> None:
        """Let a unit back off whose planning exceeded its deadline."""
        limit, delay = self._time_budget.limit(unit), self._time_budget.exceeded(unit)
        refusal = Refusal(
            f"planning it takes more than {limit:g} s, during which nothing else is planned; tried"
            f" again after the others in {delay:g} s: it is faster if members are alike and node"
            " affinities are short",
            is_cacheable=False,
        )
        _log.warning(
            "Planning took too long", unit=_name(unit), pods=len(unit.waiting), retry_after=delay
        )
        self._refuse(unit, refusal)

    def _fail(self, unit: Unit) -> None:
        """Let a unit back off whose planning raised the current exception."""
        delay = self._time_budget.exceeded(unit)
        self._metrics.failed(Stage.PLAN)
        _log.exception("Could not plan", unit=_name(unit), retry_after=delay)
        reason = f"planning it fails by {FAULT}; tried again in {delay:g} s"
        self._refuse(unit, Refusal(reason, is_cacheable=False))

    def _resume_plans(self, units: Iterable[Unit]) -> list[Unit]:
        """Queue the rest of plans that a leader left interrupted; return the other units."""
        unplanned = []
        for unit in units:
            try:
                if not self._resume_plan(unit):
                    unplanned.append(unit)
            except Exception:  # noqa: BLE001 - as above.
                self._fail(unit)
        return unplanned

    def _resume_plan(self, unit: Unit) -> bool:
        """Queue the rest of a unit's plan; return whether there is one in its Gang."""
        plan_ids = {plan_id_of(pod) for pod in unit.settled} - {None}
        if not plan_ids or not unit.is_gang:
            return False
        plan = self._informers.recorded_plan(unit.key)
        if plan is None or plan.id not in plan_ids:
            return False
        placements = remaining_placements(plan, unit, self._snapshot(unit))
        if placements is None:
            return False
        _log.info("Resuming plan", gang=_name(unit), plan=plan.id)
        self._commit_queue.add(unit, placements, plan, ready_since=self._ready_since(unit))
        return True

    def _reserved_plan(self, unit: Unit, excluded: frozenset[str]) -> Plan | None:
        """Return the plan of a late launcher whose GPUs are reserved; None: it is planned again."""
        if not unit.is_gang or not unit.settled or unit.blocked:
            return None
        recorded = self._informers.recorded_plan(unit.key)
        return reserved_plan(recorded, unit, self._snapshot(unit).without(excluded))

    def _snapshot(self, unit: Unit) -> Snapshot:
        """Return the cluster, with the GPUs that are reserved for a unit free."""
        return self._state.snapshot_for(unit.key, unit.priority)

    def _ready_since(self, unit: Unit) -> float:
        """Return since when all of a unit could be planned [s, of the loop's clock]."""
        return loop_time() - self._starvation.waited(unit, self._clock())


def _name(unit: Unit) -> str:
    return f"{unit.key.namespace}/{unit.key.name}"


def _expires(seconds: float) -> Callable[[], bool]:
    """Return a function that returns whether this time has passed since now."""
    end = loop_time() + seconds
    return lambda: loop_time() >= end
