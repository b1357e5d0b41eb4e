"""Commit of one plan: all its claims are written, then all its pods are patched, a few at a time.

Each patch applies only to the pod that was planned. If it is refused, the pod's GPUs are released;
if it has no answer, they stay assumed until a read shows the outcome. If a partial gang is likely
or could not be repaired, a dry run of all patches precedes the writes.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import NamedTuple

import structlog

from linkwise.cluster.allocations.device_claim import ClaimError
from linkwise.cluster.allocations.record import Allocation
from linkwise.cluster.allocations.user_claim import ClaimAllocation
from linkwise.cluster.keys import ALLOCATION
from linkwise.cluster.nodes.node import Node
from linkwise.planning.gang.patches import Step, allocation_annotations, allocation_patch
from linkwise.planning.gang.pod_info import PodInfo
from linkwise.planning.placement.result import Placement
from linkwise.runtime.kube.client import ApiError, KubeError
from linkwise.runtime.kube.objects import AnnotatedObject
from linkwise.runtime.process.concurrency import map_few
from scorer.commit.claims.planned_claims import (
    ClaimWriter,
    CreatedClaim,
    RefusedClaim,
    planned_claim,
)
from scorer.commit.claims.user_claims import ClaimAllocator, planned_allocations
from scorer.commit.handle import IN_FLIGHT, Handle
from scorer.commit.read_after_write import outcome_unknown, read_after_write
from scorer.fence import WRITE_TIMEOUT, LeadershipLost, is_leadership_lost
from scorer.metrics import Stage
from scorer.queue.fault_isolation import FAULT

_DRY_RUN = {**WRITE_TIMEOUT, "dryRun": "All"}
_NO_DRY_RUN = 400
"""Status if the cluster has a webhook that does not support dry runs."""
_TEMPLATE_SPREAD = 1024
"""Annotations of pods of one template differ by no more than this in size [characters]."""
_MAX_ERROR = 300
"""The API server may quote the whole pod in an error [characters]."""

_log = structlog.get_logger()


@dataclass(frozen=True, slots=True)
class PodAllocation:
    """The GPUs of one pod that are about to be written."""

    pod: PodInfo
    placement: Placement
    record: Allocation
    node: Node
    """The node as it was when this was planned."""


@dataclass(frozen=True, slots=True)
class Refused:
    """A pod whose patch was refused, or not sent because a claim of its unit was refused."""

    pod: PodInfo
    reason: str
    """For people."""
    is_invalid: bool = False
    """The pod with its record is invalid: no retry succeeds before the pod changes."""
    summary: str = "the API server refused to update its pods"


class _WrittenClaims(NamedTuple):
    """The claims of a plan."""

    created: Sequence[CreatedClaim]
    allocated: Sequence[ClaimAllocation]
    """Those that the pods bring."""


class Committer:
    """Writes pods, for one term of the Lease."""

    def __init__(self, handle: Handle) -> None:
        """Start without commits."""
        self._kube, self._term, self._clock = handle.kube, handle.term, handle.clock
        self._informers = handle.informers
        self._faults, self._outcome_read = handle.faults, handle.timings.outcome_read
        self._claims, self._allocator = ClaimWriter(handle), ClaimAllocator(handle)
        self._fence_checked = False

    async def commit(self, allocations: Sequence[PodAllocation], *, dry_run: bool) -> list[Refused]:
        """Write all claims, then patch all pods; return those that were refused.

        If a claim is refused, no pod is patched, and no claim is left, or allocated.

        Args:
            allocations: At least one.
            dry_run: Start with a dry run of all patches, and write none if one is refused.

        Raises:
            LeadershipLost: Another process leads.
        """
        if not self._fence_checked:
            with self._faults.isolate(Stage.COMMIT, allocations[0].pod.key):
                self._fence_checked = await self._check_fence(allocations[0])
        if dry_run and (refused := await self._patch_all(allocations, dry_run=True)):
            return [replace(refused[0], pod=allocation.pod) for allocation in allocations]
        claims = await self._write_claims(allocations)
        if isinstance(claims, RefusedClaim):
            reason, is_invalid, summary = claims.reason, claims.is_invalid, claims.summary
            return [
                Refused(allocation.pod, reason, is_invalid=is_invalid, summary=summary)
                for allocation in allocations
            ]
        refused = await self._patch_all(allocations, dry_run=False)
        unused = {refusal.pod.uid for refusal in refused}
        await self._claims.delete(
            claim for claim in claims.created if claim.claim.owner.uid in unused
        )
        await self._allocator.release(
            one.claim for one in claims.allocated if one.claim.owner.uid in unused
        )
        return refused

    async def _write_claims(
        self, allocations: Sequence[PodAllocation]
    ) -> _WrittenClaims | RefusedClaim:
        """Create or allocate the claims of all pods that get their GPUs by one."""
        claims, brought = [], []
        for allocation in allocations:
            member, pod, record = allocation.placement.member, allocation.pod, allocation.record
            try:
                if member.request.user_claims:
                    node = allocation.node
                    brought += planned_allocations(pod, member, record, node)
                elif member.request.by_claim:
                    claims.append(planned_claim(member, pod.namespace, record))
            except ClaimError as error:
                return RefusedClaim(f"claim of pod {pod.name}: {error}")
        created = await self._claims.create(claims)
        if isinstance(created, RefusedClaim):
            return created
        if refused := await self._allocator.allocate(brought):
            await self._claims.delete(created)
            return refused
        return _WrittenClaims(created, brought)

    async def _check_fence(self, allocation: PodAllocation) -> bool:
        """Log an error if the API server accepts writes of the last term; return if that is known.

        It may use an outdated Lease that it no longer watches: Kubernetes up to 1.36 does, once no
        policy's binding has named any Lease (kubernetes/kubernetes issue 130887).
        """
        steps = self._patch_of(allocation, self._term - 1)
        try:
            await self._kube.patch(
                allocation.pod.path, steps, AnnotatedObject, kind="json", params=_DRY_RUN
            )
        except KubeError as error:
            # After any other error nothing is known: this pod may always be refused.
            return is_leadership_lost(error)
        _log.error("Past leaders could still write", term=self._term)
        return True

    async def _patch_all(
        self, allocations: Sequence[PodAllocation], *, dry_run: bool
    ) -> list[Refused]:
        patch = partial(self._isolated, dry_run=dry_run)
        results = await map_few(patch, allocations, IN_FLIGHT)
        return [refused for refused in results if refused is not None]

    def _patch_of(self, allocation: PodAllocation, term: int) -> list[Step]:
        now_ns = int(self._clock() * 1e9)
        annotations = allocation_annotations(
            allocation.placement,
            allocation.record,
            allocation.node,
            self._informers.policy.policy.containers,
            term=term,
            now_ns=now_ns,
        )
        return allocation_patch(
            allocation.placement.member.pod, allocation.record.node, annotations
        )

    async def _isolated(self, allocation: PodAllocation, *, dry_run: bool) -> Refused | None:
        """Return None if the patch of a pod was accepted."""
        with self._faults.isolate(Stage.COMMIT, allocation.pod.key):
            steps = self._patch_of(allocation, self._term)
            return await self._patch(allocation, steps, dry_run=dry_run)
        # Nothing was sent: once a request is sent, `Kube` raises only KubeError.
        return Refused(allocation.pod, f"pod {allocation.pod.name}: {FAULT}")

    async def _patch(
        self, allocation: PodAllocation, steps: list[Step], *, dry_run: bool
    ) -> Refused | None:
        path, params = allocation.pod.path, _DRY_RUN if dry_run else WRITE_TIMEOUT
        try:
            await self._kube.patch(path, steps, AnnotatedObject, kind="json", params=params)
        except KubeError as error:
            if is_leadership_lost(error):
                raise LeadershipLost(str(error)) from error
            if dry_run and isinstance(error, ApiError) and error.status == _NO_DRY_RUN:
                return None
            _log.warning("Could not place pod", pod="/".join(allocation.pod.key), err=str(error))
            if not dry_run and outcome_unknown(error):
                pod = await read_after_write(
                    self._kube, path, AnnotatedObject, pause=self._outcome_read
                )
                if _has_record(pod, allocation):
                    return None
            reason = f"pod {allocation.pod.name}: {str(error)[:_MAX_ERROR]}"
            return Refused(allocation.pod, reason, is_invalid=_is_invalid(error))
        return None


def differ(allocations: Sequence[PodAllocation]) -> bool:
    """Return whether pods differ so much in size that the API server may refuse some of them only.

    It limits the total size of an object's annotations, and users change them pod by pod.
    """
    sizes = [allocation.pod.annotations for allocation in allocations]
    return max(sizes) - min(sizes) > _TEMPLATE_SPREAD


def _is_invalid(error: KubeError) -> bool:
    # A patch that no longer applies is refused with 422, too, but without a cause.
    return isinstance(error, ApiError) and (
        error.status == 413 or (error.status == 422 and bool(error.causes))
    )


def _has_record(pod: AnnotatedObject | None, allocation: PodAllocation) -> bool:
    if pod is None or pod.metadata.uid != allocation.pod.uid:
        return False
    text = (pod.metadata.annotations or {}).get(ALLOCATION)
    return text is not None and f'"{allocation.record.plan}"' in text
