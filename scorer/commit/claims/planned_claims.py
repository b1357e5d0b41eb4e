"""Write the ResourceClaims of a plan: all of them, or none.

They are created before the pods are patched, so that a gang of which one claim is refused, such as
by a quota, keeps all its gates. An owner reference to the pod deletes each claim with it.
"""

import asyncio
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import structlog

from linkwise.cluster.allocations.device_claim import (
    ClaimError,
    ClaimOwner,
    DeviceClaim,
    Match,
    StoredClaim,
    claim_of,
    compare,
)
from linkwise.cluster.allocations.record import Allocation
from linkwise.cluster.requests.claimed import claim_name
from linkwise.planning.placement.pods.member import Member
from linkwise.runtime.kube.client import ApiError, KubeError
from linkwise.runtime.kube.errors import is_outdated
from linkwise.runtime.process.concurrency import map_few
from scorer.commit.handle import IN_FLIGHT, Handle
from scorer.commit.read_after_write import outcome_unknown, read_after_write
from scorer.fence import WRITE_TIMEOUT
from scorer.metrics import Stage
from scorer.queue.fault_isolation import FAULT

_ATTEMPTS = 3
"""Creations of a claim whose name is taken, and deletions of one without an answer."""
_MAX_ERROR = 300
"""The API server may quote the whole claim in an error [characters]."""

_log = structlog.get_logger()


@dataclass(frozen=True, slots=True)
class CreatedClaim:
    """A claim that exists as it was planned."""

    claim: DeviceClaim
    uid: str


@dataclass(frozen=True, slots=True)
class RefusedClaim:
    """Why a claim cannot be created, or allocated."""

    reason: str
    """For people."""
    is_invalid: bool = False
    """No retry succeeds before the pod changes."""
    summary: str = "its resource claims cannot be created"


def planned_claim(member: Member, namespace: str, allocation: Allocation) -> DeviceClaim:
    """Return the claim of a pod that gets its GPUs by one.

    Args:
        member: The pod as it was planned.
        namespace: Its namespace.
        allocation: Its GPUs.

    Raises:
        ClaimError: No claim gives the pod these GPUs.
    """
    metadata, spec = member.pod.metadata, member.pod.spec
    name = claim_name(spec)
    if name is None:
        raise ClaimError("it refers to no claim that Linkwise could create")
    owner = ClaimOwner(namespace, metadata.name, metadata.uid)
    claim = claim_of(owner, name, member.request, allocation.gpus.shares)
    claim.check_references(spec)
    return claim


class ClaimWriter:
    """Creates and deletes claims, for one term of the Lease."""

    def __init__(self, handle: Handle) -> None:
        """Start without writes."""
        self._kube, self._term, self._metrics = handle.kube, handle.term, handle.metrics
        self._faults, self._pause = handle.faults, handle.timings.outcome_read

    async def create(self, claims: Sequence[DeviceClaim]) -> list[CreatedClaim] | RefusedClaim:
        """Create all claims, a few at a time. If one is refused, delete those that were created.

        A claim that an earlier leader left under the same name is replaced.
        """
        results = await map_few(self._create_isolated, claims, IN_FLIGHT)
        created = [result for result in results if isinstance(result, CreatedClaim)]
        refused = [result for result in results if isinstance(result, RefusedClaim)]
        if not refused:
            return created
        await self.delete(created)
        return refused[0]

    async def delete(self, claims: Iterable[CreatedClaim]) -> None:
        """Delete claims, a few at a time. One that stays is deleted with its pod, or replaced."""
        await map_few(self._delete_isolated, claims, IN_FLIGHT)

    async def withdraw(self, claim: DeviceClaim, found: StoredClaim) -> bool:
        """Delete the claim of a pod as it was read; return whether no scheduler can allocate it.

        Raises:
            KubeError: The call failed.
        """
        if found.controller not in {None, claim.owner.uid}:
            return True
        try:
            metadata = found.metadata
            await self._kube.delete(claim.path, body=_only(metadata.uid, metadata.resource_version))
        except ApiError as error:
            if not is_outdated(error):
                raise
            return error.status == 404
        return True

    async def _create_isolated(self, claim: DeviceClaim) -> CreatedClaim | RefusedClaim:
        with self._faults.isolate(Stage.COMMIT, (claim.owner.namespace, claim.owner.name)):
            return await self._create(claim)
        return RefusedClaim(f"claim of pod {claim.owner.name}: {FAULT}")

    async def _create(self, claim: DeviceClaim) -> CreatedClaim | RefusedClaim:
        for _ in range(_ATTEMPTS):
            try:
                result = await self._try_to_create(claim)
            except KubeError as error:
                _log.warning("Could not create claim", path=claim.path, err=str(error))
                is_invalid = isinstance(error, ApiError) and error.status in {413, 422}
                reason = f"claim of pod {claim.owner.name}: {str(error)[:_MAX_ERROR]}"
                return RefusedClaim(reason, is_invalid=is_invalid)
            if result is not None:
                return result
        return self._taken(claim, "is created by others again and again")

    async def _try_to_create(self, claim: DeviceClaim) -> CreatedClaim | RefusedClaim | None:
        """Create a claim; return None if its name was taken, and is free now.

        Raises:
            KubeError: It is refused.
        """
        try:
            stored = await self._kube.create(
                claim.collection, claim.body(self._term), StoredClaim, params=WRITE_TIMEOUT
            )
        except KubeError as error:
            found = await self._after(claim, error)
            if found is None:
                raise
            return await self._resolve(claim, found)
        return CreatedClaim(claim, stored.metadata.uid)

    async def _after(self, claim: DeviceClaim, error: KubeError) -> StoredClaim | None:
        """Return the claim of this name after a creation failed."""
        if outcome_unknown(error):
            return await read_after_write(self._kube, claim.path, StoredClaim, pause=self._pause)
        if isinstance(error, ApiError) and error.status == 409:
            return await self._kube.find(claim.path, StoredClaim)
        return None

    async def _resolve(
        self, claim: DeviceClaim, found: StoredClaim
    ) -> CreatedClaim | RefusedClaim | None:
        """Return what becomes of a claim whose name another one has; None: that one is deleted."""
        match compare(claim, found, self._term):
            case Match.SAME:
                return CreatedClaim(claim, found.metadata.uid)
            case Match.FOREIGN:
                return self._taken(claim, "exists already: it is in use, or not of this pod")
            case Match.UNOWNED:
                self._metrics.claim_conflict()
            case Match.OUTDATED:
                pass
        _log.info("Replacing claim", path=claim.path)
        version = found.metadata.resource_version
        try:
            await self._kube.delete(claim.path, body=_only(found.metadata.uid, version))
        except ApiError as error:
            if not is_outdated(error):
                raise
        return None

    def _taken(self, claim: DeviceClaim, problem: str) -> RefusedClaim:
        self._metrics.claim_conflict()
        _log.warning("Claim conflicts", path=claim.path, err=problem)
        return RefusedClaim(f"claim of pod {claim.owner.name}: {claim.name} {problem}")

    async def _delete_isolated(self, created: CreatedClaim) -> None:
        owner = created.claim.owner
        with self._faults.isolate(Stage.COMMIT, (owner.namespace, owner.name)):
            await self._delete(created)

    async def _delete(self, created: CreatedClaim) -> None:
        for _ in range(_ATTEMPTS):
            try:
                await self._kube.delete(created.claim.path, body=_only(created.uid))
            except KubeError as error:
                if is_outdated(error):
                    return
                _log.warning("Could not delete claim", path=created.claim.path, err=str(error))
                await asyncio.sleep(self._pause)
            else:
                return


def _only(uid: str, version: str = "") -> dict[str, object]:
    """Return the options of a deletion that applies to one object, of one version if given."""
    preconditions = {"uid": uid, **({"resourceVersion": version} if version else {})}
    return {"preconditions": preconditions}
