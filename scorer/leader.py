"""The part of this process in placement: idle until it leads, then the planner and the binder."""

import asyncio
from collections.abc import Callable
from typing import TypeVar

import structlog

from linkwise.cluster.keys import SCORER
from linkwise.runtime.kube.call_limiter import CallLimiter
from linkwise.runtime.kube.client import Kube
from linkwise.runtime.kube.event_recorder import EventRecorder
from linkwise.runtime.process.clock import Clock, loop_time
from scorer.cache.informers import Informers
from scorer.commit.claims.orphaned_claims import OrphanedClaims
from scorer.commit.claims.shared_claims import SharedClaims
from scorer.commit.handle import IN_FLIGHT, Handle
from scorer.device_fence import DeviceFence
from scorer.extender.bind import Binder
from scorer.extender.filter import Filter
from scorer.extender.preempt import Preemption
from scorer.extender.refusals import Refusals
from scorer.extender.requeuer import Requeuer
from scorer.fence import LeadershipLost
from scorer.leader_context import LeaderContext
from scorer.metrics import Metrics, Stage
from scorer.planner import Planner
from scorer.queue.fault_isolation import FaultIsolation
from scorer.report.claim_problems import ClaimProblems
from scorer.report.delegated_claims import DelegatedClaims
from scorer.report.leader_report import LeaderReport
from scorer.report.lease_annotations import report_excluded_nodes, report_vain_preemptions
from scorer.report.status_reporter import StatusReporter
from scorer.report.unaccounted_nodes import report_unaccounted
from scorer.report.usage_meter import measure_usage
from scorer.scale_up.pod_conditions import PodConditions
from scorer.scale_up.provisioning import ProvisioningRequests
from scorer.scale_up.requester import ScaleUpRequester
from scorer.timings import Timings

T = TypeVar("T")

_log = structlog.get_logger()


class Leader:
    """Runs the planner and the binder while this process leads."""

    def __init__(  # noqa: PLR0913 - one for each collaborator.
        self,
        reading: Kube,
        writing: Kube,
        metrics: Metrics,
        *,
        clock: Clock,
        instance: str,
        wait: float,
        timings: Timings,
    ) -> None:
        """Start without a term.

        Args:
            reading: The API server, for lists and watches.
            writing: The same with a short timeout, for writes.
            metrics: Counts decisions.
            clock: The wall clock [s since 1970].
            instance: This replica's name, for events.
            wait: How long a write of the last leader may still be under way [s].
            timings: The durations of the components.
        """
        self._reading, self._writing, self._metrics = reading, writing, metrics
        self._instance, self._clock, self._wait = instance, clock, wait
        self._timings = timings
        self.context: LeaderContext | None = None
        """None while another process leads."""

    async def lead(self, term: int) -> None:
        """Plan and bind until cancelled; return once another process leads."""
        clock, timings, informers = self._clock, self._timings, Informers(self._reading)
        faults = FaultIsolation(self._metrics, informers.changed.set, retry=timings.fault_retry)
        recorder = EventRecorder(
            self._writing,
            SCORER,
            self._instance,
            clock,
            lambda event, *fault: faults.count(Stage.REPORT, event.about.name, *fault),
        )
        status_reporter = StatusReporter(
            self._writing, informers, recorder, faults, clock, term=term, timings=timings
        )
        fence = DeviceFence(
            self._reading, self._writing, informers.state, faults, informers.claims.bypasses
        )
        limiter = CallLimiter(IN_FLIGHT)
        handle = Handle(
            self._writing.limited(limiter),
            informers,
            status_reporter,
            self._metrics,
            faults,
            term,
            clock,
            timings,
            lambda: fence.unsettled(clock()),
        )
        binder = Binder(self._writing, informers, faults, term=term, clock=clock, timings=timings)
        self.context = LeaderContext(
            term,
            informers,
            Planner(handle),
            Filter(informers.state),
            Preemption(informers.state, lambda: informers.owners, loop_time),
            Refusals(),
            binder,
            fence,
            ClaimProblems(informers, recorder, status_reporter, faults, clock),
        )
        try:
            # Until then writes of the last leader may arrive, which must be seen.
            await asyncio.sleep(self._wait)
            await self._run(self.context, handle, recorder)
        except* LeadershipLost as refused:
            _log.warning("Stopped leading", term=term, err=str(refused.exceptions[0]))
        finally:
            # After `LeadershipLost`, writes that the same plan still has must not be sent.
            limiter.close()
            self.context = None

    async def _run(self, context: LeaderContext, handle: Handle, recorder: EventRecorder) -> None:
        """Run the components until cancelled, or until leadership is lost."""
        state, interval = context.informers.state, self._timings.node_check_interval
        async with asyncio.TaskGroup() as group:
            informing = group.create_task(context.informers.run())
            binding = group.create_task(context.binder.run())
            await context.informers.synced()
            _log.info("Leading", term=context.term)
            reports = (
                recorder.run(),
                handle.status_reporter.run(),
                report_unaccounted(state, recorder, handle.faults, interval=interval),
                measure_usage(
                    state,
                    context.planner.wait_reasons,
                    self._metrics,
                    handle.faults,
                    interval=self._timings.usage_interval,
                ),
                context.device_fence.run(interval),
                report_excluded_nodes(
                    lambda: context.planner.excluded_nodes, self._writing, context.term, interval
                ),
                report_vain_preemptions(
                    lambda: context.planner.vain_preemptions, self._writing, context.term, interval
                ),
                Requeuer(handle, context.filter, context.refusals).run(
                    self._timings.requeue_interval
                ),
                context.claim_problems.run(self._timings.claim_check_interval),
                OrphanedClaims(handle).run(self._timings.claim_check_interval),
                SharedClaims(handle).run(interval),
                DelegatedClaims(
                    self._reading,
                    context.informers,
                    recorder,
                    handle.faults,
                    self._clock,
                    lambda: context.device_fence.rules,
                ).run(self._timings.claim_check_interval),
            )
            reporting = [group.create_task(report) for report in reports]
            requester = ScaleUpRequester(
                context.informers,
                ProvisioningRequests(self._reading, self._writing, context.informers, self._clock),
                PodConditions(self._writing, self._clock),
                handle.faults,
            )
            requesting = group.create_task(
                requester.run(context.planner.scale_up_candidates, self._timings.scale_up_interval)
            )
            try:
                await context.planner.run()
            finally:
                requesting.cancel()
                binding.cancel()
                for report in reporting:
                    report.cancel()
                informing.cancel()

    def report(self) -> LeaderReport | None:
        """Return what this process knows; None: it does not lead."""
        return self.context.report() if self.context else None

    def when_synced(self, read: Callable[[LeaderContext], T]) -> T | None:
        """Return what is read from the components; None: it does not lead, or is not synced."""
        if self.context is None or self.context.informers.missing():
            return None
        return read(self.context)

    def missing(self) -> str | None:
        """Return what a leader does not know yet; None if it knows all, or does not lead."""
        return self.context.missing() if self.context else None
