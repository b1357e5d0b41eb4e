"""Plans that are given up: their members are evicted, and the nodes that failed are excluded."""

from dataclasses import replace
from functools import partial

import structlog

from linkwise.planning.gang.bind_answer import BindAnswer
from linkwise.planning.gang.crd import Phase
from linkwise.planning.gang.exclusion import exclusion_key
from linkwise.planning.gang.plan_record import plan_id_of, plan_order
from linkwise.planning.gang.pod_info import PodInfo
from scorer.commit.binding.excluded_nodes import ExcludedNodes
from scorer.commit.binding.pending_binding import PendingBinding, PendingBindings, Progress
from scorer.commit.binding.plan_members import PlanMembers
from scorer.commit.binding.vain_preemptions import VainPreemptions
from scorer.commit.handle import Handle
from scorer.commit.removal.removal_state import Removal, Step
from scorer.commit.removal.removals import Removals, Request
from scorer.metrics import EvictionReason
from scorer.report.status_update import Evicted, StatusUpdate

_log = structlog.get_logger()


class FailedPlans:
    """Takes units off GPUs on which they cannot be bound, for one term of the Lease."""

    def __init__(
        self,
        handle: Handle,
        removals: Removals,
        bindings: PendingBindings,
        members: PlanMembers,
        excluded: ExcludedNodes,
        vain: VainPreemptions,
    ) -> None:
        """Give up nothing yet.

        Args:
            handle: The dependencies.
            removals: Evicts.
            bindings: The plans whose members are not all bound.
            members: Reads their pods.
            excluded: Takes the nodes that failed.
            vain: Takes them, too.
        """
        self._vain = vain
        self._informers, self._clock = handle.informers, handle.clock
        self._status_reporter, self._removals = handle.status_reporter, removals
        self._bindings, self._members, self._excluded = bindings, members, excluded

    @property
    def _patience(self) -> float:
        return self._informers.policy.policy.gangs.commit_deadline_seconds

    def give_up(
        self,
        binding: PendingBinding,
        progress: Progress,
        failure: str,
        answer: BindAnswer | None = None,
    ) -> None:
        """Evict all members, or report why they must stay.

        Args:
            binding: The plan.
            progress: Its members.
            failure: Why it is given up.
            answer: What kube-scheduler says; None: it has said nothing that is understood.
        """
        key = binding.unit.key
        pods = self._pods_to_evict(binding, progress)
        blocker = self._informers.workloads.eviction_blocker(pods)
        blocker = blocker or self._removals.refused_lately(key)
        # Check again later: the API server may let them be evicted, or a node may become ready.
        self._bindings.keep(replace(binding, deadline=self._clock() + self._patience))
        if blocker:
            present = len(progress.bound), binding.unit.needed
            reason = f"{failure}; {blocker}"
            self._status_reporter.enqueue(
                StatusUpdate(binding.unit, Phase.COMMITTING, present, binding.plan, reason)
            )
        elif pods:
            _log.warning("Evicting gang", gang=f"{key.namespace}/{key.name}", err=failure)
            tried = binding.nodes_of(pod for pod in progress.unbound if pod.was_tried)
            unused = answer.nodes if answer else tried
            words = answer.words if answer else ""
            self._removals.begin(
                Request(
                    {key: pods},
                    EvictionReason.UNBOUND,
                    on_end=partial(self._removed, binding, unused, words, failure),
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
        self,
        binding: PendingBinding,
        unused: frozenset[str],
        words: str,
        failure: str,
        removal: Removal,
    ) -> None:
        """Report what became of the members of a plan that failed.

        Args:
            binding: The plan.
            unused: Nodes where members could not be bound.
            words: kube-scheduler's, why; empty: it said nothing.
            failure: Why the plan failed.
            removal: Of its members.
        """
        members = 0, binding.unit.needed
        if removal.step is Step.UNTOUCHED and not removal.refusal:
            return
        if removal.step is Step.GONE:
            key, causes = exclusion_key(binding.unit), binding.causes
            asked = frozenset(member.signature for member in binding.unit.members)
            self._excluded.exclude(key, unused, words, causes=causes, asked=asked)
            self._vain.not_bound(binding.unit, unused)
        reason = f"{failure}; {removal.summary}"
        evicted = Evicted(len(removal.accepted), failure, removal.refusal)
        self._status_reporter.enqueue(
            StatusUpdate(
                binding.unit, Phase.COMMITTING, members, binding.plan, reason, evicted=evicted
            )
        )
