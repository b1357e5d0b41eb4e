"""This process's part in placement: nothing until it leads, then everything, then nothing."""

import asyncio
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

import structlog

from runtime.kube.client import Kube
from runtime.process.clock import Clock
from scorer.cache.informers import Informers
from scorer.extender.bind import Binder
from scorer.extender.filter import Filter
from scorer.fence import LeadershipLost
from scorer.gang.crd import Gang
from scorer.metrics import Metrics
from scorer.planner import Planner
from scorer.queue.fault_isolation import FaultIsolation
from scorer.report.gang_states import GangStates
from scorer.report.status_reporter import StatusReporter
from scorer.report.unaccounted_nodes import report_unaccounted

_log = structlog.get_logger()


@dataclass(frozen=True, slots=True)
class LeaderContext:
    """What one leader has."""

    term: int
    informers: Informers
    planner: Planner
    filter: Filter
    binder: Binder

    def missing(self) -> str | None:
        """Say what is not known yet; None once it can be told what is free."""
        if (why := self.informers.missing()) or self.planner.has_looked:
            return why
        return "plans that the leader before has begun are not looked at yet"


class Leader:
    """Leads when it is told to."""

    def __init__(
        self,
        reading: Kube,
        writing: Kube,
        metrics: Metrics,
        *,
        clock: Clock,
        instance: str,
        wait: float,
    ) -> None:
        """Say whom to ask, and as whom.

        Args:
            reading: The API server, for lists and watches.
            writing: The same, for everything that must not take long.
            metrics: What is told of decisions.
            clock: The wall clock [s since 1970].
            instance: This replica's name, for events.
            wait: How long a write of the leader before may still be under way [s].
        """
        self._reading, self._writing, self._metrics = reading, writing, metrics
        self._clock, self._instance, self._wait = clock, instance, wait
        self.context: LeaderContext | None = None
        """None while others lead."""

    async def lead(self, term: int) -> None:
        """Plan as the only one, until cancelled; return when another process leads already."""
        informers = Informers(self._reading)
        faults = FaultIsolation(self._metrics, informers.changed.set)
        status_reporter = StatusReporter(
            self._writing,
            lambda: informers.gangs,
            GangStates(informers),
            faults,
            self._clock,
            self._instance,
        )
        planner = Planner(
            self._writing,
            informers,
            status_reporter,
            self._metrics,
            faults,
            term=term,
            clock=self._clock,
        )
        binder = Binder(self._writing, informers, faults, term=term, clock=self._clock)
        self.context = LeaderContext(term, informers, planner, Filter(informers.state), binder)
        try:
            # What the leader before has sent may arrive until then, and must be seen.
            await asyncio.sleep(self._wait)
            async with asyncio.TaskGroup() as group:
                watching = group.create_task(informers.run())
                binding = group.create_task(binder.run())
                await informers.synced()
                _log.info("Leading", term=term)
                telling = group.create_task(
                    report_unaccounted(
                        self._writing, informers.state, faults, self._clock, self._instance
                    )
                )
                try:
                    await planner.run()
                finally:
                    binding.cancel()
                    await status_reporter.close()
                    telling.cancel()
                    watching.cancel()
        except* LeadershipLost as refused:
            _log.warning("Stopped leading", term=term, err=str(refused.exceptions[0]))
        finally:
            self.context = None

    @property
    def leads(self) -> bool:
        """Whether this process decides, or is about to."""
        return self.context is not None

    @property
    def gangs(self) -> Iterable[Gang]:
        """All Gangs, while it leads."""
        return self.context.informers.gangs.values() if self.context else ()

    @property
    def partial(self) -> int | None:
        """Gangs of which some members have their GPUs and others wait; None where nobody looks."""
        return self.context.planner.partial if self.context else None

    @property
    def unaccounted(self) -> int | None:
        """Nodes of which nobody knows what is free; None where nobody looks."""
        if self.context is None or self.context.informers.missing():
            return None
        nodes = self.context.informers.state.snapshot().nodes
        return sum(node.unaccounted is not None for node in nodes)

    @property
    def left_out(self) -> int | None:
        """Pods that are not planned, since too much waits in their namespaces; None as above."""
        return self.context.informers.pods.left_out if self.context else None

    def missing(self) -> str | None:
        """Say what a leader does not know yet; one that waits to lead needs nothing."""
        return self.context.missing() if self.context else None

    def ages(self) -> Mapping[str, float | None]:
        """Return for how long nothing was heard of each resource [s]."""
        if self.context is None:
            return {}
        return {name: age() for name, age in self.context.informers.ages().items()}
