"""Leave pods to kube-scheduler that name a claim which has its devices by another pod already.

Several pods may name one claim: the first one is placed by Linkwise, and its claim allocated.
kube-scheduler binds the others to the node of the claim. While no pod uses the claim that stays, as
after one that has ended, they wait: kube-controller-manager takes the devices from such a claim,
and kube-scheduler would not find others at our fence.
"""

import asyncio
from itertools import islice

import structlog

from linkwise.cluster.keys import LEFT_TO_SCHEDULER, TERM
from linkwise.cluster.nodes.device_claims import HeldClaim
from linkwise.planning.gang.events import SHARED
from linkwise.planning.gang.patches import ungating_patch
from linkwise.planning.gang.pod_info import PodInfo
from linkwise.runtime.kube.client import KubeError
from linkwise.runtime.kube.objects import AnnotatedObject
from linkwise.runtime.process.backoff import Backoff
from linkwise.runtime.process.cooperative import cooperatively
from scorer.cache.claims.claim_holders import claims_of
from scorer.commit.handle import Handle
from scorer.fence import WRITE_TIMEOUT, is_leadership_lost
from scorer.metrics import Stage

_AT_A_TIME = 32
"""Pods that are delegated to kube-scheduler in one pass."""
_RETRY, _RETRY_MAX = 2.0, 60.0
"""After a pod could not be patched, at first and at most [s]."""

_log = structlog.get_logger()


class SharedClaims:
    """Looks for such pods, for one term of the Lease."""

    def __init__(self, handle: Handle) -> None:
        """Start without a pass."""
        self._kube, self._informers = handle.kube, handle.informers
        self._faults, self._term = handle.faults, handle.term
        # So that pods which cannot be patched leave room for others.
        self._backoff = Backoff(_RETRY, _RETRY_MAX, lambda: None)
        """By uid of the pod."""

    async def run(self, interval: float) -> None:
        """Leave pods to kube-scheduler until cancelled.

        Args:
            interval: Between two passes [s].
        """
        await self._faults.repeat(Stage.COMMIT, self._pass, interval)

    async def _pass(self) -> None:
        state = self._informers.state
        found = [
            (pod, claim)
            async for group in cooperatively(state.groups)
            for pod in state.groups.of(group)
            if (claim := self._shared_claim(pod))
        ]
        if not found:
            return
        stay = {pod.uid async for pod in cooperatively(state.pods) if pod.bound and pod.usage}
        shared = (
            (pod, claim.name)
            for pod, claim in found
            if any(user in stay and user != pod.uid for user in claim.users)
        )
        await asyncio.gather(*(self._leave(*one) for one in islice(shared, _AT_A_TIME)))

    def _shared_claim(self, pod: PodInfo) -> HeldClaim | None:
        """Return a claim by which a single pod that waits would share the GPUs of another one.

        None, too, while another claim of the pod has no devices: kube-scheduler would find none.
        """
        is_planned = pod.member is not None and not pod.unplannable
        if not is_planned or pod.gang or pod.uid in self._backoff:
            return None
        held = claims_of(pod, self._informers.claims.held)
        shared = (claim for claim in held if claim and claim.is_used_by_others(pod.uid))
        return next(shared, None) if all(held) else None

    async def _leave(self, pod: PodInfo, claim: str) -> None:
        """Remove the gate of a pod, and write why it has no GPUs of Linkwise."""
        assert pod.member is not None  # noqa: S101 - it waits.
        delegated = f"claim {claim}: {SHARED}"
        annotations = {LEFT_TO_SCHEDULER: delegated, TERM: str(self._term)}
        steps = ungating_patch(pod.member.pod, annotations)
        with self._faults.isolate(Stage.COMMIT, pod.key):
            try:
                await self._kube.patch(
                    pod.path, steps, AnnotatedObject, kind="json", params=WRITE_TIMEOUT
                )
            except KubeError as error:
                self._backoff.start(pod.uid)
                if not is_leadership_lost(error):
                    _log.warning("Could not remove gate", pod="/".join(pod.key), err=str(error))
            else:
                _log.info("Left pod to kube-scheduler", pod="/".join(pod.key), claim=claim)
