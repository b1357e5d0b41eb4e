"""Each gang's plan, from the moment it is written until all members are bound, or sent away again.

A member that is not bound in time keeps the others from working while they keep their GPUs. So all
are moved: evicted, to be planned anew without the nodes that failed. The time runs from when a
scheduler looks at a member, and is no shorter than it takes to make the pods again. Pods that
nobody would make again, and those whose Job counts an eviction as a failure, stay, and people are
told why.
"""

from collections.abc import Collection, Coroutine, Iterable, Mapping, Set
from dataclasses import replace

import structlog

from cluster.gang import GangKey
from cluster.record import Allocation
from runtime.kube.client import Kube
from runtime.process.clock import Clock
from scorer.cache.cluster_state import Key
from scorer.cache.informers import Informers
from scorer.commit.evict import evict
from scorer.commit.pending_binding import PendingBinding, Progress, eviction_blocker, moving_takes
from scorer.gang.crd import GangPlan, Phase, PlannedPod, name_of
from scorer.gang.pod_info import PodInfo
from scorer.gang.unit import Unit, settled_unit
from scorer.metrics import Metrics, Stage
from scorer.queue.fault_isolation import FaultIsolation
from scorer.report.status_reporter import StatusReporter, StatusUpdate

Call = Coroutine[None, None, None]

_AVOIDED_FOR = 180.0
"""A node where a gang could not be bound is avoided for so long [s]."""

_log = structlog.get_logger()


class BindingTracker:
    """Watches over plans that are carried out."""

    def __init__(
        self,
        kube: Kube,
        informers: Informers,
        status_reporter: StatusReporter,
        metrics: Metrics,
        faults: FaultIsolation,
        clock: Clock,
    ) -> None:
        """Say what to read, and where to write."""
        self._kube, self._informers, self._status_reporter, self._clock = (
            kube,
            informers,
            status_reporter,
            clock,
        )
        self._metrics, self._faults = metrics, faults
        self._carried: dict[GangKey, dict[str, PendingBinding]] = {}
        """By plan's id: who comes later has another plan than those who are not bound yet."""
        self._failed: dict[GangKey, tuple[frozenset[str], float]] = {}
        """Nodes where a gang could not be bound, and until when they are avoided."""

    @property
    def avoided(self) -> Mapping[GangKey, frozenset[str]]:
        """Nodes to which gangs shall not go now."""
        return {key: nodes for key, (nodes, _) in self._still_failed().items()}

    def _still_failed(self) -> dict[GangKey, tuple[frozenset[str], float]]:
        """Return what holds now of `_failed`, and forget the rest."""
        now = self._clock()
        past = [key for key, (_, until) in self._failed.items() if until <= now]
        for key in past:
            del self._failed[key]
        return self._failed

    def begin(self, unit: Unit, plan: GangPlan) -> None:
        """Watch over a plan from now on; one that goes on has the time that it is left with."""
        before = self._carried.get(unit.key, {}).get(plan.id)
        self._keep(PendingBinding(unit, plan, before.deadline if before else self._later))

    def _keep(self, carried: PendingBinding) -> None:
        self._carried.setdefault(carried.unit.key, {})[carried.plan.id] = carried

    def drop(self, key: GangKey, plan_id: str) -> None:
        """Watch over a plan no longer: nobody has got anything by it, or it has come to its end."""
        plans = self._carried.get(key, {})
        plans.pop(plan_id, None)
        if not plans:
            self._carried.pop(key, None)

    def is_moving(self, key: GangKey) -> bool:
        """Tell whether a gang's members are being sent away, so that none is planned meanwhile."""
        return any(carried.moving for carried in self._carried.get(key, {}).values())

    def _all(self) -> list[PendingBinding]:
        return [carried for plans in self._carried.values() for carried in plans.values()]

    @property
    def _patience(self) -> float:
        return self._informers.policy.policy.gangs.commit_deadline_seconds

    @property
    def _later(self) -> float:
        return self._clock() + self._patience

    def left(self) -> float | None:
        """Return until a plan is due, or a node no longer avoided [s]; None where neither is."""
        now = self._clock()
        dues = [one.deadline for one in self._all() if not self._is_resting(one)]
        dues += [until for _, until in self._still_failed().values()]
        return max(min(dues) - now, 0.0) + 0.1 if dues else None

    def _is_resting(self, carried: PendingBinding) -> bool:
        return self._faults.is_resting(Stage.FOLLOW, carried.unit.key)

    def why_immovable(self, pods: Iterable[PodInfo]) -> str | None:
        """Say why pods must not be evicted to be placed again; None where they may."""
        return eviction_blocker(pods, self._informers.fails_on_eviction)

    def resume(self) -> None:
        """Go on to watch over what a leader before has begun."""
        for at in self._informers.state.groups:
            with self._faults.contained(Stage.FOLLOW, at):
                self._resume(at)

    def _resume(self, at: Key) -> None:
        state, owners = self._informers.state, self._informers.owners
        begun: dict[tuple[GangKey, str], list[PodInfo]] = {}
        for pod in state.group(at):
            plan_id = plan_id_of(pod)
            if plan_id and pod.settled:
                begun.setdefault((owners.key(pod), plan_id), []).append(pod)
        for (key, plan_id), pods in begun.items():
            if all(pod.bound for pod in pods):
                continue
            mine = [pod for pod in state.group(at) if owners.key(pod) == key]
            unit = settled_unit(key, mine, owners)
            self.begin(unit, self._plan(unit, plan_id) or plan_told(plan_id, pods))

    def _plan(self, unit: Unit, plan_id: str) -> GangPlan | None:
        """Return the plan of this id that a gang's object has."""
        gang = self._informers.gangs.get((unit.key.namespace, name_of(unit.key)))
        plan = gang.spec.plan if gang and unit.is_gang else None
        return plan if plan and plan.id == plan_id else None

    def follow(self, changed: Set[Key]) -> list[Call]:
        """See how far each plan is; return the evictions of those that cannot come to an end.

        Args:
            changed: Groups of which a pod changed since the last look.
        """
        conflicts = {one.uid: one.reason for one in self._informers.state.conflicts}
        calls: list[Call] = []
        for carried in self._all():
            is_due = self._clock() >= carried.deadline
            if self._is_resting(carried):
                continue
            if is_due or conflicts or carried.unit.group in changed:
                with self._faults.contained(Stage.FOLLOW, carried.unit.key):
                    calls += self._look(carried, conflicts, is_due=is_due)
        return calls

    def _look(
        self, carried: PendingBinding, conflicts: Mapping[str, str], *, is_due: bool
    ) -> list[Call]:
        pods = tuple(self._informers.state.group(carried.unit.group))
        # A member that was refused may have another plan by now.
        mine = (pod for pod in pods if plan_id_of(pod) in {None, carried.plan.id})
        progress = carried.progress(mine)
        if not progress.unbound:
            others = self._others(carried, progress.bound, pods)
            self._try_to_end(carried, progress, others, is_due=is_due)
            return []
        refuted = next((pod for pod in progress.unbound if pod.uid in conflicts), None)
        if refuted is not None and not carried.moving:
            return self._give_up(carried, progress, conflicts[refuted.uid])
        tried = [pod for pod in progress.unbound if pod.was_tried]
        if tried and carried.tried_at is None:
            self._keep(replace(carried, tried_at=self._clock(), deadline=self._later))
            return []
        if not is_due:
            return []
        late = tried or [pod for pod in progress.unbound if self._is_ours(pod)]
        if not late:
            first = progress.unbound[0]
            self._wait(carried, progress, f"no scheduler has looked at pod {first.name} yet")
            return []
        return self._give_up_late(carried, progress, late[0])

    def _is_ours(self, pod: PodInfo) -> bool:
        """Tell whether a pod is not let go yet, so that no scheduler can bring it."""
        return pod.waiting is not None or self._informers.state.is_assumed(pod)

    def _give_up_late(
        self, carried: PendingBinding, progress: Progress, first: PodInfo
    ) -> list[Call]:
        """Move a gang of which a member was not bound in time, unless that takes still longer."""
        node = ", ".join(carried.nodes_of([first]))
        waited = self._clock() - (carried.tried_at or 0.0)
        takes = moving_takes(progress.bound + progress.unbound)
        within = max(self._patience, takes if waited >= takes else 0.0)
        why = f"pod {first.name} was not bound to {node} within {within:g} s"
        if waited >= takes or carried.moving:
            return self._give_up(carried, progress, why)
        why = f"{why}; it is not moved before {takes:g} s: its Job may take as long to make it anew"
        self._wait(carried, progress, why, takes - waited)
        return []

    def _wait(
        self, carried: PendingBinding, progress: Progress, why: str, seconds: float | None = None
    ) -> None:
        """Look at a plan again in a while, and say what it waits for."""
        self._keep(replace(carried, deadline=self._clock() + (seconds or self._patience)))
        if self.why_immovable(progress.bound + progress.unbound) is None or not carried.tried_at:
            members = len(progress.bound), carried.unit.needed
            self._status_reporter.enqueue(
                StatusUpdate(carried.unit, Phase.COMMITTING, members, carried.plan, why)
            )

    def _others(
        self, carried: PendingBinding, mine: Iterable[PodInfo], pods: Iterable[PodInfo]
    ) -> list[PodInfo]:
        """Return the settled members of the same gang that are none of these."""
        unit, uids = carried.unit, {pod.uid for pod in mine}
        settled = (pod for pod in pods if unit.is_gang and pod.settled and pod.uid not in uids)
        return [pod for pod in settled if self._informers.owners.key(pod) == unit.key]

    def _try_to_end(
        self,
        carried: PendingBinding,
        progress: Progress,
        others: Collection[PodInfo],
        *,
        is_due: bool,
    ) -> None:
        """Watch over a plan no longer whose members are bound or gone, unless its gang waits."""
        key = carried.unit.key
        waits = not is_due if carried.moving else not all(pod.bound for pod in others)
        if progress.bound and waits:
            # One of its own that is just tried by another plan may be refused, and then it is late.
            if is_due and not carried.has_any(others):
                self._keep(replace(carried, deadline=self._later))
            return
        self.drop(key, carried.plan.id)
        if not progress.bound and not others:
            self._status_reporter.forget(key)
        if not progress.bound or carried.moving:
            return
        self._failed.pop(key, None)
        members = len(progress.bound) + len(others), carried.unit.needed
        self._status_reporter.enqueue(
            StatusUpdate(carried.unit, Phase.PLACED, members, carried.plan)
        )

    def _give_up(self, carried: PendingBinding, progress: Progress, why: str) -> list[Call]:
        """Send all members away to be placed again, or say why they have to stay."""
        key, pods = carried.unit.key, progress.bound + progress.unbound
        stays = self.why_immovable(pods)
        reason = f"{why}; {stays}" if stays else f"{why}; all members are moved"
        members = len(progress.bound), carried.unit.needed
        sent_away = "" if stays else why
        word = StatusUpdate(
            carried.unit, Phase.COMMITTING, members, carried.plan, reason, sent_away
        )
        self._status_reporter.enqueue(word)
        # They are looked at again later: a budget may have kept some, or a node may be back.
        self._keep(replace(carried, deadline=self._later, moving=not stays))
        if stays:
            return []
        failed = carried.nodes_of(pod for pod in progress.unbound if pod.was_tried)
        nodes = self.avoided.get(key, frozenset()) | failed
        if nodes:
            self._failed[key] = nodes, self._clock() + _AVOIDED_FOR
        _log.warning("Moving gang", gang=f"{key.namespace}/{key.name}", err=why)
        self._metrics.evicted(len(pods))
        return [evict(self._kube, pods, self._faults)]


def plan_told(plan_id: str, pods: Iterable[PodInfo]) -> GangPlan:
    """Return the plan that pods' own records tell: of a pod on its own, or where a Gang is gone."""
    members = tuple(
        PlannedPod(pod.name, pod.uid, record.node, tuple(share.i for share in record.gpus))
        for pod in pods
        if pod.usage and isinstance(record := pod.usage.record, Allocation)
    )
    return GangPlan(plan_id, exact=True, members=members)


def plan_id_of(pod: PodInfo) -> str | None:
    """Return which plan gave a pod its GPUs."""
    record = pod.usage.record if pod.usage else None
    return record.plan if record and not isinstance(record, str) else None
