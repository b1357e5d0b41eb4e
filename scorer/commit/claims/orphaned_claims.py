"""Release orphaned claims, of pods that still wait behind our gate.

A leader that ends between the allocation of a claim and the patch of its pod leaves devices that
nobody uses, and so does a release that failed. Until then they count as claimed by others.
"""

import asyncio
from itertools import islice

from linkwise.planning.gang.pod_info import PodInfo
from linkwise.runtime.kube.objects import Key
from linkwise.runtime.process.cooperative import cooperatively
from scorer.cache.claims.claim_holders import claims_of
from scorer.cache.informers import Informers
from scorer.commit.claims.user_claims import ClaimAllocator, pod_claims
from scorer.commit.handle import Handle
from scorer.metrics import Stage

_AT_A_TIME = 32
"""Claims that are released in one pass."""


class OrphanedClaims:
    """Finds orphaned claims, for one term of the Lease."""

    def __init__(self, handle: Handle) -> None:
        """Start without a pass."""
        self._informers, self._faults = handle.informers, handle.faults
        self._allocator = ClaimAllocator(handle)

    async def run(self, interval: float) -> None:
        """Release claims until cancelled.

        Args:
            interval: Between two passes [s].
        """
        await self._faults.repeat(Stage.COMMIT, self._pass, interval)

    async def _pass(self) -> None:
        keys = [
            key
            async for key in cooperatively(self._informers.pods.reflector.items)
            if (pod := self._informers.state.pod(key)) and _is_orphaned(pod, self._informers)
        ]
        await asyncio.gather(*map(self._release, islice(keys, _AT_A_TIME)))

    async def _release(self, key: Key) -> None:
        pod = self._informers.state.pod(key)
        if pod is not None:
            claims = pod_claims(pod)
            await self._allocator.release(claims, lambda: self._still_waits(key, pod.uid))

    def _still_waits(self, key: Key, uid: str) -> bool:
        pod = self._informers.state.pod(key)
        return pod is not None and pod.uid == uid and pod.member is not None


def _is_orphaned(pod: PodInfo, informers: Informers) -> bool:
    """Return whether a pod waits while a claim of it has devices; not while these are written.

    Its GPUs are assumed then, so that it is not seen as waiting.
    """
    if pod.member is None or pod.member.request.user_claims is None:
        return False
    return any(
        claim and claim.holder == pod.uid and not claim.is_used_by_others(pod.uid)
        for claim in claims_of(pod, informers.claims.held)
    )
