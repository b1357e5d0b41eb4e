"""The leader's loop: what waits is planned in turn, held, and handed on to be carried out.

A round decides until enough is on its way to keep the API server busy, and no longer than a moment:
planning takes the processor from everything that waits for an answer, and from the Lease. Whatever
changes meanwhile wakes the next round, which goes on where the last one ended. Who takes too long
by itself, or cannot be planned by a fault of ours, is told so, and tried again when the others have
had their turn.
"""

import asyncio
from collections.abc import Callable, Coroutine, Iterable, Iterator
from contextlib import suppress
from typing import Any

import structlog

from cluster.gang import GangKey
from cluster.pod import Owner
from runtime.kube.client import Kube
from runtime.process.clock import Clock, loop_time
from scorer.cache.cluster_state import Key
from scorer.cache.informers import Informers
from scorer.commit.binding_tracker import BindingTracker, plan_id_of
from scorer.commit.committer import Committer
from scorer.commit.queue import CommitQueue
from scorer.gang.crd import Phase, name_of
from scorer.gang.plan_record import placement_of, plan_of
from scorer.gang.unit import Unit
from scorer.metrics import Metrics, Stage
from scorer.placement.baselines import best_possible, index_order
from scorer.placement.node_cache import DeadlineExceeded
from scorer.placement.result import Plan, Refusal
from scorer.queue.cycle import Reserved, SchedulingCycle, in_order
from scorer.queue.fault_isolation import FaultIsolation
from scorer.queue.gang_size import GangSizeResolver
from scorer.queue.pending import Closed, PendingUnits
from scorer.queue.starvation import StarvationGuard
from scorer.queue.time_budget import TimeBudget
from scorer.report.status_reporter import StatusReporter, StatusUpdate

_PAUSE = 30.0
"""Before an owner that could not be read is asked again [s]."""
_AGAIN = 1.0
"""Before what was refused is tried again [s]."""
_MOMENT = 0.02
"""After so long a round lets others have their turn [s]."""

_OPEN: Closed = None, frozenset()

_log = structlog.get_logger()


class Planner:
    """Everything that one leader does in its tenure."""

    def __init__(  # noqa: PLR0913 - everybody who has a part in it.
        self,
        kube: Kube,
        informers: Informers,
        status_reporter: StatusReporter,
        metrics: Metrics,
        faults: FaultIsolation,
        *,
        term: int,
        clock: Clock,
    ) -> None:
        """Say what to read, where to write, and under which term."""
        self._informers, self._status_reporter, self._metrics = informers, status_reporter, metrics
        self._state, self._term, self._clock = informers.state, term, clock
        self._waiting = PendingUnits(self._state, informers.owners, faults)
        self._sizes = GangSizeResolver(kube, informers, faults, pause=_PAUSE)
        self._binding_tracker = BindingTracker(
            kube, informers, status_reporter, metrics, faults, clock
        )
        self._queue = CommitQueue(
            self._state,
            Committer(kube, term, clock, faults),
            self._binding_tracker,
            status_reporter,
            metrics,
            faults,
            again=_AGAIN,
            changed=informers.changed.set,
        )
        self._late = TimeBudget(informers.changed.set)
        self._faults = faults
        self._lacking: dict[GangKey, Owner] = {}
        """Gangs that lack members though none of them waits, and who may want no more."""
        self.reserved: Reserved | None = None
        """The nodes that are reserved for one that has waited long; None: none, by the last
        look."""
        self.has_looked = False
        """Everything that waits was looked at once: what plans that were begun are yet to give is
        held from then on, and nobody else may be given anything before."""
        self._plans = 0
        self._since = 0
        """What had become free when this look at everything that waits began."""
        self._ageing = StarvationGuard()

    def waiting(self) -> Iterator[tuple[Unit, str]]:
        """Yield everything that waits, and why."""
        for unit in self._waiting:
            yield unit, self._queue.why_resting(unit.key) or self._waiting.reason(unit)

    @property
    def partial(self) -> int:
        """How many gangs lack members: some have their GPUs, others wait for theirs."""
        return sum(0 < len(unit.settled) < (unit.needed or 0) for unit in self._waiting)

    async def run(self) -> None:
        """Plan and commit until cancelled.

        Raises:
            Deposed: Another process leads by now.
        """
        try:
            async with asyncio.TaskGroup() as group:
                group.create_task(self._queue.run())
                self._binding_tracker.resume()
                while True:
                    began = loop_time()
                    self._informers.changed.clear()
                    for call in self._round():
                        group.create_task(call)
                    self.has_looked = True
                    # What is written and what was heard comes before what is planned next; after a
                    # long look for as long as that took.
                    took = loop_time() - began
                    await asyncio.sleep(took if took > 2 * _MOMENT else 0)
                    with suppress(TimeoutError):
                        async with asyncio.timeout(self._left()):
                            await self._informers.changed.wait()
        finally:
            self._queue.close()

    def _round(self) -> list[Coroutine[Any, Any, None]]:
        """Decide what can be decided now; return the calls that are to be made beside."""
        changed = self._state.drain_dirty_groups()
        for gone in self._waiting.regroup(changed, self._informers.drain_dirty_owners()):
            self._status_reporter.forget(gone)
            self._sizes.forget(gone)
            self._queue.forget(gone)
            self._late.forget(gone)
        units = list(self._waiting)
        gangs = None if self.has_looked else self._informers.gangs
        self._ageing.note(units, self._clock(), gangs)
        calls = [*self._binding_tracker.follow(changed), *self._sizes.ask(units)]
        self._look(changed)
        for key, owner in self._lacking.items():
            calls += self._sizes.ask_owner(owner, key.namespace)
        if not self._queue.is_full:
            self._decide(units)
        return calls

    def _look(self, changed: Iterable[Key]) -> None:
        """Let people be told how gangs stand of which a pod, the Gang or the owner changed."""
        keys = set(self._informers.drain_dirty_gangs())
        for at in changed:
            keys |= self._informers.gangs_named(at)
        for key in keys:
            was_lacking = self._lacking.pop(key, None)
            with self._faults.contained(Stage.REPORT, key):
                standing = self._status_reporter.look(key)
                gang = self._informers.gangs.get((key.namespace, name_of(key)))
                owner = gang.owner if gang else None
                if owner and standing and standing.lacks_members:
                    self._lacking[key] = owner
                    if not was_lacking:
                        self._sizes.again(owner)

    def _decide(self, units: Iterable[Unit]) -> None:
        """Decide unit by unit, until there is enough to carry out or the time is over."""
        avoided, began = self._binding_tracker.avoided, loop_time()
        turns = SchedulingCycle(aged=self._is_aged, avoided=avoided)
        # All of them first: what a plan that goes on is yet to give must not go to others.
        left = in_order([unit for unit in units if not self._is_on_its_way(unit)])
        slow = self._late.namespaces
        for unit in sorted(left, key=lambda unit: self._is_last(unit, slow)):
            with self._state.snapshot().cache.deadline(_after(self._late.time(unit))):
                self._take_turn(turns, unit, avoided.get(unit.key))
            if self._queue.is_full or (turns.planned and loop_time() - began > _MOMENT):
                # The rest has its turn; who was refused in this look is not planned again in it.
                self._informers.changed.set()
                is_over = False
                break
        else:
            is_over = True
            if self._state.capacity_version != self._since:
                self._since = self._state.capacity_version
                self._informers.changed.set()
        if is_over or turns.first:
            self.reserved = turns.reserved
            self._ageing.reserve(turns.first, self._clock(), self._ageing_seconds)
        if turns.planned:
            self._metrics.planned(loop_time() - began)

    def _take_turn(
        self, turns: SchedulingCycle, unit: Unit, avoided: frozenset[str] | None
    ) -> None:
        """Decide one unit in the time that is granted, and begin what was decided."""
        closed = avoided, turns.closed
        standing = self._waiting.standing(unit, self._since, closed)
        try:
            outcome = turns.decide(self._state.snapshot(), unit, standing)
            if isinstance(outcome, Plan):
                self._start(unit, outcome)
            elif standing is None or not outcome.stands:
                self._refuse(unit, outcome, closed)
            elif outcome is not standing:
                self._waiting.learn(unit, outcome)
        except DeadlineExceeded:
            self._postpone(unit)
        except Exception:  # noqa: BLE001 - a fault of ours with one unit is none with the others.
            self._fail(unit)
        else:
            self._late.forget(unit.key)

    def _is_last(self, unit: Unit, slow: frozenset[str]) -> bool:
        """Tell whether others are planned first: its namespace is slow, or it was refused."""
        return unit.key.namespace in slow or self._queue.was_refused(unit.key)

    def _is_aged(self, unit: Unit) -> bool:
        return self._ageing.is_aged(unit, self._clock(), self._ageing_seconds)

    @property
    def _ageing_seconds(self) -> float:
        return self._informers.policy.policy.gangs.ageing_minutes * 60

    def _left(self) -> float | None:
        """Return until something is due whether anything changes or not [s]; None: nothing is."""
        lefts = self._binding_tracker.left(), self._ageing.left(self._clock())
        return min((left for left in lefts if left is not None), default=None)

    def _refuse(self, unit: Unit, refusal: Refusal, closed: Closed = _OPEN) -> None:
        self._waiting.refuse(unit, refusal, closed)
        phase = Phase.ASSEMBLING if unit.blocked else Phase.WAITING
        self._status_reporter.enqueue(
            StatusUpdate(unit, phase, (unit.present, unit.needed), reason=refusal.reason)
        )

    def _postpone(self, unit: Unit) -> None:
        """Let others have their turn before one is tried again that took too long."""
        granted, pause = self._late.time(unit), self._late.note(unit)
        refusal = Refusal(
            f"planning it takes more than {granted:g} s, while all others wait; tried again after"
            f" them in {pause:g} s: it takes less where members are alike and node affinities"
            " short",
            stands=False,
        )
        _log.warning(
            "Planning took too long", unit=_name(unit), pods=len(unit.waiting), again=pause
        )
        self._refuse(unit, refusal)

    def _fail(self, unit: Unit) -> None:
        """Let others have their turn before one is tried again of which planning just raised."""
        pause = self._late.note(unit)
        self._metrics.failed(Stage.PLAN)
        _log.exception("Could not plan", unit=_name(unit), again=pause)
        reason = (
            "planning it fails by a fault of the scorer, whose log shows it: please report it;"
            f" tried again in {pause:g} s"
        )
        self._refuse(unit, Refusal(reason, stands=False))

    def _start(self, unit: Unit, plan: Plan) -> None:
        """Hold what was planned, and queue it."""
        self._waiting.accept(unit)
        self._ageing.placed(unit.key)
        self._plans += 1
        best, order = self._compared(unit)
        written = plan_of(
            plan, f"{self._term}-{self._plans}", best_possible=best, index_order=order
        )
        self._queue.put(unit, plan.placements, written, complete=self._since_when(unit))

    def _compared(self, unit: Unit) -> tuple[float | None, float | None]:
        """Return what the empty cluster would give, and what index order does [GB/s].

        None of what there is no time to find out: a plan does not wait for it.
        """
        snapshot = self._state.snapshot()
        order = best = None
        with suppress(DeadlineExceeded):
            order = index_order(snapshot, unit.members)
            best = best_possible(snapshot, unit.members)
        return best, order.bandwidth if order else None

    def _is_on_its_way(self, unit: Unit) -> bool:
        """Tell whether a unit is not to be planned: it is moved or rests, or its plan goes on."""
        key = unit.key
        resting = self._queue.why_resting(key) or self._late.is_resting(unit)
        if resting or self._binding_tracker.is_moving(key):
            return True
        try:
            return self._finish(unit)
        except Exception:  # noqa: BLE001 - as above.
            self._fail(unit)
            return True

    def _finish(self, unit: Unit) -> bool:
        """Go on with a plan of which some members have their GPUs already; say whether there is.

        A leader that was interrupted leaves such a gang; the plan stands in its Gang.
        """
        given = {plan_id_of(pod) for pod in unit.settled} - {None}
        if not given or not unit.is_gang:
            return False
        gang = self._informers.gangs.get((unit.key.namespace, name_of(unit.key)))
        plan = gang.spec.plan if gang else None
        if plan is None or plan.id not in given:
            return False
        planned = {member.uid: member for member in plan.members}
        if not all(pod.uid in planned and not pod.unplannable for pod in unit.waiting):
            return False
        snapshot = self._state.snapshot()
        nodes = snapshot.ledger.nodes
        try:
            placements = tuple(
                placement_of(planned[pod.uid], member, nodes[planned[pod.uid].node].node)
                for pod, member in zip(unit.waiting, unit.members, strict=True)
            )
            snapshot.hold_all((p.node, p.member.holding(p.shares)) for p in placements)
        except (KeyError, IndexError, ValueError):
            return False
        _log.info("Finishing gang", gang=_name(unit), plan=plan.id)
        self._queue.put(unit, placements, plan, complete=self._since_when(unit))
        return True

    def _since_when(self, unit: Unit) -> float:
        """Return since when all of a unit could be planned [s, of the loop's clock]."""
        return loop_time() - self._ageing.waited(unit, self._clock())


def _name(unit: Unit) -> str:
    return f"{unit.key.namespace}/{unit.key.name}"


def _after(seconds: float) -> Callable[[], bool]:
    """Return what tells whether so long has passed since now."""
    end = loop_time() + seconds
    return lambda: loop_time() >= end
