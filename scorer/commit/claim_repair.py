"""Repair of the claims of pods that are not bound: on the same node, without an eviction.

The record of a pod says which GPUs it is to get, and its claim selects them. Claims of others may
hold some of these meanwhile, and users may delete the claim. So a pod that is not bound some
seconds after its claim was written gets other free GPUs of its node where it needs them, and a
claim that selects what its record names. A leader that ends in between leaves a record whose claim
the next one writes.
"""

import asyncio
from collections.abc import Coroutine, Sequence

import structlog

from cluster.allocations.device_claim import ClaimError, StoredClaim
from cluster.allocations.record import Allocation
from cluster.objects.pod import Pod
from runtime.kube.client import KubeError
from runtime.kube.objects import AnnotatedObject
from runtime.process.backoff import Backoff
from scorer.commit.claims import ClaimWriter, RefusedClaim, planned_claim
from scorer.commit.handle import Handle
from scorer.commit.lost_gpus import awaits_claim, lost_claim_gpus, other_gpus
from scorer.commit.patches import allocation_annotations, allocation_of, reallocation_patch
from scorer.commit.pending_binding import PendingBinding
from scorer.commit.read_after_write import outcome_unknown, read_after_write
from scorer.commit.user_claims import ClaimAllocator, planned_allocations, pod_claims
from scorer.fence import WRITE_TIMEOUT, LeadershipLost, is_leadership_lost
from scorer.gang.pod_info import PodInfo
from scorer.metrics import Stage
from scorer.placement.pods.member import Member, new_member
from scorer.placement.result import Placement

_RETRY_MAX = 60.0
"""The longest delay before the claim of a pod is checked again [s]."""
_AT_A_TIME = 8
"""Pods of large gangs wait for the scheduler, and each check is two reads."""

_log = structlog.get_logger()


class ClaimRepair:
    """The claims of pods that are not bound, for one term of the Lease."""

    def __init__(self, handle: Handle) -> None:
        """Start without pods."""
        self._kube, self._term, self._clock = handle.kube, handle.term, handle.clock
        self._informers, self._faults = handle.informers, handle.faults
        self._outcome_read = handle.timings.outcome_read
        self._claims, self._allocator = ClaimWriter(handle), ClaimAllocator(handle)
        self._backoff = Backoff(
            handle.timings.claim_repair, _RETRY_MAX, handle.informers.changed.set
        )
        """By uid of the pod, since it was first seen unbound."""
        self._running: set[str] = set()
        self._slots = asyncio.Semaphore(_AT_A_TIME)

    def repairs(self, binding: PendingBinding) -> list[Coroutine[None, None, None]]:
        """Return the checks of claims that are due, of members of a plan that are not bound."""
        state, unit = self._informers.state, binding.unit
        settled = [pod for pod in state.group(unit.group) if pod.settled]
        gang = [pod for pod in settled if self._informers.owners.key(pod) == unit.key]
        calls = []
        for pod in binding.progress(settled).unbound:
            if not awaits_claim(pod) or state.is_assumed(pod):
                continue
            if pod.uid in self._running or pod.uid in self._backoff:
                continue
            is_new = not self._backoff.has_failed(pod.uid)
            self._backoff.start(pod.uid)
            if not is_new:
                self._running.add(pod.uid)
                siblings = [other for other in gang if unit.is_gang and other.uid != pod.uid]
                calls.append(self._isolated(pod, siblings))
        return calls

    async def _isolated(self, pod: PodInfo, siblings: Sequence[PodInfo]) -> None:
        async with self._slots:
            with self._faults.isolate(Stage.COMMIT, pod.key):
                try:
                    await self._repair(pod, siblings)
                except (ClaimError, KubeError) as error:
                    _log.warning("Could not repair claim", pod="/".join(pod.key), err=str(error))
        self._running.discard(pod.uid)
        # Its delay may have ended meanwhile, and no other change may follow.
        self._informers.changed.set()

    async def _repair(self, pod: PodInfo, siblings: Sequence[PodInfo]) -> None:
        """Let the claim of a pod select what its record names, after other GPUs if it needs them.

        Raises:
            ClaimError: No claim gives the pod these GPUs.
            KubeError: A read failed.
            LeadershipLost: Another process leads.
        """
        stored = await self._kube.find(pod.path, Pod)
        if stored is None or pod.allocation is None or not _is_unbound(stored, pod):
            return
        gang = f"{pod.namespace}/{pod.gang}" if pod.gang else None
        member, allocation = new_member(stored, pod.namespace, gang), pod.allocation
        if member.request.user_claims is not None:
            await self._allocate(pod, member, allocation, siblings)
            return
        claim = planned_claim(member, pod.namespace, allocation)
        found = await self._kube.find(claim.path, StoredClaim)
        if found is not None and found.is_used:
            return
        if placement := self._other_gpus(pod, member, siblings):
            allocation = await self._move(pod, placement)
            claim = planned_claim(member, pod.namespace, allocation)
        if found and found.controller == pod.uid and found.spec == claim.spec:
            return
        result = await self._claims.create([claim])
        if not isinstance(result, RefusedClaim):
            _log.info("Repaired claim", pod="/".join(pod.key), gpus=allocation.gpus.indices)

    async def _allocate(
        self, pod: PodInfo, member: Member, allocation: Allocation, siblings: Sequence[PodInfo]
    ) -> None:
        """Allocate claims that the pod brings again, from which others have taken the devices.

        kube-scheduler does so for a pod that it could not bind, one claim after the other.

        Raises:
            ClaimError: The claim cannot have these GPUs.
            KubeError: A read failed.
            LeadershipLost: Another process leads.
        """
        claims, node = pod_claims(pod), self._informers.state.node(allocation.node)
        if not claims or node is None:
            return
        found = [await self._kube.find(claim.path, StoredClaim) for claim in claims]
        if None in found or all(claim and claim.is_used for claim in found):
            return
        if placement := self._other_gpus(pod, member, siblings):
            allocation = await self._move(pod, placement)
        planned = planned_allocations(pod, member, allocation, node)
        refused = await self._allocator.allocate(planned)
        if refused is None:
            _log.info("Repaired claim", pod="/".join(pod.key), gpus=allocation.gpus.indices)

    def _other_gpus(
        self, pod: PodInfo, member: Member, siblings: Sequence[PodInfo]
    ) -> Placement | None:
        """Return the GPUs that a pod gets instead of those of its record; None: it keeps these."""
        state = self._informers.state
        if not lost_claim_gpus(pod, state):
            return None
        placement = other_gpus(state.snapshot(), pod, member, siblings)
        if placement is None:
            _log.warning("No other GPUs on node", pod="/".join(pod.key))
        return placement

    async def _move(self, pod: PodInfo, placement: Placement) -> Allocation:
        """Assume other GPUs for a pod, and write them into its record.

        Raises:
            KubeError: The write was refused, or has no answer.
            LeadershipLost: Another process leads.
        """
        state, stored = self._informers.state, placement.member.pod
        snapshot = state.snapshot()
        ledger, table = snapshot.ledger.nodes[placement.node], snapshot.tables.get(placement.node)
        plan = pod.allocation.plan if pod.allocation else None
        allocation = allocation_of(placement, ledger, table, plan or "")
        annotations = allocation_annotations(
            placement,
            allocation,
            ledger.node,
            self._informers.policy.policy.containers,
            term=self._term,
            now_ns=int(self._clock() * 1e9),
        )
        state.assume(pod, allocation)
        steps = reallocation_patch(stored, annotations)
        try:
            await self._kube.patch(
                pod.path, steps, AnnotatedObject, kind="json", params=WRITE_TIMEOUT
            )
        except KubeError as error:
            if is_leadership_lost(error):
                raise LeadershipLost(str(error)) from error
            if outcome_unknown(error):
                # The GPUs stay assumed while the write may be under way; the watch shows the rest.
                await read_after_write(
                    self._kube, pod.path, AnnotatedObject, pause=self._outcome_read
                )
            state.forget(pod)
            raise
        return allocation


def _is_unbound(stored: Pod, pod: PodInfo) -> bool:
    """Return whether a pod that was read is the known one, and waits for a scheduler."""
    metadata, spec = stored.metadata, stored.spec
    is_waiting = not (spec.node_name or spec.is_gated or metadata.deletion_timestamp)
    return metadata.uid == pod.uid and is_waiting
