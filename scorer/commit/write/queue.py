"""The commits of planned units: plans are recorded immediately, pods are written unit by unit.

Commits of two gangs never overlap, so that no gang is partial for long. While one is written, the
next ones are planned, and their plans recorded.
"""

import asyncio
from collections import deque
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass

import structlog

from linkwise.cluster.gang import GangKey
from linkwise.planning.gang.crd import Phase
from linkwise.planning.gang.crd_plan import GangPlan
from linkwise.planning.gang.patches import allocation_of
from linkwise.planning.gang.plan_record import plan_id_of
from linkwise.planning.gang.pod_info import PodInfo
from linkwise.planning.gang.unit import Unit
from linkwise.planning.placement.result import Placement
from linkwise.runtime.kube.client import KubeError
from linkwise.runtime.process.backoff import Backoff
from linkwise.runtime.process.clock import loop_time
from scorer.commit.binding.tracker import BindingTracker
from scorer.commit.handle import Handle
from scorer.commit.write.committer import Committer, PodAllocation, Refused, differ
from scorer.metrics import Stage
from scorer.queue.fault_isolation import FAULT
from scorer.report.status_update import StatusUpdate

_UNRECORDED = "the API server refused its plan"
_RETRY_MAX = 60.0
"""The longest delay before a refused unit is tried again [s]."""
_FULL = 32
"""So many queued pods keep the API server busy while others are planned."""
_SUSPECT_FOR = 3600.0
"""Time after a refusal for which the commits of a gang start with a dry run [s]."""

_log = structlog.get_logger()


@dataclass(frozen=True, slots=True)
class CommitJob:
    """A unit whose GPUs are assumed."""

    unit: Unit
    plan_id: str
    allocations: tuple[PodAllocation, ...]
    recorded: asyncio.Task[str | None]
    """Writes the plan into the Gang; returns why it could not, or None."""
    ready_since: float
    """Since when all of the unit waited [s, of the loop's clock]."""


class CommitQueue:
    """The units that were planned and are not written yet."""

    def __init__(self, handle: Handle, binding_tracker: BindingTracker) -> None:
        """Start without units."""
        self._state, self._on_change = handle.informers.state, handle.informers.changed.set
        self._workloads = handle.informers.workloads
        self._status_reporter, self._metrics = handle.status_reporter, handle.metrics
        self._faults, self._retry = handle.faults, handle.timings.commit_retry
        self._committer, self._binding_tracker = Committer(handle), binding_tracker
        self._backoff = Backoff(self._retry, _RETRY_MAX, self._on_change)
        """Units whose plan, a claim, or all of whose pods were refused."""
        self._suspects: dict[GangKey, float] = {}
        """Gangs of which some pods were refused, and until when their commits start with a dry run
        [s, of the loop's clock]."""
        self._jobs: deque[CommitJob] = deque()
        self._added = asyncio.Event()

    @property
    def is_full(self) -> bool:
        """Further plans would be outdated by the time they are written."""
        return sum(len(job.allocations) for job in self._jobs) >= _FULL

    def backoff_reason(self, key: GangKey) -> str | None:
        """Return why a unit must not be planned yet: its last refusal. None: it may be planned."""
        return self._backoff.reason(key)

    def has_failed(self, key: GangKey) -> bool:
        """Return whether a unit was refused lately, so that it is planned after the others."""
        return self._backoff.has_failed(key)

    def forget(self, key: GangKey) -> None:
        """Forget the failures of a unit: it succeeded, or has no pods left."""
        self._backoff.reset(key)

    def add(
        self, unit: Unit, placements: Sequence[Placement], plan: GangPlan, *, ready_since: float
    ) -> None:
        """Assume the allocations of a plan, record the plan, and queue the writes of its pods.

        Args:
            unit: The pods that wait.
            placements: The nodes and GPUs of these pods.
            plan: The plan as it is recorded.
            ready_since: Since when all of the unit waited [s, of the loop's clock].
        """
        snapshot = self._state.snapshot()
        allocations = tuple(
            PodAllocation(
                pod,
                placement,
                allocation_of(placement, node, snapshot.tables.get(placement.node), plan.id),
                node.node,
            )
            for pod, placement in zip(unit.waiting, placements, strict=True)
            for node in (snapshot.ledger.nodes[placement.node],)
        )
        for allocation in allocations:
            self._state.assume(allocation.pod, allocation.record)
        recorded = asyncio.create_task(self._record(unit, plan))
        self._jobs.append(CommitJob(unit, plan.id, allocations, recorded, ready_since))
        self._added.set()
        # The next round must see what is assumed.
        self._on_change()

    async def run(self) -> None:
        """Commit the queued units one by one until cancelled.

        Raises:
            LeadershipLost: Another process leads.
        """
        while True:
            while not self._jobs:
                self._added.clear()
                await self._added.wait()
            job = self._jobs.popleft()
            # After a fault the allocations stay assumed, since they may have been written.
            with self._faults.isolate(Stage.COMMIT, job.unit.key):
                await self._commit(job)
            self._binding_tracker.written(job.unit.key, job.plan_id)

    def close(self) -> None:
        """Record no more plans: the next leader may already have recorded others."""
        for job in self._jobs:
            job.recorded.cancel()

    async def _commit(self, job: CommitJob) -> None:
        # The queue has room again.
        self._on_change()
        error = await job.recorded
        if error is not None:
            self._back_off(job, f"{_UNRECORDED}: {error}")
            return
        started = loop_time()
        refused = await self._committer.commit(job.allocations, dry_run=self._needs_dry_run(job))
        now = loop_time()
        self._metrics.committed(now - started, conflicts=len(refused))
        if len(refused) == len(job.allocations):
            is_invalid = any(refusal.is_invalid for refusal in refused)
            reason = f"{refused[0].summary}: {refused[0].reason}"
            self._back_off(job, reason, at_maximum=is_invalid)
            return
        self.forget(job.unit.key)
        if not refused:
            self._metrics.placed(now - job.ready_since)
        self._retry_refused(job.unit.key, refused)

    def _needs_dry_run(self, job: CommitJob) -> bool:
        """Return whether a dry run of all patches must precede the writes, at one request each.

        This is so if the API server may refuse some of the pods only, and if that could not be
        repaired because the other members could not be evicted.
        """
        allocations = job.allocations
        return len(allocations) > 1 and (
            self._suspects.get(job.unit.key, 0.0) > loop_time()
            or differ(allocations)
            or self._workloads.eviction_blocker(one.pod for one in allocations) is not None
        )

    async def _record(self, unit: Unit, plan: GangPlan) -> str | None:
        with self._faults.isolate(Stage.RECORD, unit.key):
            return await self._try_to_record(unit, plan)
        return FAULT

    async def _try_to_record(self, unit: Unit, plan: GangPlan) -> str | None:
        self._binding_tracker.track(unit, plan)
        try:
            if unit.is_gang:
                await self._status_reporter.record_plan(unit, plan)
        except KubeError as error:
            name = f"{unit.key.namespace}/{unit.key.name}"
            _log.warning("Could not record plan", gang=name, err=str(error))
            return str(error)
        return None

    def _back_off(self, job: CommitJob, reason: str, *, at_maximum: bool = False) -> None:
        """Release the allocations of a refused unit, and let it back off."""
        key, settled = job.unit.key, job.unit.settled
        if settled and (blocker := self._workloads.eviction_blocker(settled)):
            reason = f"{reason}; {blocker}"
        delay = self._backoff.start(key, reason, at_maximum=at_maximum)
        self._release([allocation.pod for allocation in job.allocations])
        if job.plan_id not in map(plan_id_of, self._state.groups.of(job.unit.group)):
            self._binding_tracker.untrack(key, job.plan_id)
        self._status_reporter.enqueue(
            StatusUpdate(
                job.unit,
                Phase.WAITING,
                (job.unit.present, job.unit.needed),
                reason=f"{reason}; tried again in {delay:g} s",
                refused=True,
            )
        )

    def _retry_refused(self, key: GangKey, refused: Collection[Refused]) -> None:
        """Let pods wait again that were refused while other members of their gang were written.

        Their allocations stay assumed until the delay ends, since the other members need them
        there.
        """
        if refused:
            now = loop_time()
            self._suspects = {gang: until for gang, until in self._suspects.items() if until > now}
            self._suspects[key] = now + _SUSPECT_FOR
            pods = [refusal.pod for refusal in refused]
            asyncio.get_running_loop().call_later(self._retry, self._release, pods)

    def _release(self, pods: Iterable[PodInfo]) -> None:
        for pod in pods:
            self._state.forget(pod)
        self._on_change()
