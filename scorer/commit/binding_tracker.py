"""Tracking of written plans until all members are bound, or evicted again.

A gang of which one member cannot be bound does not work, but its other members keep their GPUs.
So all members are evicted, and planned again without the nodes that failed. The deadline starts
when a scheduler first tries a member, and is no shorter than it takes to create the pods again.
Pods without a controller, and those whose Job counts an eviction as a failure, are not evicted;
the status of their gang says why.
"""

from collections.abc import Collection, Coroutine, Iterable, Mapping, Set
from dataclasses import replace
from typing import Any

import structlog

from cluster.gang import GangKey
from runtime.kube.objects import Key
from scorer.commit.claim_repair import ClaimRepair
from scorer.commit.evict import evict
from scorer.commit.handle import Handle
from scorer.commit.lost_gpus import awaits_claim, lost_gpus, may_lose_gpus
from scorer.commit.pending_binding import (
    PendingBinding,
    Progress,
    recreation_time,
)
from scorer.commit.unbound_plans import unbound_plans
from scorer.gang.crd import GangPlan, Phase
from scorer.gang.placed_units import eviction_blocker
from scorer.gang.plan_record import plan_id_of
from scorer.gang.pod_info import PodInfo
from scorer.gang.unit import Unit
from scorer.metrics import EvictionReason, Stage
from scorer.report.status_update import StatusUpdate

Call = Coroutine[Any, Any, object]

_EXCLUDED_FOR = 180.0
"""Time for which a node is excluded for a gang that could not be bound there [s]."""

_log = structlog.get_logger()


class BindingTracker:
    """The plans of one term of the Lease whose members are not all bound."""

    def __init__(self, handle: Handle) -> None:
        """Start without plans."""
        self._handle, self._informers, self._clock = handle, handle.informers, handle.clock
        self._status_reporter, self._metrics = handle.status_reporter, handle.metrics
        self._faults, self._claim_repair = handle.faults, ClaimRepair(handle)
        self._bindings: dict[GangKey, dict[str, PendingBinding]] = {}
        """By id of the plan: members that were created later have a plan of their own."""
        self._failed_nodes: dict[GangKey, tuple[frozenset[str], float]] = {}
        """Nodes where a gang could not be bound, and until when they are excluded."""
        self._unrestored: set[Key] = set()
        """Groups whose plans of the last leader are not tracked yet."""
        self._unreconciled: set[tuple[GangKey, str]] = set()
        """Plans whose check raised, or was due during a backoff: they are checked again."""

    @property
    def excluded_nodes(self) -> Mapping[GangKey, frozenset[str]]:
        """The nodes that are excluded now, by gang."""
        now = self._clock()
        return {key: nodes for key, (nodes, until) in self._failed_nodes.items() if until > now}

    def exclude(self, key: GangKey, nodes: frozenset[str]) -> None:
        """Exclude nodes for a gang for a while, beside those that are excluded already."""
        if nodes := self.excluded_nodes.get(key, frozenset()) | nodes:
            self._failed_nodes[key] = nodes, self._clock() + _EXCLUDED_FOR

    def track(self, unit: Unit, plan: GangPlan) -> None:
        """Start to track a plan whose members are about to be written.

        A plan that is already tracked keeps its deadline.
        """
        before = self._bindings.get(unit.key, {}).get(plan.id)
        deadline = before.deadline if before else self._new_deadline
        was_written = before is not None and before.was_written
        writing_since = None if was_written else self._clock()
        self._keep(PendingBinding(unit, plan, deadline, writing_since, was_written))

    def written(self, key: GangKey, plan_id: str) -> None:
        """Let the deadline of a plan count: all its members were written or refused."""
        if binding := self._bindings.get(key, {}).get(plan_id):
            self._keep(binding.written(self._clock()))

    def _keep(self, binding: PendingBinding) -> None:
        self._bindings.setdefault(binding.unit.key, {})[binding.plan.id] = binding

    def untrack(self, key: GangKey, plan_id: str) -> None:
        """Stop tracking a plan: it is complete, or no member has its GPUs."""
        plans = self._bindings.get(key, {})
        plans.pop(plan_id, None)
        if not plans:
            self._bindings.pop(key, None)

    def is_evicting(self, key: GangKey) -> bool:
        """Return whether members of a gang are being evicted, so that none may be planned."""
        return any(binding.evicting for binding in self._bindings.get(key, {}).values())

    def _all(self) -> list[PendingBinding]:
        return [binding for plans in self._bindings.values() for binding in plans.values()]

    @property
    def _patience(self) -> float:
        return self._informers.policy.policy.gangs.commit_deadline_seconds

    @property
    def _new_deadline(self) -> float:
        return self._clock() + self._patience

    def time_left(self) -> float | None:
        """Return the time until a deadline passes or a node is included again [s]; None: never."""
        now = self._clock()
        times = [
            binding.deadline
            for binding in self._all()
            if binding.writing_since is None and not self._is_backing_off(binding)
        ]
        times += [until for _, until in self._failed_nodes.values() if until > now]
        return max(min(times) - now, 0.0) + 0.1 if times else None

    def _is_backing_off(self, binding: PendingBinding) -> bool:
        return self._faults.is_backing_off(Stage.TRACK, binding.unit.key)

    def eviction_blocker(self, pods: Iterable[PodInfo]) -> str | None:
        """Return why pods must not be evicted; None: they may be."""
        return eviction_blocker(pods, self._informers.workloads.fails_on_eviction)

    def restore(self) -> None:
        """Start to track the plans of the last leader whose members are not all bound."""
        self._unrestored.update(self._informers.state.groups)
        self._faults.work_off(Stage.TRACK, self._unrestored, self._restore)

    def _restore(self, group: Key) -> None:
        for unit, plan in unbound_plans(group, self._informers):
            if plan.id not in self._bindings.get(unit.key, {}):
                self._keep(PendingBinding(unit, plan, self._new_deadline))
                self._unreconciled.add((unit.key, plan.id))

    def reconcile(self, dirty_groups: Set[Key]) -> list[Call]:
        """Check the progress of each plan; return evictions of failed ones, and repairs of claims.

        Args:
            dirty_groups: Groups of which a pod changed since the last call.
        """
        self._faults.work_off(Stage.TRACK, self._unrestored, self._restore)
        excluded = self.excluded_nodes
        self._failed_nodes = {key: self._failed_nodes[key] for key in excluded}
        conflicts = {pod.uid: pod.reason for pod in self._informers.state.conflicts}
        calls: list[Call] = []
        retried, self._unreconciled = self._unreconciled, set()
        for binding in self._all():
            plan = binding.unit.key, binding.plan.id
            is_due = binding.is_due(self._clock())
            is_changed = binding.unit.group in dirty_groups or plan in retried
            if not (is_due or conflicts or is_changed):
                continue
            self._unreconciled.add(plan)
            if self._is_backing_off(binding):
                continue
            with self._faults.isolate(Stage.TRACK, binding.unit.key):
                calls += self._reconcile(binding, conflicts, is_due=is_due)
                if not self.is_evicting(binding.unit.key):
                    calls += self._claim_repair.repairs(binding.unit)
                if not self._may_fail(binding):
                    self._unreconciled.discard(plan)
        return calls

    def _may_fail(self, binding: PendingBinding) -> bool:
        """Return whether each change of the cluster may be a loss of GPUs for a plan."""
        pods = list(self._informers.state.group(binding.unit.group))
        is_tried = binding.tried_at is not None
        return any(map(awaits_claim, pods)) or (is_tried and any(map(may_lose_gpus, pods)))

    def _reconcile(
        self, binding: PendingBinding, conflicts: Mapping[str, str], *, is_due: bool
    ) -> list[Call]:
        pods = tuple(self._informers.state.group(binding.unit.group))
        # A member whose patch was refused may have another plan by now.
        progress = binding.progress(
            pod for pod in pods if plan_id_of(pod) in {None, binding.plan.id}
        )
        if not progress.unbound:
            others = self._other_members(binding, progress.bound, pods)
            self._try_to_complete(binding, progress, others, is_due=is_due)
            return []
        failure = self._failure(progress, conflicts)
        if failure is not None and (is_due or not binding.evicting):
            return self._give_up(binding, progress, failure)
        tried = [pod for pod in progress.unbound if pod.was_tried]
        if tried and binding.tried_at is None:
            self._keep(replace(binding, tried_at=self._clock(), deadline=self._new_deadline))
            return []
        if not is_due:
            return []
        overdue = tried or [pod for pod in progress.unbound if self._is_gated(pod)]
        if not overdue:
            first = progress.unbound[0]
            self._wait(binding, progress, f"no scheduler has looked at pod {first.name} yet")
            return []
        return self._give_up_overdue(binding, progress, overdue[0])

    def _failure(self, progress: Progress, conflicts: Mapping[str, str]) -> str | None:
        """Return why members cannot be bound, whatever their deadline; None: they may be."""
        for pod in progress.unbound:
            if pod.uid in conflicts:
                return conflicts[pod.uid]
        tried = (pod for pod in progress.unbound if pod.was_tried)
        losses = (lost_gpus(pod, progress.unbound, self._informers.state) for pod in tried)
        loss = next(filter(None, losses), None)
        members = progress.bound + progress.unbound
        if loss is None or recreation_time(members) or self.eviction_blocker(members):
            return None
        return loss

    def _is_gated(self, pod: PodInfo) -> bool:
        """Return whether our gate still holds a pod, so that no scheduler can bind it."""
        return pod.waiting is not None or self._informers.state.is_assumed(pod)

    def _give_up_overdue(
        self, binding: PendingBinding, progress: Progress, first: PodInfo
    ) -> list[Call]:
        """Evict a gang with an unbound member, unless creating the pods again takes longer."""
        node = ", ".join(binding.nodes_of([first]))
        waited = self._clock() - (binding.tried_at or 0.0)
        recreation = recreation_time(progress.bound + progress.unbound)
        limit = max(self._patience, recreation if waited >= recreation else 0.0)
        reason = f"pod {first.name} was not bound to {node} within {limit:g} s"
        if waited >= recreation or binding.evicting:
            return self._give_up(binding, progress, reason)
        reason += f"; it is not evicted before {recreation:g} s, in which its Job may recreate it"
        self._wait(binding, progress, reason, recreation - waited)
        return []

    def _wait(
        self,
        binding: PendingBinding,
        progress: Progress,
        reason: str,
        seconds: float | None = None,
    ) -> None:
        """Extend the deadline of a plan, and report the reason."""
        self._keep(replace(binding, deadline=self._clock() + (seconds or self._patience)))
        blocker = self.eviction_blocker(progress.bound + progress.unbound)
        if blocker is None or not binding.tried_at:
            members = len(progress.bound), binding.unit.needed
            self._status_reporter.enqueue(
                StatusUpdate(binding.unit, Phase.COMMITTING, members, binding.plan, reason)
            )

    def _other_members(
        self, binding: PendingBinding, members: Iterable[PodInfo], pods: Iterable[PodInfo]
    ) -> list[PodInfo]:
        """Return the settled pods of the same gang that are not members of the plan."""
        unit, uids = binding.unit, {pod.uid for pod in members}
        settled = (pod for pod in pods if unit.is_gang and pod.settled and pod.uid not in uids)
        return [pod for pod in settled if self._informers.owners.key(pod) == unit.key]

    def _try_to_complete(
        self,
        binding: PendingBinding,
        progress: Progress,
        others: Collection[PodInfo],
        *,
        is_due: bool,
    ) -> None:
        """Untrack a plan whose members are bound or gone, unless its gang has to wait."""
        key = binding.unit.key
        waits = not is_due if binding.evicting else not all(pod.bound for pod in others)
        if progress.bound and not is_due and any(map(awaits_claim, progress.bound)):
            return
        if progress.bound and waits:
            # Do not extend the deadline while a member is retried under another plan: if that
            # write fails, the member is already overdue.
            if is_due and not binding.has_any(others):
                self._keep(replace(binding, deadline=self._new_deadline))
            return
        self.untrack(key, binding.plan.id)
        if not progress.bound and not others:
            self._status_reporter.forget(key)
        if not progress.bound or binding.evicting:
            return
        self._failed_nodes.pop(key, None)
        members = len(progress.bound) + len(others), binding.unit.needed
        self._status_reporter.enqueue(
            StatusUpdate(binding.unit, Phase.PLACED, members, binding.plan)
        )

    def _give_up(self, binding: PendingBinding, progress: Progress, failure: str) -> list[Call]:
        """Evict all members, or report why they must stay."""
        key, pods = binding.unit.key, progress.bound + progress.unbound
        blocker = self.eviction_blocker(pods)
        reason = f"{failure}; {blocker or 'all members are evicted'}"
        members = len(progress.bound), binding.unit.needed
        evicted_because = "" if blocker else failure
        self._status_reporter.enqueue(
            StatusUpdate(
                binding.unit, Phase.COMMITTING, members, binding.plan, reason, evicted_because
            )
        )
        # Check again later: a disruption budget may keep a pod, or a node may become ready.
        self._keep(replace(binding, deadline=self._new_deadline, evicting=not blocker))
        if blocker:
            return []
        self.exclude(key, binding.nodes_of(pod for pod in progress.unbound if pod.was_tried))
        _log.warning("Evicting gang", gang=f"{key.namespace}/{key.name}", err=failure)
        self._metrics.evicted(len(pods), EvictionReason.UNBOUND)
        return [evict(self._handle, pods)]
