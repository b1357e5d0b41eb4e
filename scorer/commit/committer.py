"""A plan carried out: its pods are patched all at once, and commits of two gangs never overlap.

Every write holds for the very pod that was planned. What is refused frees the GPUs that were meant
for it; what has no answer keeps them until a read settles what became of it. Where a partial gang
is likely or could not be mended, the API server tries all patches before the first is written.
"""

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass, replace

import structlog
from msgspec import Struct

from cluster.keys import ALLOCATION
from cluster.node import Node
from cluster.record import Allocation
from runtime.kube.client import ApiError, Kube, KubeError
from runtime.process.clock import Clock
from scorer.commit.patches import Step, placing, record_of
from scorer.commit.read_after_write import outcome_unknown, read_after_write
from scorer.fence import GRANTING, LeadershipLost, is_leadership_lost
from scorer.gang.pod_info import PodInfo
from scorer.metrics import Stage
from scorer.placement.result import Placement
from scorer.queue.fault_isolation import FAULT, FaultIsolation

_TRYING = {**GRANTING, "dryRun": "All"}
_NO_DRY_RUN = 400
"""Status where a cluster has a webhook that cannot take part in a dry run."""
_ALIKE = 1024
"""Pods of one template differ by no more than this in their annotations [characters]."""
_SHOWN = 300
"""The API server may quote the whole pod in an error [characters]."""

_log = structlog.get_logger()


class _Metadata(Struct, frozen=True):
    uid: str = ""
    annotations: dict[str, str] | None = None


class _Pod(Struct, frozen=True):
    metadata: _Metadata = _Metadata()


@dataclass(frozen=True, slots=True)
class PodAllocation:
    """One pod, and what it is about to be given."""

    pod: PodInfo
    placement: Placement
    allocation: Allocation
    node: Node
    """Where to, as it was when this was planned."""


@dataclass(frozen=True, slots=True)
class Refused:
    """A pod that was not given its GPUs."""

    pod: PodInfo
    reason: str
    """For people."""
    is_invalid: bool = False
    """The pod with its record breaks a rule of the API server, until somebody changes the pod."""


class Committer:
    """Who writes on pods, for one term of the Lease."""

    def __init__(self, kube: Kube, term: int, clock: Clock, faults: FaultIsolation) -> None:
        """Say whom to write to, and under which term."""
        self._kube, self._term, self._clock, self._faults = kube, term, clock, faults
        self._fence_is_known = False
        """Whether the fence holds was seen in this term."""

    async def commit(self, grants: Sequence[PodAllocation], *, dry_run: bool) -> list[Refused]:
        """Give all pods what is theirs, concurrently; return those that could not be given.

        Args:
            grants: At least one.
            dry_run: Let the API server try all patches first, and write none where one is refused.

        Raises:
            Deposed: Another process leads.
        """
        if not self._fence_is_known:
            with self._faults.contained(Stage.COMMIT, grants[0].pod.key):
                self._fence_is_known = await self._try_fence(grants[0])
        if dry_run and (refused := await self._give_all(grants, dry_run=True)):
            return [replace(refused[0], pod=grant.pod) for grant in grants]
        return await self._give_all(grants, dry_run=False)

    async def _try_fence(self, grant: PodAllocation) -> bool:
        """Log when the API server would take what the leader before decided; return if it is known.

        It may go by a Lease that it has long ceased to watch: Kubernetes up to 1.36 does, once no
        policy's binding has named any Lease (kubernetes/kubernetes issue 130887).
        """
        path, steps = self._write(grant, self._term - 1)
        try:
            await self._kube.patch(path, steps, _Pod, kind="json", params=_TRYING)
        except KubeError as error:
            # For any other reason this pod may be refused whatever is written on it.
            return is_leadership_lost(error)
        _log.error("Past leaders could still write", term=self._term)
        return True

    async def _give_all(self, grants: Sequence[PodAllocation], *, dry_run: bool) -> list[Refused]:
        done = await asyncio.gather(*(self._give(grant, dry_run=dry_run) for grant in grants))
        return [refused for refused in done if refused is not None]

    def _write(self, grant: PodAllocation, term: int) -> tuple[str, list[Step]]:
        """Return the pod's path, and its patch."""
        path = f"/api/v1/namespaces/{grant.pod.namespace}/pods/{grant.pod.name}"
        now_ns = int(self._clock() * 1e9)
        record = record_of(grant.placement, grant.allocation, grant.node, term=term, now_ns=now_ns)
        return path, placing(grant.placement.member.pod, grant.allocation.node, record)

    async def _give(self, grant: PodAllocation, *, dry_run: bool) -> Refused | None:
        """Return None where a pod has its GPUs, or would have them."""
        with self._faults.contained(Stage.COMMIT, grant.pod.key):
            path, steps = self._write(grant, self._term)
            return await self._patch(grant, path, steps, dry_run=dry_run)
        # Nothing was sent: whatever `Kube` raises afterwards is a KubeError.
        return Refused(grant.pod, f"pod {grant.pod.name}: {FAULT}")

    async def _patch(
        self, grant: PodAllocation, path: str, steps: list[Step], *, dry_run: bool
    ) -> Refused | None:
        params = _TRYING if dry_run else GRANTING
        try:
            await self._kube.patch(path, steps, _Pod, kind="json", params=params)
        except KubeError as error:
            if is_leadership_lost(error):
                raise LeadershipLost(str(error)) from error
            if dry_run and isinstance(error, ApiError) and error.status == _NO_DRY_RUN:
                return None
            _log.warning("Could not place pod", pod="/".join(grant.pod.key), err=str(error))
            wrote = not dry_run and outcome_unknown(error)
            if wrote and _has(await read_after_write(self._kube, path, _Pod), grant):
                return None
            reason = f"pod {grant.pod.name}: {str(error)[:_SHOWN]}"
            return Refused(grant.pod, reason, is_invalid=_is_invalid(error))
        return None


def differ(grants: Sequence[PodAllocation]) -> bool:
    """Tell whether pods differ so much in size that the API server may refuse some of them only.

    It limits all annotations of an object together, and users change them pod by pod.
    """
    sizes = [grant.pod.annotations for grant in grants]
    return max(sizes) - min(sizes) > _ALIKE


def _is_invalid(error: KubeError) -> bool:
    # A patch that does not apply any more is refused with 422, too, but without a cause.
    return isinstance(error, ApiError) and (
        error.status == 413 or (error.status == 422 and bool(error.causes))
    )


def _has(found: _Pod | None, grant: PodAllocation) -> bool:
    if found is None or found.metadata.uid != grant.pod.uid:
        return False
    text = (found.metadata.annotations or {}).get(ALLOCATION)
    return text is not None and f'"{grant.allocation.plan}"' in text
