"""Plans whose members are not all bound yet: their progress and their deadlines."""

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace

from linkwise.cluster.gang import GangKey
from linkwise.planning.gang.bind_answer import STANDS, BindAnswer
from linkwise.planning.gang.crd_plan import GangPlan
from linkwise.planning.gang.pod_info import PodInfo
from linkwise.planning.gang.unit import Unit
from scorer.commit.binding.node_cause import NodeCause

_RENEWALS = 2
"""How often an answer has to stand for a while again: on a busy node pods come and go."""


@dataclass(frozen=True, slots=True)
class Progress:
    """The members of a plan that still exist."""

    bound: tuple[PodInfo, ...]
    unbound: tuple[PodInfo, ...]
    """They have their GPUs, and no node yet."""


@dataclass(frozen=True, slots=True)
class PendingBinding:
    """A plan whose members are being written, or wait to be bound."""

    unit: Unit
    plan: GangPlan
    deadline: float
    """Until then all members should be bound [s since 1970]."""
    writing_since: float | None = None
    """Since when members are written for the first time [s since 1970]; None: they are not. The
    deadline is later by this time."""
    was_written: bool = False
    """All members were written or refused, so that a further try does not delay the deadline."""
    tried_at: float | None = None
    """Time when a scheduler first tried one of the members [s since 1970]. The time before does not
    count. None: no scheduler has."""
    answer: BindAnswer | None = None
    """What kube-scheduler says of its members; None: nothing."""

    causes: Mapping[str, NodeCause] = field(default_factory=dict)
    """The nodes to which the answer refers, as they were then."""
    renewals: int = 0
    """How often it had to stand for a while again, since these nodes had changed."""

    def heard(self, answer: BindAnswer | None, now: float, patience: float) -> "PendingBinding":
        """Return the same plan after an answer of kube-scheduler, which stands for a short time.

        Args:
            answer: The answer; None: none is left.
            now: [s since 1970]
            patience: For how long it waits where kube-scheduler says nothing [s].
        """
        deadline = min(self.deadline, now + STANDS) if answer else now + patience
        return replace(self, answer=answer, deadline=deadline)

    def renewed(self, causes: Mapping[str, NodeCause], now: float) -> "PendingBinding | None":
        """Return the same plan if its nodes have changed, so that its answer has to stand again.

        None if they have not, or the answer has stood so long that this changes nothing.

        Args:
            causes: The nodes now.
            now: [s since 1970]
        """
        changed = (
            node in self.causes and self.causes[node].may_be_gone(each)
            for node, each in causes.items()
        )
        if self.renewals >= _RENEWALS or not any(changed):
            return None
        renewals = self.renewals + 1
        return replace(self, causes=causes, renewals=renewals, deadline=now + STANDS)

    def is_due(self, now: float) -> bool:
        """Return whether the deadline has passed; the time is in seconds since 1970."""
        return self.writing_since is None and now >= self.deadline

    def written(self, now: float) -> "PendingBinding":
        """Return the same plan once its members were written; the time is in seconds since 1970."""
        started = now if self.writing_since is None else self.writing_since
        deadline = self.deadline + now - started
        return replace(self, deadline=deadline, writing_since=None, was_written=True)

    def progress(self, pods: Iterable[PodInfo]) -> Progress:
        """Return the progress, given the pods of the gang. A deleted member counts as neither."""
        members = self._members(pods)
        return Progress(
            bound=tuple(pod for pod in members if pod.bound),
            unbound=tuple(pod for pod in members if not pod.bound),
        )

    def has_any(self, pods: Iterable[PodInfo]) -> bool:
        """Return whether any of these pods is a member of the plan."""
        return bool(self._members(pods))

    def _members(self, pods: Iterable[PodInfo]) -> list[PodInfo]:
        planned = {member.uid for member in self.plan.members}
        return [pod for pod in pods if pod.uid in planned]

    def nodes_of(self, pods: Iterable[PodInfo]) -> frozenset[str]:
        """Return the nodes that are planned for these pods."""
        uids = {pod.uid for pod in pods}
        return frozenset(member.node for member in self.plan.members if member.uid in uids)


class PendingBindings:
    """The plans of all gangs whose members are not all bound."""

    def __init__(self) -> None:
        """Start without plans."""
        self._plans: dict[GangKey, dict[str, PendingBinding]] = {}
        """By id of the plan: members that were created later have a plan of their own."""

    def find(self, key: GangKey, plan_id: str) -> PendingBinding | None:
        """Return a plan, if it is among them."""
        return self._plans.get(key, {}).get(plan_id)

    def of(self, key: GangKey) -> list[PendingBinding]:
        """Return the plans of a gang, the earlier ones first."""
        return [*self._plans.get(key, {}).values()]

    def all(self) -> list[PendingBinding]:
        """Return the plans of all gangs."""
        return [binding for plans in self._plans.values() for binding in plans.values()]

    def keep(self, binding: PendingBinding) -> None:
        """Add a plan, or replace it."""
        self._plans.setdefault(binding.unit.key, {})[binding.plan.id] = binding

    def remove(self, key: GangKey, plan_id: str) -> None:
        """Remove a plan."""
        plans = self._plans.get(key, {})
        plans.pop(plan_id, None)
        if not plans:
            self._plans.pop(key, None)


_JOB_BACKOFF, _JOB_BACKOFF_MAX = 10.0, 600.0
"""Delay of the Job controller before it creates a pod again: doubled with each failure [s]."""


def recreation_time(pods: Iterable[PodInfo]) -> float:
    """Return the longest time until evicted pods are created again, as far as it is known [s].

    The Job controller counts pods that are evicted together as that many failures in a row.
    """
    jobs = Counter(
        pod.controller.uid for pod in pods if pod.controller and pod.controller.kind == "Job"
    )
    # Ten doublings already exceed the maximum.
    delays = (_JOB_BACKOFF * 2 ** min(failed - 1, 10) for failed in jobs.values())
    return min(max(delays, default=0.0), _JOB_BACKOFF_MAX)
