"""Repair of the claims of pods that are not bound: on the same node, without an eviction.

The record of a pod says which GPUs it is to get, and its claim selects them. Claims of others may
hold some of these meanwhile, and users may delete the claim. So a pod that is not bound some
seconds after its claim was written gets other free GPUs of its node where it needs them, and a
claim that selects what its record names. Members of a gang on one node get theirs together. A
leader that ends in between leaves a record whose claim the next one writes.
"""

import asyncio
from collections.abc import Coroutine, Mapping, Sequence
from dataclasses import dataclass

import structlog

from linkwise.cluster.allocations.device_claim import ClaimError, StoredClaim
from linkwise.cluster.allocations.record import Allocation
from linkwise.cluster.gang import GangKey
from linkwise.cluster.objects.pod import Pod
from linkwise.planning.gang.patches import allocation_annotations, allocation_of, reallocation_patch
from linkwise.planning.gang.pod_info import PodInfo
from linkwise.planning.gang.unit import Unit
from linkwise.planning.placement.pods.member import Member, new_member
from linkwise.planning.placement.result import Placement
from linkwise.runtime.kube.client import KubeError
from linkwise.runtime.kube.objects import AnnotatedObject
from linkwise.runtime.process.backoff import Backoff
from scorer.commit.binding.lost_gpus import OtherGPUs, awaits_claim, lost_claim_gpus, other_gpus
from scorer.commit.claims.planned_claims import ClaimWriter, RefusedClaim, planned_claim
from scorer.commit.claims.user_claims import ClaimAllocator, planned_allocations, pod_claims
from scorer.commit.handle import Handle
from scorer.commit.read_after_write import outcome_unknown, read_after_write
from scorer.fence import WRITE_TIMEOUT, LeadershipLost, is_leadership_lost
from scorer.metrics import Stage

_RETRY_MAX = 60.0
"""The longest delay before the claim of a pod is checked again [s]."""
_AT_A_TIME = 8
"""Nodes of large gangs wait for the scheduler, and each pod costs two reads."""

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
        self._running: set[tuple[GangKey, str]] = set()
        """Units and nodes."""
        self._slots = asyncio.Semaphore(_AT_A_TIME)

    def repairs(self, unit: Unit) -> list[Coroutine[None, None, None]]:
        """Return the checks of claims that are due, one for each node of a unit."""
        state = self._informers.state
        settled = [pod for pod in state.groups.of(unit.group) if pod.settled]
        gang = [pod for pod in settled if self._informers.owners.key(pod) == unit.key]
        unbound: dict[str, list[PodInfo]] = {}
        for pod in gang:
            if pod.usage and not pod.bound and awaits_claim(pod) and not state.is_assumed(pod):
                unbound.setdefault(pod.usage.target, []).append(pod)
        calls = []
        for node, pods in unbound.items():
            due = [pod.uid for pod in pods if pod.uid not in self._backoff]
            if not due or (unit.key, node) in self._running:
                continue
            is_new = not any(map(self._backoff.has_failed, due))
            for uid in due:
                self._backoff.start(uid)
            if not is_new:
                self._running.add((unit.key, node))
                calls.append(self._isolated(unit.key, node, pods, gang))
        return calls

    async def _isolated(
        self, key: GangKey, node: str, pods: Sequence[PodInfo], gang: Sequence[PodInfo]
    ) -> None:
        async with self._slots:
            with self._faults.isolate(Stage.COMMIT, pods[0].key):
                try:
                    await self._repair(node, pods, gang)
                except (ClaimError, KubeError) as error:
                    name = "/".join(pods[0].key)
                    _log.warning("Could not repair claim", pod=name, err=str(error))
        self._running.discard((key, node))
        # A delay may have ended meanwhile, and no other change may follow.
        self._informers.changed.set()

    async def _repair(self, node: str, pods: Sequence[PodInfo], gang: Sequence[PodInfo]) -> None:
        """Let the claims of pods select what their records name, or other GPUs if some are lost.

        Raises:
            ClaimError: No claim gives a pod these GPUs.
            KubeError: A call failed.
            LeadershipLost: Another process leads.
        """
        read = await asyncio.gather(*map(self._read, pods))
        waiting = [one for one in read if one is not None and one.may_change]
        others = self._other_gpus(node, waiting, gang)
        await self._withdraw([one for one in waiting if one.pod.uid in others], others)
        for one in waiting:
            with self._faults.isolate(Stage.COMMIT, one.pod.key):
                try:
                    await self._write(one, others.get(one.pod.uid))
                except (ClaimError, KubeError) as error:
                    name = "/".join(one.pod.key)
                    _log.warning("Could not repair claim", pod=name, err=str(error))

    async def _read(self, pod: PodInfo) -> "_Unbound | None":
        """Return a pod that waits for a scheduler, with its claims; None: it does not.

        Raises:
            KubeError: A read failed.
        """
        stored = await self._kube.find(pod.path, Pod)
        if stored is None or pod.allocation is None or not _is_unbound(stored, pod):
            return None
        gang = f"{pod.namespace}/{pod.gang}" if pod.gang else None
        member = new_member(stored, pod.namespace, gang)
        if member.request.user_claims is not None:
            paths = [claim.path for claim in pod_claims(pod)]
        else:
            paths = [planned_claim(member, pod.namespace, pod.allocation).path]
        claims = await asyncio.gather(*(self._kube.find(path, StoredClaim) for path in paths))
        return _Unbound(pod, member, pod.allocation, tuple(claims))

    def _other_gpus(
        self, node: str, waiting: Sequence["_Unbound"], gang: Sequence[PodInfo]
    ) -> dict[str, Placement]:
        """Return the GPUs of pods that do not keep those of their records, by uid.

        Those that lost GPUs are planned together, beside the others; with them all that have no
        devices yet, if this makes the gang faster.
        """
        state = self._informers.state
        lost = [one for one in waiting if lost_claim_gpus(one.pod, state)]
        if not lost:
            return {}
        plans = [self._planned(node, moved, gang) for moved in (lost, waiting)]
        best = max(filter(None, plans), key=lambda plan: plan.bandwidth, default=None)
        if best is None:
            _log.warning("No other GPUs on node", node=node, pod="/".join(lost[0].pod.key))
            return {}
        gpus = {placement.member.pod.metadata.uid: placement for placement in best.placements}
        moved = [one for one in waiting if one.pod.uid in gpus]
        moved = [one for one in moved if gpus[one.pod.uid].gpus.indices != one.indices]
        return {one.pod.uid: gpus[one.pod.uid] for one in moved}

    def _planned(
        self, node: str, moved: Sequence["_Unbound"], gang: Sequence[PodInfo]
    ) -> OtherGPUs | None:
        uids = {one.pod.uid for one in moved}
        siblings = [pod for pod in gang if pod.uid not in uids]
        members = [(one.pod, one.member) for one in moved]
        return other_gpus(self._informers.state.snapshot(), node, members, siblings)

    async def _withdraw(self, moved: Sequence["_Unbound"], others: Mapping[str, Placement]) -> None:
        """Assume other GPUs for pods, and delete the claims that are to select these.

        Claims that pods bring are released where they are allocated again.

        Raises:
            ClaimError: One is in use meanwhile; the next check plans the others beside it.
            KubeError: One could not be deleted.
        """
        state = self._informers.state
        # All before the first call: another unit, or a sibling, may be planned on them meanwhile.
        for one in moved:
            state.assume(one.pod, self._allocation(one.pod, others[one.pod.uid]))
        try:
            for one in moved:
                await self._delete_claim(one)
        except Exception:
            for one in moved:
                state.forget(one.pod)
            raise

    async def _delete_claim(self, one: "_Unbound") -> None:
        found = one.claims[0]
        if one.member.request.user_claims is not None or found is None:
            return
        claim = planned_claim(one.member, one.pod.namespace, one.allocation)
        if not await self._claims.withdraw(claim, found):
            raise ClaimError(f"{claim.name} has changed meanwhile")

    async def _write(self, one: "_Unbound", placement: Placement | None) -> None:
        """Write the record of a pod if it gets other GPUs, and its claims.

        kube-scheduler allocates claims that a pod brings one after the other, where it could not
        bind the pod.

        Raises:
            ClaimError: No claim gives the pod these GPUs.
            KubeError: The record was not written.
            LeadershipLost: Another process leads.
        """
        pod, member = one.pod, one.member
        allocation = await self._moved(pod, placement) if placement else one.allocation
        node = self._informers.state.node(allocation.node)
        if member.request.user_claims is None:
            claim = planned_claim(member, pod.namespace, allocation)
            (found,) = one.claims
            if found and found.controller == pod.uid and found.spec == claim.spec:
                return
            is_refused = isinstance(await self._claims.create([claim]), RefusedClaim)
        elif node is None:
            return
        else:
            planned = planned_allocations(pod, member, allocation, node)
            is_refused = await self._allocator.allocate(planned) is not None
        if not is_refused:
            _log.info("Repaired claim", pod="/".join(pod.key), gpus=allocation.gpus.indices)

    def _allocation(self, pod: PodInfo, placement: Placement) -> Allocation:
        snapshot = self._informers.state.snapshot()
        ledger, table = snapshot.ledger.nodes[placement.node], snapshot.tables.get(placement.node)
        plan = pod.allocation.plan if pod.allocation else None
        return allocation_of(placement, ledger, table, plan or "")

    async def _moved(self, pod: PodInfo, placement: Placement) -> Allocation:
        """Write the GPUs that are assumed for a pod into its record.

        Raises:
            ClaimError: It does not wait any more.
            KubeError: The write was refused, or has no answer.
            LeadershipLost: Another process leads.
        """
        allocation = self._allocation(pod, placement)
        try:
            await self._record(pod, placement, allocation)
        except Exception as error:
            if isinstance(error, KubeError) and outcome_unknown(error):
                # The GPUs stay assumed while the write may be under way; the watch shows the rest.
                await read_after_write(
                    self._kube, pod.path, AnnotatedObject, pause=self._outcome_read
                )
            self._informers.state.forget(pod)
            if isinstance(error, KubeError) and is_leadership_lost(error):
                raise LeadershipLost(str(error)) from error
            raise
        return allocation

    async def _record(self, pod: PodInfo, placement: Placement, allocation: Allocation) -> None:
        # Schedulers write meanwhile why they did not bind it.
        stored = await self._kube.find(pod.path, Pod)
        if stored is None or not _is_unbound(stored, pod):
            raise ClaimError("it has a node by now, or is gone")
        annotations = allocation_annotations(
            placement,
            allocation,
            self._informers.state.snapshot().ledger.nodes[placement.node].node,
            self._informers.policy.policy.containers,
            term=self._term,
            now_ns=int(self._clock() * 1e9),
        )
        steps = reallocation_patch(stored, annotations)
        await self._kube.patch(pod.path, steps, AnnotatedObject, kind="json", params=WRITE_TIMEOUT)


def _is_unbound(stored: Pod, pod: PodInfo) -> bool:
    """Return whether a pod that was read is the known one, and waits for a scheduler."""
    metadata, spec = stored.metadata, stored.spec
    is_waiting = not (spec.node_name or spec.is_gated or metadata.deletion_timestamp)
    return metadata.uid == pod.uid and is_waiting


@dataclass(frozen=True, slots=True)
class _Unbound:
    """A pod that waits for a scheduler, and its claims as they were read."""

    pod: PodInfo
    member: Member
    allocation: Allocation
    """Its record."""
    claims: tuple[StoredClaim | None, ...]

    @property
    def indices(self) -> tuple[int, ...]:
        """The GPUs of its record."""
        return self.allocation.gpus.indices

    @property
    def may_change(self) -> bool:
        """Its claims have no devices yet, or not all of them."""
        if self.member.request.user_claims is None:
            return not any(claim and claim.is_used for claim in self.claims)
        is_made = bool(self.claims) and None not in self.claims
        return is_made and not all(claim and claim.is_used for claim in self.claims)
