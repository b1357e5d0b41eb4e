"""Tracking of written plans until all members are bound, or evicted again.

A gang of which one member cannot be bound does not work, but its other members keep their GPUs.
So all members are evicted, and planned again without the nodes that failed. The deadline starts
when a scheduler first tries a member, and is no shorter than it takes to create the pods again.
Pods without a controller, and those whose Job counts an eviction as a failure, are not evicted;
the status of their gang says why.
"""

from collections.abc import Mapping, Set
from dataclasses import replace
from functools import partial

import structlog

from linkwise.cluster.gang import GangKey
from linkwise.planning.gang.crd import Phase
from linkwise.planning.gang.crd_plan import GangPlan
from linkwise.planning.gang.plan_record import plan_id_of, plan_order
from linkwise.planning.gang.pod_info import PodInfo
from linkwise.planning.gang.unit import Unit
from linkwise.runtime.kube.objects import Key
from scorer.commit.binding.claim_repair import ClaimRepair
from scorer.commit.binding.excluded_nodes import ExcludedNodes
from scorer.commit.binding.lost_gpus import awaits_claim
from scorer.commit.binding.pending_binding import (
    PendingBinding,
    PendingBindings,
    Progress,
    recreation_time,
)
from scorer.commit.binding.plan_members import PlanMembers
from scorer.commit.binding.unbound_plans import unbound_plans
from scorer.commit.handle import Handle
from scorer.commit.removal.removal_state import Removal, Step
from scorer.commit.removal.removals import Call, Removals, Request
from scorer.metrics import EvictionReason, Stage
from scorer.report.status_update import Evicted, StatusUpdate

_log = structlog.get_logger()


class BindingTracker:
    """The plans of one term of the Lease whose members are not all bound."""

    def __init__(self, handle: Handle, removals: Removals) -> None:
        """Start without plans; `removals` evicts."""
        self._informers, self._clock = handle.informers, handle.clock
        self._status_reporter, self._removals = handle.status_reporter, removals
        self._faults, self._claim_repair = handle.faults, ClaimRepair(handle)
        self._members = PlanMembers(handle.informers)
        self._bindings = PendingBindings()
        self._excluded = ExcludedNodes(handle.clock)
        self._unrestored: set[Key] = set()
        """Groups whose plans of the last leader are not tracked yet."""
        self._unreconciled: set[tuple[GangKey, str]] = set()
        """Plans whose check raised, or was due during a backoff: they are checked again."""

    @property
    def excluded_nodes(self) -> Mapping[GangKey, frozenset[str]]:
        """The nodes where a gang could not be bound, by gang."""
        return self._excluded.now

    def exclude(self, key: GangKey, nodes: frozenset[str]) -> None:
        """Exclude nodes for a gang for a while."""
        self._excluded.exclude(key, nodes)

    def track(self, unit: Unit, plan: GangPlan) -> None:
        """Start to track a plan whose members are about to be written.

        A plan that is already tracked keeps its deadline.
        """
        before = self._bindings.find(unit.key, plan.id)
        deadline = before.deadline if before else self._new_deadline
        was_written = before is not None and before.was_written
        writing_since = None if was_written else self._clock()
        self._bindings.keep(PendingBinding(unit, plan, deadline, writing_since, was_written))

    def written(self, key: GangKey, plan_id: str) -> None:
        """Let the deadline of a plan count: all its members were written or refused."""
        if binding := self._bindings.find(key, plan_id):
            self._bindings.keep(binding.written(self._clock()))

    def untrack(self, key: GangKey, plan_id: str) -> None:
        """Stop tracking a plan: it is complete, or no member has its GPUs."""
        self._bindings.remove(key, plan_id)

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
            for binding in self._bindings.all()
            if binding.writing_since is None and not self._is_backing_off(binding)
        ]
        times += self._excluded.ends()
        return max(min(times) - now, 0.0) + 0.1 if times else None

    def _is_backing_off(self, binding: PendingBinding) -> bool:
        return self._faults.is_backing_off(Stage.TRACK, binding.unit.key)

    def restore(self) -> None:
        """Start to track the plans of the last leader whose members are not all bound."""
        self._unrestored.update(self._informers.state.groups)
        self._faults.work_off(Stage.TRACK, self._unrestored, self._restore)

    def _restore(self, group: Key) -> None:
        for unit, plan in unbound_plans(group, self._informers):
            if self._bindings.find(unit.key, plan.id) is None:
                self._bindings.keep(PendingBinding(unit, plan, self._new_deadline))
                self._unreconciled.add((unit.key, plan.id))

    def reconcile(self, dirty_groups: Set[Key]) -> list[Call]:
        """Check the progress of each plan, evict failed ones; return repairs of claims.

        Args:
            dirty_groups: Groups of which a pod changed since the last call.
        """
        self._faults.work_off(Stage.TRACK, self._unrestored, self._restore)
        conflicts = {pod.uid: pod.reason for pod in self._informers.state.conflicts}
        calls: list[Call] = []
        retried, self._unreconciled = self._unreconciled, set()
        for binding in self._bindings.all():
            plan = binding.unit.key, binding.plan.id
            is_due = binding.is_due(self._clock())
            is_changed = binding.unit.group in dirty_groups or plan in retried
            if not (is_due or conflicts or is_changed):
                continue
            self._unreconciled.add(plan)
            if self._is_backing_off(binding) or binding.unit.key in self._removals:
                continue
            with self._faults.isolate(Stage.TRACK, binding.unit.key):
                self._reconcile(binding, conflicts, is_due=is_due)
                if binding.unit.key not in self._removals:
                    calls += self._claim_repair.repairs(binding.unit)
                if not self._members.may_fail(binding):
                    self._unreconciled.discard(plan)
        return calls

    def _reconcile(
        self, binding: PendingBinding, conflicts: Mapping[str, str], *, is_due: bool
    ) -> None:
        progress = self._members.progress(binding)
        if not progress.unbound:
            self._try_to_complete(binding, progress, is_due=is_due)
            return
        failure = self._members.failure(progress, conflicts)
        if failure is not None and (is_due or not self._removals.refused_lately(binding.unit.key)):
            self._give_up(binding, progress, failure)
            return
        tried = [pod for pod in progress.unbound if pod.was_tried]
        if tried and binding.tried_at is None:
            self._bindings.keep(
                replace(binding, tried_at=self._clock(), deadline=self._new_deadline)
            )
            return
        if not is_due:
            return
        overdue = tried or [pod for pod in progress.unbound if self._members.is_gated(pod)]
        if overdue:
            self._give_up_overdue(binding, progress, overdue[0])
        else:
            first = progress.unbound[0]
            self._wait(binding, progress, f"no scheduler has looked at pod {first.name} yet")

    def _give_up_overdue(self, binding: PendingBinding, progress: Progress, first: PodInfo) -> None:
        """Evict a gang with an unbound member, unless creating the pods again takes longer."""
        node = ", ".join(binding.nodes_of([first]))
        waited = self._clock() - (binding.tried_at or 0.0)
        recreation = recreation_time(progress.bound + progress.unbound)
        limit = max(self._patience, recreation if waited >= recreation else 0.0)
        reason = f"pod {first.name} was not bound to {node} within {limit:g} s"
        if waited >= recreation:
            self._give_up(binding, progress, reason)
            return
        reason += f"; it is not evicted before {recreation:g} s, in which its Job may recreate it"
        self._wait(binding, progress, reason, recreation - waited)

    def _wait(
        self,
        binding: PendingBinding,
        progress: Progress,
        reason: str,
        seconds: float | None = None,
    ) -> None:
        """Extend the deadline of a plan, and report the reason."""
        self._bindings.keep(replace(binding, deadline=self._clock() + (seconds or self._patience)))
        blocker = self._informers.workloads.eviction_blocker(progress.bound + progress.unbound)
        if blocker is None or not binding.tried_at:
            self._report(binding, Phase.COMMITTING, len(progress.bound), reason)

    def _report(
        self, binding: PendingBinding, phase: Phase, members: int, reason: str = ""
    ) -> None:
        present = members, binding.unit.needed
        self._status_reporter.enqueue(
            StatusUpdate(binding.unit, phase, present, binding.plan, reason)
        )

    def _try_to_complete(
        self, binding: PendingBinding, progress: Progress, *, is_due: bool
    ) -> None:
        """Untrack a plan whose members are bound or gone, unless its gang has to wait."""
        key, others = binding.unit.key, self._members.others(binding, progress.bound)
        if progress.bound and not is_due and any(map(awaits_claim, progress.bound)):
            return
        if progress.bound and not all(pod.bound for pod in others):
            # Do not extend the deadline while a member is retried under another plan: if that
            # write fails, the member is already overdue.
            if is_due and not binding.has_any(others):
                self._bindings.keep(replace(binding, deadline=self._new_deadline))
            return
        self.untrack(key, binding.plan.id)
        if not progress.bound and not others:
            self._status_reporter.forget(key)
        if not progress.bound:
            return
        self._excluded.include(key)
        self._report(binding, Phase.PLACED, len(progress.bound) + len(others))

    def _give_up(self, binding: PendingBinding, progress: Progress, failure: str) -> None:
        """Evict all members, or report why they must stay."""
        key = binding.unit.key
        pods = self._pods_to_evict(binding, progress)
        blocker = self._informers.workloads.eviction_blocker(pods)
        blocker = blocker or self._removals.refused_lately(key)
        # Check again later: the API server may let them be evicted, or a node may become ready.
        self._bindings.keep(replace(binding, deadline=self._new_deadline))
        if blocker:
            self._report(binding, Phase.COMMITTING, len(progress.bound), f"{failure}; {blocker}")
        elif pods:
            _log.warning("Evicting gang", gang=f"{key.namespace}/{key.name}", err=failure)
            unused = binding.nodes_of(pod for pod in progress.unbound if pod.was_tried)
            self._removals.begin(
                Request(
                    {key: pods},
                    EvictionReason.UNBOUND,
                    on_end=partial(self._removed, binding, unused, failure),
                    is_wanted=lambda: not all(map(self._members.is_bound, pods)),
                )
            )

    def _pods_to_evict(self, binding: PendingBinding, progress: Progress) -> list[PodInfo]:
        """Return the members of a plan that failed, of an overdue one before it, and of later ones.

        Members of later plans came to these members, and do not work without them.
        """
        plans, now = self._bindings.of(binding.unit.key), self._clock()
        before = plans[: [each.plan.id for each in plans].index(binding.plan.id)]
        overdue = [each for each in before if each.is_due(now) and each.has_any(progress.unbound)]
        found = [progress, *map(self._members.progress, overdue)]
        pods = {pod.uid: pod for each in found for pod in each.bound + each.unbound}
        order = plan_order(binding.plan.id)
        for pod in self._members.others(binding, pods.values()):
            if plan_order(plan_id_of(pod) or "") > order:
                pods[pod.uid] = pod
        return [pod for pod in pods.values() if not pod.is_ending]

    def _removed(
        self, binding: PendingBinding, unused: frozenset[str], failure: str, removal: Removal
    ) -> None:
        """Report what became of the members of a plan that failed.

        Args:
            binding: The plan.
            unused: Nodes where members could not be bound.
            failure: Why the plan failed.
            removal: Of its members.
        """
        key, members = binding.unit.key, (0, binding.unit.needed)
        if removal.step is Step.UNTOUCHED and not removal.refusal:
            return
        if removal.step is Step.GONE:
            self.exclude(key, unused)
        reason = f"{failure}; {removal.summary}"
        evicted = Evicted(len(removal.accepted), failure, removal.refusal)
        self._status_reporter.enqueue(
            StatusUpdate(
                binding.unit, Phase.COMMITTING, members, binding.plan, reason, evicted=evicted
            )
        )
