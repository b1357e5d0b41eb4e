"""Scheduling of pending units: each cycle plans as many as the API server can take.

Planning blocks the event loop, and so all requests and the renewal of the Lease. So a cycle ends
when the commit queue is full or its time is over, and the next one continues with the other units.
A unit that takes too long, or whose planning raises, backs off and is planned after the others.
"""

from collections.abc import Callable, Iterable, Mapping

from linkwise.cluster.gang import GangKey
from linkwise.planning.cycle.claimants import Claimants
from linkwise.planning.cycle.cycle import Reservation, SchedulingCycle, in_order
from linkwise.planning.cycle.scheduling_queue import SchedulingQueue
from linkwise.planning.cycle.settling import Settling
from linkwise.planning.gang.crd import Gang
from linkwise.planning.gang.exclusion import Exclusion
from linkwise.planning.gang.pod_info import PodInfo
from linkwise.planning.gang.pod_volumes import uses_volumes
from linkwise.planning.gang.unit import Unit
from linkwise.planning.placement.options import PlanOptions
from linkwise.planning.placement.result import Plan, Refusal
from linkwise.planning.placement.state.node_cache import DeadlineExceeded
from linkwise.planning.placement.state.snapshot import Snapshot
from linkwise.runtime.kube.objects import Key
from linkwise.runtime.process.clock import loop_time
from linkwise.runtime.process.portions import Portions
from scorer.accepted_plans import AcceptedPlans
from scorer.commit.binding.tracker import BindingTracker
from scorer.commit.handle import Handle
from scorer.commit.removal.removals import Removals
from scorer.commit.write.queue import CommitQueue
from scorer.preemption.preemptor import Preemptor
from scorer.queue.pending import ClosedNodes, PendingUnits
from scorer.queue.starvation import Starvation
from scorer.queue.time_budget import TimeBudget
from scorer.rejected_units import RejectedUnits


class UnitScheduler:
    """Plans pending units, and queues the commits of their plans."""

    def __init__(
        self,
        handle: Handle,
        pending: PendingUnits,
        commit_queue: CommitQueue,
        binding_tracker: BindingTracker,
        removals: Removals,
        preemptor: Preemptor,
    ) -> None:
        """Start without cycles."""
        self._informers, self._state = handle.informers, handle.informers.state
        self._metrics, self._clock, self._timings = handle.metrics, handle.clock, handle.timings
        self._pending, self._commit_queue = pending, commit_queue
        self._binding_tracker = binding_tracker
        self._removals, self._preemptor = removals, preemptor
        self._time_budget = TimeBudget(handle.timings, handle.informers.changed.set)
        self._starvation = Starvation(
            handle.informers, handle.clock, handle.timings.min_reservation
        )
        self._settling = Settling()
        self._slow: frozenset[str] = frozenset()
        self._queue = SchedulingQueue(self._is_last)
        self._reviews = Portions[Unit](lambda: in_order(self._queue.parked()))
        self._claimants = Claimants(
            lambda: self._informers.claims.held, self._waits, self._uses_volumes
        )
        self._accepted = AcceptedPlans(handle, commit_queue)
        self._rejected = RejectedUnits(handle, pending, self._queue, self._time_budget, preemptor)

    @property
    def reservation(self) -> Reservation | None:
        """The nodes that the last cycle reserved for a starving unit; None: it reserved none."""
        return self._starvation.reservation

    def forget(self, key: GangKey) -> None:
        """Drop what is known of a unit that has no pods left."""
        self._time_budget.reset(key)
        self._end_settling(key)
        self._preemptor.forget(key)

    def time_left(self) -> float | None:
        """Return the time until a cycle is due without any change [s]; None: none is."""
        now = self._clock()
        times = (
            self._starvation.time_left(),
            self._settling.time_left(now),
            self._reviews.time_left(loop_time()),
        )
        return min((left for left in times if left is not None), default=None)

    def schedule(self, gangs: Mapping[Key, Gang] | None) -> None:
        """Run one cycle.

        Args:
            gangs: As in `StarvationGuard.update`.

        Cost: the units that came, changed or are planned, a portion of those that were refused, and
        the namespaces.
        """
        came, left = self._pending.drain()
        self._starvation.update(came, gangs)
        for key in left:
            self._starvation.forget(key)
            self._queue.remove(key)
        for unit in came:
            self._queue.add(unit)
        if not self._commit_queue.is_full:
            self._run_cycle()

    def _run_cycle(self) -> None:
        started, self._slow = loop_time(), self._time_budget.slow_namespaces
        self._queue.start(self._state.capacity_version)
        self._preemptor.start_cycle()
        cycle = self._new_cycle()
        reserved = cycle.reserved_nodes
        # First of all, so that the GPUs that interrupted plans still need are not given to others.
        self._resume_plans(list(filter(self._may_be_planned, self._pending.partial.values())))
        refused = self._review(cycle)
        decided = 0
        # Units that settle are first in each cycle, and must not be all that it plans.
        while not (
            self._commit_queue.is_full or (decided > cycle.settling and self._is_late(started))
        ):
            unit = self._queue.pop()
            if unit is None:
                break
            if self._may_be_planned(unit):
                refused += self._schedule_one(cycle, unit)
                decided += 1
            else:
                self._queue.put_back(unit)
        for unit in in_order(refused):
            self._preempt(unit, self._closed(cycle, unit))
        self._finish_cycle(cycle, reserved)
        if cycle.planned:
            self._metrics.planned(loop_time() - started)

    def _is_late(self, started: float) -> bool:
        return loop_time() - started > self._timings.round

    def _new_cycle(self) -> SchedulingCycle:
        return SchedulingCycle(
            is_starving=self._starvation.is_starving,
            exclusions=self._exclusions,
            ending=self._state.ending(),
            may_settle=self._may_settle,
            claimants=self._claimants,
            starving=self._starvation.current(self._pending.get, self._may_be_planned),
        )

    def _exclusions(self, unit: Unit) -> Mapping[str, Exclusion]:
        excluded = self._binding_tracker.excluded
        return excluded.of(unit) if excluded else {}

    def _waits(self, pod: PodInfo) -> bool:
        now = self._state.pod(pod.key)
        return now is not None and now.uid == pod.uid and now.member is not None

    def _uses_volumes(self, pod: PodInfo) -> bool:
        now = self._state.pod(pod.key)
        return now is not None and now.uid == pod.uid and uses_volumes(now)

    def _finish_cycle(self, cycle: SchedulingCycle, reserved: frozenset[str]) -> None:
        """Request another cycle if units are left, and update the reservation."""
        is_moved = cycle.reserved_nodes != reserved
        if is_moved or self._queue.is_due(self._state.capacity_version):
            self._informers.changed.set()
        self._starvation.reserve(cycle)

    def _review(self, cycle: SchedulingCycle) -> list[Unit]:
        """Look at a portion of the units that were refused; return those that still do not fit.

        Nodes are reserved for one that starves. One to which a node was opened is planned. One may
        fit for which capacity may have become free: it has its turn before others are preempted.
        """
        kept: list[Unit] = []
        for unit in self._reviews.next(loop_time()):
            if not self._queue.is_parked(unit) or not self._may_be_planned(unit):
                continue
            cached = self._pending.cached_refusal(unit, self._closed(cycle, unit))
            if cached is None:
                self._queue.activate(unit)
            else:
                is_refused = self._queue.is_refused(unit, self._state.capacity_version)
                refused = self._schedule_one(cycle, unit, cached)
                kept += refused if is_refused else []
        return kept

    def _closed(self, cycle: SchedulingCycle, unit: Unit) -> ClosedNodes:
        return ClosedNodes(cycle.excluded(unit), cycle.reserved_for(unit))

    def _schedule_one(
        self, cycle: SchedulingCycle, unit: Unit, cached: Refusal | None = None
    ) -> list[Unit]:
        """Decide one unit within its deadline, and start what was decided.

        Returns the unit if it is refused, so that others may be preempted for it.
        """
        closed = self._closed(cycle, unit)
        expired = _expires(self._time_budget.limit(unit))
        try:
            with self._state.snapshot().cache.deadline(expired):
                outcome: Plan | Refusal | None = self._accepted.reserved(unit, closed.excluded)
                outcome = outcome or cycle.decide(self._snapshot(unit), unit, cached)
                if isinstance(outcome, Plan):
                    self._accept(unit.first(len(outcome.placements)), outcome)
                    self._end_settling(unit.key)
        except DeadlineExceeded:
            self._rejected.postpone(unit)
            return []
        except Exception:  # noqa: BLE001 - a fault with one unit must not stop the others.
            self._rejected.fail(unit)
            return []
        self._time_budget.reset(unit.key)
        if isinstance(outcome, Plan):
            return []
        if outcome.is_settling:
            self._settling.wait(unit.key, self._clock(), self._settle_seconds)
        if cached is None or not outcome.is_cacheable:
            self._rejected.refuse(unit, outcome, closed)
        elif outcome is not cached:
            self._pending.update(unit, outcome)
        if outcome.is_settling:
            self._queue.put_back(unit, is_first=True)
        elif cached is None and not unit.blocked:
            self._queue.park(unit, self._state.capacity_version)
        return [unit]

    def _preempt(self, unit: Unit, closed: ClosedNodes) -> None:
        """Let others be evicted for a unit that lacks capacity.

        The search has a time limit of its own: with many pods it takes longer than a plan.
        """
        if not self._pending.lacks_capacity(unit):
            return
        try:
            snapshot = self._snapshot(unit).without(closed.excluded)
            options = PlanOptions(unit.link, closed.reserved)
            waited = self._starvation.waited(unit)
            with self._state.snapshot().cache.deadline(_expires(self._timings.retry_limit)):
                self._preemptor.consider(unit.least, snapshot, options, waited=waited)
            if self._preemptor.reason(unit.key):
                self._rejected.report(unit, self._pending.reason(unit))
        except Exception:  # noqa: BLE001 - as above.
            self._rejected.fail(unit)

    def _may_be_planned(self, unit: Unit) -> bool:
        """Return whether a unit neither backs off nor is being evicted."""
        backs_off = self._commit_queue.backoff_reason(unit.key) is not None
        backs_off = backs_off or self._time_budget.is_backing_off(unit)
        return not (backs_off or self._removals.is_evicting(unit.key))

    def _is_last(self, unit: Unit) -> bool:
        """Return whether a unit is planned after the others: it might hold them up."""
        return unit.key.namespace in self._slow or self._commit_queue.has_failed(unit.key)

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

    def _accept(self, unit: Unit, plan: Plan) -> None:
        self._pending.accept(unit)
        self._queue.remove(unit.key)
        self._starvation.placed(unit.key)
        self._preemptor.placed(unit.key)
        self._accepted.accept(unit, plan, self._starvation.ready_since(unit))

    def _resume_plans(self, units: Iterable[Unit]) -> None:
        """Queue the rest of plans that a leader left interrupted."""
        for unit in units:
            try:
                if self._accepted.resume(unit, self._starvation.ready_since(unit)):
                    self._queue.remove(unit.key)
            except Exception:  # noqa: BLE001 - as above.
                self._queue.remove(unit.key)
                self._rejected.fail(unit)

    def _snapshot(self, unit: Unit) -> Snapshot:
        """Return the cluster, with the GPUs that are reserved for a unit free."""
        return self._state.snapshot_for(unit.key, unit.priority)


def _expires(seconds: float) -> Callable[[], bool]:
    """Return a function that returns whether this time has passed since now."""
    end = loop_time() + seconds
    return lambda: loop_time() >= end
