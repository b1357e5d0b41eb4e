"""Report problems of the claims of pods by Events.

A claim holds other GPUs than planned, another pod uses it, or its node does not prepare its pod.
"""

from collections import Counter
from collections.abc import AsyncIterator, Iterator, Mapping

from linkwise.cluster.allocations.gpus import Exact, GPUs
from linkwise.planning.gang.crd import Gang
from linkwise.planning.gang.events import (
    EventMessage,
    claim_differs,
    claim_shared,
    claim_unprepared,
    event_about,
)
from linkwise.planning.gang.pod_info import PodInfo
from linkwise.runtime.kube.event_recorder import Event, EventRecorder
from linkwise.runtime.process.clock import Clock
from linkwise.runtime.process.cooperative import cooperatively
from scorer.cache.informers import Informers
from scorer.metrics import Stage
from scorer.queue.fault_isolation import FaultIsolation
from scorer.report.status_reporter import StatusReporter
from scorer.report.status_update import about_gang


class ClaimProblems:
    """The problems of the claims of pods, for one term of the Lease."""

    def __init__(
        self,
        informers: Informers,
        recorder: EventRecorder,
        status_reporter: StatusReporter,
        faults: FaultIsolation,
        clock: Clock,
    ) -> None:
        """Report nothing yet."""
        self._informers, self._recorder = informers, recorder
        self._status_reporter = status_reporter
        self._faults, self._clock = faults, clock
        self._reported: frozenset[tuple[str, EventMessage]] = frozenset()
        """Uid of the pod, and what was reported about it."""

    @property
    def counts(self) -> Mapping[str, int]:
        """The number of pods by the reason of their Event."""
        return Counter(message.reason.value for _, message in self._reported)

    async def run(self, interval: float) -> None:
        """Report each problem once, until cancelled.

        Args:
            interval: Between two passes over all pods with claims [s].
        """
        await self._faults.repeat(Stage.REPORT, self._pass, interval)

    async def _pass(self) -> None:
        await self._read_errors()
        found: set[tuple[str, EventMessage]] = set()
        async for pod in self._pods():
            for message in self._problems(pod):
                problem = pod.uid, message
                if problem in self._reported or self._report(pod, message):
                    found.add(problem)
        self._reported = frozenset(found)

    async def _pods(self) -> AsyncIterator[PodInfo]:
        """Yield all pods with claims; other tasks run meanwhile."""
        async for key in cooperatively(self._informers.claim_holders.all_pods()):
            if pod := self._informers.state.pod(key):
                yield pod

    async def _read_errors(self) -> None:
        """Read what kubelets say about unprepared pods, and correct the status of their Gangs."""
        now = self._clock()
        unprepared = [pod async for pod in self._pods() if pod.is_unprepared(now)]
        for pod in await self._informers.preparation_errors.read(unprepared, now):
            if gang := self._gang(pod):
                self._status_reporter.reconcile(gang.key)

    def _gang(self, pod: PodInfo) -> Gang | None:
        return self._informers.gang(self._informers.owners.key(pod)) if pod.gang else None

    def _problems(self, pod: PodInfo) -> Iterator[EventMessage]:
        usage = pod.usage
        if usage is None or usage.allocation is None or not usage.claims:
            return
        node = self._informers.state.node(usage.target)
        held, planned = usage.claimed_gpus(node) if node else None, usage.allocation.gpus
        if isinstance(held, Exact) and _uuids(held) != _uuids(planned):
            yield claim_differs(usage.target, held.indices, planned.indices)
        for name in usage.claims:
            claim = self._informers.claims.held.get((pod.namespace, name))
            if claim and claim.owner == pod.uid and claim.is_used_by_others(pod.uid):
                yield claim_shared(name)
        errors = self._informers.preparation_errors
        if pod.is_unprepared(self._clock()) and errors.is_read(pod):
            yield claim_unprepared(usage.node, errors.of(pod))

    def _report(self, pod: PodInfo, message: EventMessage) -> bool:
        """Create the Events of a problem, and correct the status of the Gang.

        Returns whether the recorder takes all Events.
        """
        events = [event_about(pod, message)]
        if gang := self._gang(pod):
            change = f"Pod {pod.name}: {message.text}"
            text = f"{change}{message.detail}"
            events.append(Event(about_gang(gang), message.reason, text, change))
            # No change of a pod precedes a problem that is one by its duration.
            self._status_reporter.reconcile(gang.key)
        return all(self._recorder.record(event) for event in events)


def _uuids(gpus: GPUs) -> set[str | None]:
    return {share.uuid for share in gpus.shares}
