"""Allocate the claims of users: those of a plan all, or none.

kube-scheduler would choose the devices of each pod for itself. Here the scorer writes the status of
the claims before the pods are patched, each on the version of the claim that was read.
"""

import asyncio
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial

import structlog

from linkwise.cluster.allocations.device_claim import ClaimError, ClaimOwner
from linkwise.cluster.allocations.record import Allocation
from linkwise.cluster.allocations.user_claim import (
    ClaimAllocation,
    PodClaim,
    PoolDevice,
    UserClaim,
    allocations_to,
    release_patch,
)
from linkwise.cluster.nodes.node import Node
from linkwise.cluster.requests.user_claims.device_class import DeviceClass, classes_to_read
from linkwise.planning.gang.pod_info import PodInfo
from linkwise.planning.placement.pods.member import Member
from linkwise.runtime.kube.client import ApiError, Kube, KubeError
from linkwise.runtime.kube.paths import path_below
from linkwise.runtime.process.clock import rfc3339
from linkwise.runtime.process.concurrency import map_few
from scorer.commit.claims.planned_claims import RefusedClaim
from scorer.commit.handle import IN_FLIGHT, Handle
from scorer.commit.read_after_write import outcome_unknown
from scorer.fence import WRITE_TIMEOUT
from scorer.metrics import Stage
from scorer.queue.fault_isolation import FAULT

_ATTEMPTS = 3
"""Reads of a claim that changes meanwhile."""
_MAX_ERROR = 300
"""The API server may quote the whole claim in an error [characters]."""
_CLASSES = "/apis/resource.k8s.io/v1/deviceclasses"
_NO_RIGHT = "; manifests/claim-templates has the rights that the scorer needs for it"

_log = structlog.get_logger()


def pod_claims(pod: PodInfo) -> list[PodClaim]:
    """Return the claims that a pod brings; none: not all of them are made from its templates."""
    owner = ClaimOwner(pod.namespace, pod.name, pod.uid)
    return [PodClaim(owner, name) for name in (pod.usage.claims if pod.usage else ())]


def planned_allocations(
    pod: PodInfo, member: Member, allocation: Allocation, node: Node
) -> list[ClaimAllocation]:
    """Return what the claims of a pod are to hold.

    Args:
        pod: The pod.
        member: The same pod as it was planned; it brings claims.
        allocation: Its GPUs.
        node: Their node.

    Raises:
        ClaimError: The claims cannot hold these GPUs.
    """
    claims, brought = pod_claims(pod), member.request.user_claims
    if brought is None or len(claims) != len(brought.claims):
        raise ClaimError("not all its claims are made from their templates yet")
    pool = node.pool
    if pool is None or pool.missing:
        raise ClaimError(f"the slices of node {node.name} are missing")
    devices = {
        card.uuid: PoolDevice(name, facts)
        for card, name, facts in zip(node.cards, pool.devices, pool.facts, strict=True)
        if card.uuid
    }
    return allocations_to(claims, brought, allocation, pool.name, devices)


class ClaimAllocator:
    """Writes the status of claims, for one term of the Lease."""

    def __init__(self, handle: Handle) -> None:
        """Start without writes."""
        self._kube, self._term = handle.kube, handle.term
        self._faults, self._pause = handle.faults, handle.timings.outcome_read
        self._unfenced, self._clock = handle.unfenced, handle.clock

    async def allocate(self, allocations: Sequence[ClaimAllocation]) -> RefusedClaim | None:
        """Allocate all claims, a few at a time; if one is refused, release the others.

        On a node without a fence, kube-scheduler may be about to give the same devices to others.

        Returns:
            None: all are allocated.
        """
        unfenced, classes = self._unfenced() if allocations else {}, _Classes(self._kube)
        for one in allocations:
            if reason := unfenced.get(one.node):
                return _refused(
                    one, f"is not allocated while node {one.node} has no fence: {reason}"
                )
        results = await map_few(partial(self._isolated, classes=classes), allocations, IN_FLIGHT)
        refused = next(filter(None, results), None)
        if refused is not None:
            pairs = zip(allocations, results, strict=True)
            await self.release(one.claim for one, result in pairs if result is None)
        return refused

    async def release(
        self, claims: Iterable[PodClaim], is_orphaned: Callable[[], bool] = lambda: True
    ) -> None:
        """Take the devices from claims again; one that stays is released by a later pass.

        Args:
            claims: Of pods behind our gate.
            is_orphaned: Returns whether their pods still wait, after a claim was read.
        """
        await map_few(partial(self._release_isolated, is_orphaned=is_orphaned), claims, IN_FLIGHT)

    async def _isolated(self, wanted: ClaimAllocation, classes: "_Classes") -> RefusedClaim | None:
        owner = wanted.claim.owner
        with self._faults.isolate(Stage.COMMIT, (owner.namespace, owner.name)):
            return await self._allocate(wanted, classes)
        return RefusedClaim(f"claim of pod {owner.name}: {FAULT}")

    async def _allocate(self, wanted: ClaimAllocation, classes: "_Classes") -> RefusedClaim | None:
        for _ in range(_ATTEMPTS):
            try:
                problem = await self._try_to_allocate(wanted, classes)
            except KubeError as error:
                _log.warning("Could not allocate claim", path=wanted.claim.path, err=str(error))
                if outcome_unknown(error):
                    await asyncio.sleep(self._pause)
                elif not (isinstance(error, ApiError) and error.status == 409):
                    return _refused(wanted, _text(error))
            else:
                return _refused(wanted, problem) if problem else None
        return _refused(wanted, "the API server does not answer, or it changes again and again")

    async def _try_to_allocate(self, wanted: ClaimAllocation, classes: "_Classes") -> str | None:
        """Allocate a claim as it is now; return why that is not possible.

        Raises:
            KubeError: A call failed.
        """
        claim = wanted.claim
        stored = await self._kube.find(claim.path, UserClaim)
        if stored is None:
            return "does not exist; if it is one of a template, kube-controller-manager makes it"
        known = await classes.read(stored)
        if problem := wanted.problem(stored, known, self._term):
            _log.warning("Could not allocate claim", path=claim.path, err=problem)
            return problem
        if wanted.is_written(stored):
            return None
        if stored.is_used:
            stored = await self._patch(claim.status_path, release_patch(stored))
        if prepared := wanted.metadata_patch(stored, self._term):
            stored = await self._patch(claim.path, prepared)
        now = rfc3339(self._clock())
        await self._patch(claim.status_path, wanted.status_patch(stored, known, now))
        return None

    async def _patch(self, path: str, body: object) -> UserClaim:
        return await self._kube.patch(path, body, UserClaim, kind="merge", params=WRITE_TIMEOUT)

    async def _release_isolated(self, claim: PodClaim, is_orphaned: Callable[[], bool]) -> None:
        with self._faults.isolate(Stage.COMMIT, (claim.owner.namespace, claim.owner.name)):
            try:
                stored = await self._kube.find(claim.path, UserClaim)
                if stored and claim.may_be_released(stored) and is_orphaned():
                    await self._patch(claim.status_path, release_patch(stored))
            except KubeError as error:
                _log.warning("Could not release claim", path=claim.path, err=str(error))


class _Classes:
    """The DeviceClasses that the claims of one plan name, each of which is read once."""

    def __init__(self, kube: Kube) -> None:
        self._kube, self._lock = kube, asyncio.Lock()
        self._found: dict[str, DeviceClass | None] = {}

    async def read(self, claim: UserClaim) -> Mapping[str, DeviceClass]:
        """Return the classes that a claim names.

        Raises:
            KubeError: A read failed.
        """
        names = classes_to_read(claim.spec)
        async with self._lock:
            for name in names:
                if name not in self._found:
                    self._found[name] = await self._kube.find(
                        path_below(_CLASSES, name), DeviceClass
                    )
        found = ((name, self._found[name]) for name in names)
        return {name: one for name, one in found if one is not None}


def _refused(wanted: ClaimAllocation, problem: str) -> RefusedClaim:
    claim = wanted.claim
    reason = f"claim of pod {claim.owner.name}: {claim.name} {problem}"
    return RefusedClaim(reason, summary="its resource claims cannot be allocated")


def _text(error: KubeError) -> str:
    lacks_right = isinstance(error, ApiError) and (
        error.status == 403 or "resourceclaims/binding" in str(error)
    )
    return f"cannot be allocated: {str(error)[:_MAX_ERROR]}{_NO_RIGHT if lacks_right else ''}"
