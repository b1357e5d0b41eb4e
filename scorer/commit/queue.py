"""Plans on their way to the API server: recorded at once, written one after the other.

No two gangs share the way, so that none is half placed for long. While one is written the next are
planned, and their plans recorded.
"""

import asyncio
from collections import deque
from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass

import structlog

from cluster.gang import GangKey
from runtime.kube.client import KubeError
from runtime.process.clock import loop_time
from scorer.cache.cluster_state import ClusterState
from scorer.commit.binding_tracker import BindingTracker, plan_id_of
from scorer.commit.committer import Committer, PodAllocation, Refused, differ
from scorer.commit.patches import allocation_of
from scorer.gang.crd import GangPlan, Phase
from scorer.gang.pod_info import PodInfo
from scorer.gang.unit import Unit
from scorer.metrics import Metrics, Stage
from scorer.placement.result import Placement
from scorer.queue.backoff import Backoff
from scorer.queue.fault_isolation import FAULT, FaultIsolation
from scorer.report.status_reporter import StatusReporter, StatusUpdate

_REFUSED = "the API server did not let its pods go"
_UNRECORDED = "the API server did not take its plan"
_LONGEST = 60.0
"""Between two tries of who is always refused, at most [s]."""
_ENOUGH = 32
"""So many pods that wait to be written keep the API server busy while others are planned."""
_SUSPECT_FOR = 3600.0
"""For so long a gang is tried by a dry run after only some of its pods were refused [s]."""

_log = structlog.get_logger()


@dataclass(frozen=True, slots=True)
class CommitJob:
    """A unit whose GPUs are held."""

    unit: Unit
    plan_id: str
    grants: tuple[PodAllocation, ...]
    recorded: asyncio.Task[str | None]
    """Done when its Gang has the plan, or why it could not be written."""
    complete: float
    """Since when all of it waited [s, of the loop's clock]."""


class CommitQueue:
    """What was decided and is to be carried out."""

    def __init__(  # noqa: PLR0913 - everybody who has a part in it.
        self,
        state: ClusterState,
        committer: Committer,
        binding_tracker: BindingTracker,
        status_reporter: StatusReporter,
        metrics: Metrics,
        faults: FaultIsolation,
        *,
        again: float,
        changed: Callable[[], None],
    ) -> None:
        """Say what holds GPUs, who writes, and who is told.

        Args:
            state: Counts GPUs as held.
            committer: Writes on pods.
            binding_tracker: Sees plans through.
            status_reporter: Records plans.
            metrics: Counts.
            faults: Contains faults of ours.
            again: Before what was refused is tried again [s].
            changed: Called when there is something new to decide.
        """
        self._state, self._committer, self._binding_tracker = state, committer, binding_tracker
        self._status_reporter, self._metrics, self._faults = status_reporter, metrics, faults
        self._again, self._changed = again, changed
        self._refused = Backoff(again, _LONGEST, changed)
        """Whose plan, or all whose pods, were refused the last time."""
        self._suspects: dict[GangKey, float] = {}
        """Gangs of which only some pods were refused, and until when they are tried by a dry run
        [s, of the loop's clock]."""
        self._jobs: deque[CommitJob] = deque()
        self._queued = asyncio.Event()

    @property
    def is_full(self) -> bool:
        """Whether more plans now would only be older when their turn comes."""
        return sum(len(job.grants) for job in self._jobs) >= _ENOUGH

    def why_resting(self, key: GangKey) -> str | None:
        """Say why a gang is not to be planned yet: what was refused. None: it may be planned."""
        return self._refused.why(key)

    def was_refused(self, key: GangKey) -> bool:
        """Tell whether a gang was refused lately: others come first, whom it would hold up."""
        return self._refused.has_rested(key)

    def forget(self, key: GangKey) -> None:
        """Forget how it went with a gang: it went well, or no pod of it is there."""
        self._refused.forget(key)

    def put(
        self, unit: Unit, placements: Sequence[Placement], plan: GangPlan, *, complete: float
    ) -> None:
        """Hold what is planned, and carry it out when its turn comes.

        Args:
            unit: The pods that wait.
            placements: Where each of them goes.
            plan: The same, and how good it is, as it is recorded.
            complete: Since when all of it waited [s, of the loop's clock].
        """
        snapshot = self._state.snapshot()
        grants = tuple(
            PodAllocation(
                pod,
                placement,
                allocation_of(placement, snapshot.tables.get(placement.node), plan.id),
                snapshot.ledger.nodes[placement.node].node,
            )
            for pod, placement in zip(unit.waiting, placements, strict=True)
        )
        for grant in grants:
            self._state.assume(grant.pod, grant.allocation)
        recorded = asyncio.create_task(self._record(unit, plan))
        self._jobs.append(CommitJob(unit, plan.id, grants, recorded, complete))
        self._queued.set()
        # What is held is read again in the next round.
        self._changed()

    async def run(self) -> None:
        """Carry out what is queued, one unit after the other, until cancelled.

        Raises:
            Deposed: Another process leads by now.
        """
        while True:
            while not self._jobs:
                self._queued.clear()
                await self._queued.wait()
            job = self._jobs.popleft()
            # After a fault the GPUs stay held: what was written is not known.
            with self._faults.contained(Stage.COMMIT, job.unit.key):
                await self._carry_out(job)

    def close(self) -> None:
        """Record nothing more: the next leader may have written another plan there by now."""
        for job in self._jobs:
            job.recorded.cancel()

    async def _carry_out(self, job: CommitJob) -> None:
        # There is room for another.
        self._changed()
        error = await job.recorded
        if error is not None:
            self._rest(job, f"{_UNRECORDED}: {error}")
            return
        began = loop_time()
        refused = await self._committer.commit(job.grants, dry_run=self._is_suspect(job))
        now = loop_time()
        self._metrics.committed(now - began, conflicts=len(refused))
        if len(refused) == len(job.grants):
            is_invalid = any(one.is_invalid for one in refused)
            self._rest(job, f"{_REFUSED}: {refused[0].reason}", longest=is_invalid)
            return
        self.forget(job.unit.key)
        if not refused:
            self._metrics.placed(now - job.complete)
        self._drop(job.unit.key, refused)

    def _is_suspect(self, job: CommitJob) -> bool:
        """Tell whether all patches are tried before the first is written, for a request each.

        They are where some pods only may be refused, and where nothing could mend that: members
        that have their GPUs could not be moved.
        """
        grants = job.grants
        return len(grants) > 1 and (
            self._suspects.get(job.unit.key, 0.0) > loop_time()
            or differ(grants)
            or self._binding_tracker.why_immovable(grant.pod for grant in grants) is not None
        )

    async def _record(self, unit: Unit, plan: GangPlan) -> str | None:
        with self._faults.contained(Stage.RECORD, unit.key):
            return await self._try_to_record(unit, plan)
        return FAULT

    async def _try_to_record(self, unit: Unit, plan: GangPlan) -> str | None:
        self._binding_tracker.begin(unit, plan)
        try:
            if unit.is_gang:
                await self._status_reporter.record(unit, plan)
        except KubeError as error:
            name = f"{unit.key.namespace}/{unit.key.name}"
            _log.warning("Could not record plan", gang=name, err=str(error))
            return str(error)
        return None

    def _rest(self, job: CommitJob, why: str, *, longest: bool = False) -> None:
        """Free all that was kept, and let others have it for a while: longer each time."""
        key = job.unit.key
        if job.unit.settled and (stays := self._binding_tracker.why_immovable(job.unit.settled)):
            why = f"{why}; {stays}"
        pause = self._refused.begin(key, why, longest=longest)
        self._free([grant.pod for grant in job.grants])
        if job.plan_id not in map(plan_id_of, self._state.group(job.unit.group)):
            self._binding_tracker.drop(key, job.plan_id)
        reason = f"{why}; tried again in {pause:g} s"
        members = job.unit.present, job.unit.needed
        self._status_reporter.enqueue(
            StatusUpdate(job.unit, Phase.WAITING, members, reason=reason, refused=True)
        )

    def _drop(self, key: GangKey, refused: Collection[Refused]) -> None:
        """Free what could not be given; the pods, as far as they are still there, wait again.

        Not at once: who is always refused would be tried without end. Until then it is kept for
        them, since other members of their gang have theirs.
        """
        if refused:
            now = loop_time()
            self._suspects = {one: until for one, until in self._suspects.items() if until > now}
            self._suspects[key] = now + _SUSPECT_FOR
            pods = [one.pod for one in refused]
            asyncio.get_running_loop().call_later(self._again, self._free, pods)

    def _free(self, pods: Iterable[PodInfo]) -> None:
        for pod in pods:
            self._state.forget(pod)
        self._changed()
