"""Tracking of written plans until all members are bound, or evicted again.

A gang of which one member cannot be bound does not work, but its other members keep their GPUs.
So all members are evicted, and planned again without the nodes that failed: soon after
kube-scheduler has said that a node does not take a member, else at a deadline. It starts when a
scheduler first tries a member, and is no shorter than it takes to create the pods again. What no
other node would change evicts nobody.
Pods without a controller, and those whose Job counts an eviction as a failure, are not evicted;
the status of their gang says why.
"""

from collections.abc import Mapping, Set
from dataclasses import replace

import structlog

from linkwise.cluster.gang import GangKey
from linkwise.planning.gang.bind_answer import BindAnswer, answer_of
from linkwise.planning.gang.crd import Phase
from linkwise.planning.gang.crd_plan import GangPlan
from linkwise.planning.gang.exclusion import exclusion_key
from linkwise.planning.gang.pod_info import PodInfo
from linkwise.planning.gang.scheduler_answer import Fault
from linkwise.planning.gang.unit import Unit
from linkwise.runtime.kube.objects import Key
from scorer.commit.binding.claim_repair import ClaimRepair
from scorer.commit.binding.excluded_nodes import ExcludedNodes
from scorer.commit.binding.failed_plans import FailedPlans
from scorer.commit.binding.lost_gpus import awaits_claim
from scorer.commit.binding.node_cause import NodeCause, cause_at
from scorer.commit.binding.pending_binding import (
    PendingBinding,
    PendingBindings,
    Progress,
    recreation_time,
)
from scorer.commit.binding.plan_members import PlanMembers
from scorer.commit.binding.unbound_plans import unbound_plans
from scorer.commit.binding.vain_preemptions import VainPreemptions
from scorer.commit.handle import Handle
from scorer.commit.removal.removals import Call, Removals
from scorer.metrics import Stage
from scorer.report.status_update import StatusUpdate

_log = structlog.get_logger()


class BindingTracker:
    """The plans of one term of the Lease whose members are not all bound."""

    def __init__(self, handle: Handle, removals: Removals, vain: VainPreemptions) -> None:
        """Start without plans; `removals` evicts, `vain` takes nodes that did not take one."""
        self._informers, self._clock = handle.informers, handle.clock
        self._status_reporter, self._removals = handle.status_reporter, removals
        self._faults, self._claim_repair = handle.faults, ClaimRepair(handle)
        self._members = PlanMembers(handle.informers)
        self._bindings = PendingBindings()
        self.excluded = ExcludedNodes(handle.informers.state, handle.clock)
        """The nodes where units could not be bound."""
        self._failed = FailedPlans(
            handle, removals, self._bindings, self._members, self.excluded, vain
        )
        self._vain = vain
        self._unrestored: set[Key] = set()
        """Groups whose plans of the last leader are not tracked yet."""
        self._unreconciled: set[tuple[GangKey, str]] = set()
        """Plans whose check raised, or was due during a backoff: they are checked again."""

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
        times += self.excluded.ends()
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
        self.excluded.update()
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
            self._failed.give_up(binding, progress, failure)
            return
        tried = [pod for pod in progress.unbound if pod.was_tried]
        if tried and binding.tried_at is None:
            binding = replace(binding, tried_at=self._clock(), deadline=self._new_deadline)
            self._bindings.keep(binding)
            is_due = False
        binding = self._hear(binding, progress)
        if not is_due:
            return
        overdue = tried or [pod for pod in progress.unbound if self._members.is_gated(pod)]
        if binding.answer:
            self._act(binding, progress, binding.answer)
        elif overdue:
            self._give_up_overdue(binding, progress, overdue[0])
        else:
            first = progress.unbound[0]
            self._wait(binding, progress, f"no scheduler has looked at pod {first.name} yet")

    def _hear(self, binding: PendingBinding, progress: Progress) -> PendingBinding:
        """Take what kube-scheduler says of a plan now, and report what is new."""
        answer, before = answer_of(progress.unbound), binding.answer
        if answer and answer.fault is Fault.UNKNOWN:
            # A program of others that says the same of a second node would say it of each.
            key, nodes = exclusion_key(binding.unit), answer.nodes
            is_known = before is not None and before.words == answer.words
            is_everywhere = self.excluded.is_said_elsewhere(key, answer.words, nodes)
            fault = Fault.UNIT if is_everywhere else Fault.NODE
            answer = replace(answer, fault=before.fault if before and is_known else fault)
        if answer == before:
            return binding
        binding = binding.heard(answer, self._clock(), self._patience)
        binding = replace(binding, causes={**self._causes(binding), **binding.causes})
        self._bindings.keep(binding)
        reason = answer.waiting if answer else ""
        self._report(binding, Phase.COMMITTING, len(progress.bound), reason)
        return binding

    def _causes(self, binding: PendingBinding) -> dict[str, NodeCause]:
        """Return the nodes to which the answer about a plan refers, as they are now."""
        nodes = binding.answer.nodes if binding.answer else ()
        own = frozenset(member.uid for member in binding.plan.members)
        return {node: cause_at(self._informers.state, node, own) for node in nodes}

    def _act(self, binding: PendingBinding, progress: Progress, answer: BindAnswer) -> None:
        """Act on an answer that has stood for a while.

        Members that run are not evicted before creating them again takes as long as they waited.
        """
        if answer.fault is Fault.UNIT:
            self._bindings.keep(replace(binding, deadline=self._new_deadline))
            self._report(binding, Phase.COMMITTING, len(progress.bound), answer.waiting)
        elif renewed := binding.renewed(self._causes(binding), self._clock()):
            # kube-scheduler tries again after such a change.
            self._bindings.keep(renewed)
        elif progress.bound:
            self._give_up_overdue(binding, progress, progress.unbound[0], answer)
        else:
            self._failed.give_up(binding, progress, answer.failure, answer)

    def _give_up_overdue(
        self,
        binding: PendingBinding,
        progress: Progress,
        first: PodInfo,
        answer: BindAnswer | None = None,
    ) -> None:
        """Evict a gang with an unbound member, unless creating the pods again takes longer."""
        node = ", ".join(binding.nodes_of([first]))
        waited = self._clock() - (binding.tried_at or 0.0)
        recreation = recreation_time(progress.bound + progress.unbound)
        limit = max(self._patience, recreation if waited >= recreation else 0.0)
        reason = f"pod {first.name} was not bound to {node} within {limit:g} s"
        reason = answer.failure if answer else reason
        if waited >= recreation:
            self._failed.give_up(binding, progress, reason, answer)
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
        self.excluded.include(exclusion_key(binding.unit))
        self._vain.bound(binding.unit)
        self._report(binding, Phase.PLACED, len(progress.bound) + len(others))
