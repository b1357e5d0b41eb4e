"""Report on gangs and pods: the Gang object with its plan and status, and an Event for each change.

A plan is written before any of its pods is released. Everything else is written later, and only
the latest update: a gang that is placed within a second is never reported as waiting. The status is
computed from the pods when it is written; of earlier reports only the reason is kept.
"""

import asyncio
import math
from contextlib import suppress
from dataclasses import dataclass

import structlog

from linkwise.cluster.gang import GangKey
from linkwise.planning.gang.crd import Gang, GangStatus, Phase
from linkwise.planning.gang.crd_plan import GangPlan
from linkwise.planning.gang.unit import Unit
from linkwise.runtime.kube.client import Kube, KubeError
from linkwise.runtime.kube.event_recorder import Event, EventRecorder
from linkwise.runtime.process.clock import Clock, loop_time, rfc3339
from linkwise.runtime.process.fair_schedule import URGENT, Limits
from linkwise.runtime.process.work_queue import Retry, WorkQueue
from scorer.cache.informers import Informers
from scorer.metrics import Stage
from scorer.queue.fault_isolation import FaultIsolation
from scorer.report.gang_state import GangState, gang_state, with_fault_note
from scorer.report.gang_writer import GangWriter
from scorer.report.member_events import MemberEvents
from scorer.report.status_update import PENDING, StatusUpdate, desired_status, health_event
from scorer.report.unwritten_plans import UnwrittenPlans
from scorer.timings import Timings

_LIMITS = Limits(8, of_group=4)
"""Concurrent writes, and those of one namespace, which may have any number of gangs."""
_RETRY_MAX = 30.0
"""The longest delay before a failed write is tried again [s]."""

_log = structlog.get_logger()


@dataclass(slots=True)
class _Report:
    """What is known of the reports about one unit. Times are of the loop's clock [s]."""

    latest: StatusUpdate | None = None
    unwritten: StatusUpdate | None = None
    """`latest`, unless it is written."""
    due: float = math.inf
    """When the status is written next."""
    written_at: float = -math.inf
    """Of the last write of the status or of a plan."""
    is_urgent: bool = False
    """It is written when it is due, even if the gang goes on waiting."""


class StatusReporter:
    """Writes Gangs and Events, for one term of the Lease."""

    def __init__(  # noqa: PLR0913 - one for each collaborator.
        self,
        kube: Kube,
        informers: Informers,
        recorder: EventRecorder,
        faults: FaultIsolation,
        clock: Clock,
        *,
        term: int,
        timings: Timings,
    ) -> None:
        """Write nothing yet; `run` does.

        Args:
            kube: The API server.
            informers: The pods, owners and Gangs.
            recorder: Creates the Events.
            faults: Counts unforeseen exceptions.
            clock: The wall clock [s since 1970].
            term: Of the Lease.
            timings: Of status updates.
        """
        self._timings = timings
        self._informers, self._recorder = informers, recorder
        self._faults, self._clock = faults, clock
        self._members = MemberEvents(recorder.record, term)
        self._gangs = GangWriter(kube, informers)
        self._plans = UnwrittenPlans(self._gangs, clock)
        self._reports: dict[GangKey, _Report] = {}
        self._fault_notes: dict[GangKey, str] = {}
        """Why gangs are not moved off faults."""
        self._queue = WorkQueue[GangKey](
            self._process,
            retry=Retry(timings.report_interval, max(timings.report_interval, _RETRY_MAX)),
            on_error=self._failed,
            group=lambda key: key.namespace,
            limits=_LIMITS,
        )

    async def run(self) -> None:
        """Write until cancelled. What is queued then is not written."""
        await self._queue.run()

    async def record_plan(self, unit: Unit, plan: GangPlan) -> None:
        """Write a gang's plan with the time, before any of its pods is released.

        Plans precede reports. Each plan has the members of those before, so only the newest one
        that waits is written.

        Raises:
            KubeError: It could not be written.
        """
        key = unit.key
        report = self._report(key)
        # An update that says that the gang waits is outdated.
        report.latest = report.unwritten = None
        written = self._plans.add(unit, plan)
        self._queue.add(key, rank=URGENT)
        await asyncio.shield(written)

    def announce(self, event: Event) -> None:
        """Create an Event soon."""
        self._recorder.record(event)

    def enqueue(self, update: StatusUpdate) -> None:
        """Write an update soon, unless it equals the last one. A pod without a gang gets Events."""
        report = self._report(update.unit.key)
        if report.latest == update:
            return
        report.latest = report.unwritten = update
        if update.evicted.members:
            # The next update may replace this one before it is written.
            self._record_event(update)
        report.is_urgent |= update.phase not in PENDING
        self._schedule(update.unit.key, 0.0 if report.is_urgent else self._timings.report_delay)

    def explain_fault(self, key: GangKey, why: str) -> None:
        """Report why a gang is not moved off its faults; empty: there is nothing to say."""
        if self._fault_notes.pop(key, "") != why:
            self._schedule(key, self._timings.report_delay)
        if why:
            self._fault_notes[key] = why

    async def annotate(self, key: GangKey, name: str, value: str) -> None:
        """Set an annotation of a Gang.

        Raises:
            KubeError: It could not be written.
        """
        await self._gangs.annotate(key, name, value)

    def reconcile(self, key: GangKey) -> GangState | None:
        """Return the state of a gang's pods; correct the status of its Gang soon if it differs.

        None where there is no Gang.
        """
        gang = self._gangs.find(key)
        if gang is None:
            return None
        state = self._state(gang, key)
        is_current = self._desired(gang, key, state) == self._gangs.last_status(gang, key)
        if not is_current or state.plan is not None:
            self._schedule(key, self._timings.report_delay)
        return state

    def forget(self, key: GangKey) -> None:
        """Drop what is kept of a gang without pods."""
        self._reports.pop(key, None)
        self._fault_notes.pop(key, None)
        self._members.forget(key)
        self._gangs.forget(key)

    def forget_gang(self, key: GangKey) -> None:
        """Drop what is kept of a Gang that was deleted, unless its pods wait."""
        self._gangs.forget(key)
        report = self._reports.get(key)
        if report and report.latest is None:
            del self._reports[key]

    def _report(self, key: GangKey) -> _Report:
        return self._reports.setdefault(key, _Report())

    def _schedule(self, key: GangKey, delay: float) -> None:
        report = self._report(key)
        report.due = min(report.due, loop_time() + delay)
        self._queue.add(key, delay=max(0.0, report.due - loop_time()))

    async def _process(self, key: GangKey) -> None:
        """Write the plan of a gang that is new, then its status, if due."""
        report = self._reports.get(key)
        has_plan = await self._plans.write(key)
        if report is None:
            return
        now = loop_time()
        if has_plan:
            report.written_at = now
        if not report.is_urgent and self._may_wait(key):
            # A newer state soon makes this write needless.
            report.due = max(report.due, report.written_at + self._timings.report_interval)
        if report.due <= now:
            await self._write_report(key, report)
        elif report.due < math.inf:
            self._queue.add(key, delay=report.due - now)

    def _may_wait(self, key: GangKey) -> bool:
        """Return whether the status of a gang is written less often.

        This is so if it goes on waiting for GPUs, as its status says, and while its members are
        bound, since its plan was just written.
        """
        gang = self._gangs.find(key)
        if gang is None:
            return True
        phase = self._desired(gang, key, self._state(gang, key)).phase
        is_pending = phase in PENDING and self._gangs.last_status(gang, key).phase in PENDING
        return is_pending or phase is Phase.COMMITTING

    async def _write_report(self, key: GangKey, report: _Report) -> None:
        """Write the status of a gang, then the Event of an update."""
        update, report.unwritten = report.unwritten, None
        report.due, report.written_at, report.is_urgent = math.inf, loop_time(), False
        try:
            if update is None or update.unit.is_gang:
                await self._write_status(key, update)
        except Exception as error:
            # Try again with the current Gang, unless there is a newer update.
            report.unwritten = update if report.latest == update else report.unwritten
            report.due = loop_time()
            if isinstance(error, KubeError):
                with suppress(KubeError):
                    await self._gangs.refresh(key)
            raise
        finally:
            # Where the Gang cannot be written, the Event is the only report.
            self._record_event(update)
            if report.latest and (delay := self._members.record(report.latest)):
                self._schedule(key, delay)

    async def _write_status(self, key: GangKey, update: StatusUpdate | None) -> None:
        gang = self._gangs.find(key)
        if gang is None:
            if update is None:
                return
            gang = await self._gangs.create(update.unit)
        # Before the status, which names the generation that it describes.
        await self._shrink_plan(gang, key)
        gang = self._gangs.find(key) or gang
        state = self._state_of_pods(gang, key)
        desired = self._desired(gang, key, self._with_note(state, key))
        # The note on the faults, which may come later, is not reported again.
        unhealthy = state.unhealthy
        if not (self._gangs.last_status(gang, key).unhealthy or "").startswith(unhealthy):
            self._recorder.record(health_event(gang, desired.unhealthy or unhealthy))
        await self._gangs.write_status(gang, key, desired)

    async def _shrink_plan(self, gang: Gang, key: GangKey) -> None:
        """Remove members from the recorded plan that were deleted and are not made again."""
        state = self._state_of_pods(gang, key)
        if state.plan is not None:
            size = gang.spec.size if state.has_ended_members else state.members[1]
            await self._gangs.shrink_plan(gang, state.plan, size)

    def _record_event(self, update: StatusUpdate | None) -> None:
        event = update.event(self._gangs.find(update.unit.key)) if update else None
        if event is not None:
            self._recorder.record(event)

    def _failed(self, key: GangKey, error: Exception, delay: float | None) -> None:
        if isinstance(error, KubeError):
            _log.warning("Could not report gang", gang="/".join(key[:2]), err=str(error))
        else:
            self._faults.count(Stage.REPORT, key, error, delay)

    def _desired(self, gang: Gang, key: GangKey, state: GangState) -> GangStatus:
        report = self._reports.get(key)
        return desired_status(
            state,
            report.latest if report else None,
            gang,
            self._gangs.last_status(gang, key),
            rfc3339(self._clock()),
        )

    def _state(self, gang: Gang, key: GangKey) -> GangState:
        return self._with_note(self._state_of_pods(gang, key), key)

    def _with_note(self, state: GangState, key: GangKey) -> GangState:
        return with_fault_note(state, self._fault_notes.get(key, ""))

    def _state_of_pods(self, gang: Gang, key: GangKey) -> GangState:
        report = self._reports.get(key)
        update = report.latest if report else None
        needed = update.unit.needed if update else None
        return gang_state(gang, needed, self._informers, self._clock())
