"""Refusals of units: they are cached and reported, and faulty or slow units back off."""

import structlog

from linkwise.planning.cycle.scheduling_queue import SchedulingQueue
from linkwise.planning.gang.crd import Phase
from linkwise.planning.gang.unit import Unit
from linkwise.planning.placement.result import Refusal
from scorer.commit.handle import Handle
from scorer.metrics import Stage
from scorer.preemption.preemptor import Preemptor
from scorer.queue.fault_isolation import FAULT
from scorer.queue.pending import ClosedNodes, PendingUnits
from scorer.queue.time_budget import TimeBudget
from scorer.report.status_update import StatusUpdate

_OPEN = ClosedNodes()

_log = structlog.get_logger()


class RejectedUnits:
    """Keeps and reports why units are not placed."""

    def __init__(
        self,
        handle: Handle,
        pending: PendingUnits,
        queue: SchedulingQueue,
        time_budget: TimeBudget,
        preemptor: Preemptor,
    ) -> None:
        """Keep refusals in `pending` and backoffs in `time_budget`; `queue` has the other units."""
        self._status_reporter, self._metrics = handle.status_reporter, handle.metrics
        self._faults, self._pending, self._queue = handle.faults, pending, queue
        self._time_budget, self._preemptor = time_budget, preemptor

    def refuse(self, unit: Unit, refusal: Refusal, closed: ClosedNodes = _OPEN) -> None:
        """Cache and report a refusal.

        Args:
            unit: The unit.
            refusal: Its reason.
            closed: The nodes that it could not use.
        """
        self._pending.refuse(unit, refusal, closed)
        self.report(unit, refusal.reason)

    def report(self, unit: Unit, reason: str) -> None:
        """Report why a unit waits, and what is evicted for it."""
        # Isolated: it is called for units whose planning raised, too.
        with self._faults.isolate(Stage.REPORT, unit.key):
            preemption = self._preemptor.reason(unit.key)
            reason = f"{reason}; {preemption}" if preemption else reason
            phase = Phase.ASSEMBLING if unit.blocked else Phase.WAITING
            self._status_reporter.enqueue(
                StatusUpdate(unit, phase, (unit.present, unit.needed), reason=reason)
            )

    def postpone(self, unit: Unit) -> None:
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
        self.refuse(unit, refusal)
        self._queue.put_back(unit)

    def fail(self, unit: Unit) -> None:
        """Let a unit back off whose planning raised the current exception."""
        delay = self._time_budget.exceeded(unit)
        self._metrics.failed(Stage.PLAN)
        _log.exception("Could not plan", unit=_name(unit), retry_after=delay)
        reason = f"planning it fails by {FAULT}; tried again in {delay:g} s"
        self.refuse(unit, Refusal(reason, is_cacheable=False))
        self._queue.put_back(unit)


def _name(unit: Unit) -> str:
    return f"{unit.key.namespace}/{unit.key.name}"
