"""The members of written plans as the cluster shows them: bound, unbound, or without GPUs."""

from collections.abc import Iterable, Mapping

from linkwise.planning.gang.plan_record import plan_id_of
from linkwise.planning.gang.pod_info import PodInfo
from scorer.cache.informers import Informers
from scorer.commit.binding.lost_gpus import awaits_claim, lost_gpus, may_lose_gpus
from scorer.commit.binding.pending_binding import PendingBinding, Progress, recreation_time


class PlanMembers:
    """Reads the pods of plans whose members are not all bound."""

    def __init__(self, informers: Informers) -> None:
        self._informers, self._state = informers, informers.state

    def progress(self, binding: PendingBinding) -> Progress:
        """Return the members of a plan that still exist."""
        pods = self._state.groups.of(binding.unit.group)
        # A member whose patch was refused may have another plan by now.
        return binding.progress(pod for pod in pods if plan_id_of(pod) in {None, binding.plan.id})

    def others(self, binding: PendingBinding, members: Iterable[PodInfo]) -> list[PodInfo]:
        """Return the settled pods of the same gang that are not members of the plan."""
        unit, uids = binding.unit, {pod.uid for pod in members}
        pods = self._state.groups.of(unit.group)
        settled = (pod for pod in pods if unit.is_gang and pod.settled and pod.uid not in uids)
        return [pod for pod in settled if self._informers.owners.key(pod) == unit.key]

    def may_fail(self, binding: PendingBinding) -> bool:
        """Return whether each change of the cluster may be a loss of GPUs for a plan."""
        pods = list(self._state.groups.of(binding.unit.group))
        is_tried = binding.tried_at is not None
        return any(map(awaits_claim, pods)) or (is_tried and any(map(may_lose_gpus, pods)))

    def failure(self, progress: Progress, conflicts: Mapping[str, str]) -> str | None:
        """Return why members cannot be bound, whatever their deadline; None: they may be.

        Args:
            progress: The members.
            conflicts: By uid of a pod: why the account of its node is inconsistent.
        """
        for pod in progress.unbound:
            if pod.uid in conflicts:
                return conflicts[pod.uid]
        tried = (pod for pod in progress.unbound if pod.was_tried)
        losses = (lost_gpus(pod, progress.unbound, self._state) for pod in tried)
        loss = next(filter(None, losses), None)
        members = progress.bound + progress.unbound
        if loss is None or recreation_time(members):
            return None
        return None if self._informers.workloads.eviction_blocker(members) else loss

    def is_gated(self, pod: PodInfo) -> bool:
        """Return whether our gate still holds a pod, so that no scheduler can bind it."""
        return pod.waiting is not None or self._state.is_assumed(pod)

    def is_bound(self, pod: PodInfo) -> bool:
        """Return whether a pod is bound by now."""
        now = self._state.pod(pod.key)
        return now is not None and now.uid == pod.uid and now.bound
