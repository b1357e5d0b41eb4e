"""Move gangs off faults: evict a gang as a whole, once, so that it is planned on healthy GPUs.

GPUs that claims hold instead of the planned ones count as faults if their links are slower.
The move is written into the Gang before the first eviction. So the next leader completes it, and
never begins a second one. No member is planned while others are still to be evicted.
"""

from collections.abc import Coroutine, Set
from math import inf
from typing import Any

import structlog

from cluster.gang import GangKey
from cluster.keys import MOVED
from runtime.kube.client import KubeError
from scorer.commit.binding_tracker import BindingTracker
from scorer.commit.evict import evict
from scorer.commit.handle import Handle
from scorer.gang.crd import Gang, GangPlan, Phase
from scorer.gang.health import Fault, fault_text, faults_of, slower_gpus, unplanned_gpus
from scorer.gang.moved import Moved, is_moving, left_behind, moved_of, moved_text, running
from scorer.gang.pod_info import PodInfo
from scorer.gang.unit import settled_unit
from scorer.metrics import Stage
from scorer.queue.fault_moves import Candidate, decide
from scorer.report.status_update import StatusUpdate

Call = Coroutine[Any, Any, object]

_RETRY = 5.0
"""Time until pods are evicted again that were not [s]."""
_CHECK = 60.0
"""Time until a refused move is tried again, and between two checks whether moves have ended [s]."""

_REPORTED = "no pod is evicted because of that (policy gangs.onFault: report)"

_log = structlog.get_logger()


class Healer:
    """The faults under the gangs of one term of the Lease, and the moves off them."""

    def __init__(self, handle: Handle, binding_tracker: BindingTracker) -> None:
        """Start without faults. Their times start again with each leader."""
        self._handle, self._informers = handle, handle.informers
        self._state, self._status_reporter = handle.informers.state, handle.status_reporter
        self._clock, self._binding_tracker = handle.clock, binding_tracker
        self._since: dict[GangKey, dict[Fault, float]] = {}
        """Since when each fault under a gang lasts [s since 1970]."""
        self._moving: set[GangKey] = set()
        """Gangs that were moved, and may not run again yet."""
        self._records: dict[GangKey, Moved] = {}
        """Moves of this term, which the watch may not show yet."""
        self._beginning: set[GangKey] = set()
        """Gangs whose move is not recorded yet, so that no pod may be evicted."""
        self._tried_at: dict[GangKey, float] = {}
        """When the pods of a gang were evicted last [s since 1970]."""
        self._refused: dict[GangKey, tuple[str, float]] = {}
        """Why the move of a gang was not begun, and when it is tried again [s since 1970]."""
        self._preempted: Set[GangKey] = frozenset()
        """Gangs that are evicted for units of a higher priority."""
        self._unobserved: set[GangKey] = set()
        """Gangs that have changed; more than those of a round only after an exception."""
        self._next_at = inf
        self._has_synced = False

    @property
    def faulty(self) -> int:
        """The number of gangs with a fault under them."""
        return len(self._since)

    def is_evicting(self, key: GangKey) -> bool:
        """Return whether members of a gang are still to be evicted, so that none may be planned."""
        gang = self._informers.gang(key) if key in self._moving else None
        if gang is None:
            return False
        return bool(left_behind(gang, self._moved(gang), self._pods(key), self._clock()))

    @property
    def moving(self) -> frozenset[GangKey]:
        """The gangs that were moved, and may not run again yet."""
        return frozenset(self._moving)

    def is_moving(self, key: GangKey) -> bool:
        """Return whether a gang was moved, and may not run again yet."""
        return key in self._moving

    def time_left(self) -> float | None:
        """Return the time until a gang is to be evicted, or evicted again [s]; None: never."""
        now = self._clock()
        retries = [_RETRY] if any(map(self.is_evicting, self._moving)) else []
        # A move may also end with its time, which lets another one begin.
        retries += [_CHECK] if self._moving or self._refused else []
        times = [*retries, *([self._next_at - now] if self._next_at < inf else [])]
        return max(min(times), 0.0) + 0.1 if times else None

    def update(self, changed: Set[GangKey], preempted: Set[GangKey]) -> list[Call]:
        """Return the evictions that are due.

        Args:
            changed: Gangs of which the object, a pod, its node or the owner changed.
            preempted: Gangs that are being evicted for units of a higher priority.

        Cost: the pods of these gangs, and of those with faults that last; in the first call of a
        term those of all gangs.
        """
        now, gangs, self._preempted = self._clock(), self._informers.gangs, preempted
        self._unobserved |= changed if self._has_synced else {gang.key for gang in gangs.values()}
        self._handle.faults.work_off(Stage.EVICT, self._unobserved, self._observe)
        self._has_synced = True
        self._moving = {key for key in self._moving if self._is_moving(key, now)}
        self._refused = {key: refusal for key, refusal in self._refused.items() if refusal[1] > now}
        self._records = {key: self._records[key] for key in self._moving & self._records.keys()}
        self._tried_at = {key: self._tried_at[key] for key in self._moving & self._tried_at.keys()}
        return [*self._complete_moves(now), *self._start_moves(now)]

    def _observe(self, key: GangKey) -> None:
        """Note the faults under a gang, and its move."""
        now = self._clock()
        before = self._since.pop(key, {})
        faults = self._faults(running(self._pods(key)))
        if faults and self._informers.gang(key) is not None:
            self._since[key] = {fault: before.get(fault, now) for fault in faults}
        elif before:
            self._status_reporter.explain_fault(key, "")
        if self._is_moving(key, now):
            self._moving.add(key)

    def _faults(self, pods: tuple[PodInfo, ...]) -> frozenset[Fault]:
        state = self._state
        return faults_of(pods, state.ledger) | slower_gpus(pods, state.ledger, state.links)

    def _fault_text(self, pods: tuple[PodInfo, ...]) -> str:
        state = self._state
        texts = fault_text(pods, state.ledger), unplanned_gpus(pods, state.ledger, state.links)
        return "; ".join(filter(None, texts))

    def _is_moving(self, key: GangKey, now: float) -> bool:
        gang = self._informers.gang(key)
        return gang is not None and is_moving(gang, self._moved(gang), self._pods(key), now)

    def _moved(self, gang: Gang) -> Moved | None:
        return self._records.get(gang.key) or moved_of(gang)

    def _complete_moves(self, now: float) -> list[Call]:
        """Return the evictions of pods that a move, maybe of the last leader, left behind."""
        calls: list[Call] = []
        for key in self._moving:
            gang = self._informers.gang(key)
            is_early = key in self._beginning or now < self._tried_at.get(key, -inf) + _RETRY
            if gang is None or is_early:
                continue
            if pods := left_behind(gang, self._moved(gang), self._pods(key), now):
                self._tried_at[key] = now
                calls.append(evict(self._handle, pods))
        return calls

    def _start_moves(self, now: float) -> list[Call]:
        """Decide which gangs move now, and report why others do not."""
        policy, self._next_at = self._informers.policy.policy.gangs, inf
        if policy.on_fault != "evict":
            for key in self._since:
                self._status_reporter.explain_fault(key, _REPORTED)
            return []
        decision = decide(
            [
                self._candidate(key, since)
                for key, since in self._since.items()
                if key not in self._moving
            ],
            self._blocker,
            now=now,
            seconds=policy.on_fault_seconds,
            free=policy.max_concurrent_moves - len(self._moving),
        )
        self._next_at = decision.next_at
        for key, why in decision.waits.items():
            self._status_reporter.explain_fault(key, why)
        gangs = filter(None, map(self._informers.gang, decision.moves))
        return [self._move(gang.key, gang.spec.plan, now) for gang in gangs if gang.spec.plan]

    def _candidate(self, key: GangKey, since: dict[Fault, float]) -> Candidate:
        gang, usages = self._informers.gang(key), (pod.usage for pod in self._pods(key))
        moved = moved_of(gang) if gang else None
        priority = max((usage.priority for usage in usages if usage), default=0)
        return Candidate(key, priority, since, moved.at if moved else -inf)

    def _blocker(self, key: GangKey) -> str | None:
        """Return why a gang must not be evicted; None: it may be."""
        gang, pods = self._informers.gang(key), running(self._pods(key))
        plan = gang.spec.plan if gang else None
        if key in self._refused:
            return self._refused[key][0]
        if key in self._preempted:
            return "it is being evicted for a unit of a higher priority"
        planned = {member.uid for member in plan.members} if plan else set[str]()
        for pod in pods:
            if pod.uid not in planned:
                return f"its recorded plan does not have pod {pod.name}"
            if not pod.bound:
                return f"pod {pod.name} is not bound yet"
        return self._binding_tracker.eviction_blocker(pods)

    def _move(self, key: GangKey, plan: GangPlan, now: float) -> Call:
        """Evict a gang once the move is recorded."""
        self._moving.add(key)
        self._beginning.add(key)
        self._tried_at[key] = now
        pods = running(self._pods(key))
        self._records[key] = Moved(plan.id, now, self._fault_text(pods))
        return self._record_and_evict(key, plan, pods, self._records[key])

    def _refuse(self, key: GangKey, why: str) -> None:
        """Begin no move of a gang for a while."""
        self._refused[key] = why, self._clock() + _CHECK
        self._informers.changed.set()

    async def _record_and_evict(
        self, key: GangKey, plan: GangPlan, pods: tuple[PodInfo, ...], moved: Moved
    ) -> None:
        reason = moved.why
        lost = {fault.node for fault in self._faults(pods) if fault.gpu is None}
        with self._handle.faults.isolate(Stage.EVICT, key):
            is_begun = False
            try:
                is_begun = await self._begin(key, pods, moved)
            finally:
                self._beginning.discard(key)
                if not is_begun:
                    self._records.pop(key, None)
            if not is_begun:
                return
            _log.warning("Moving gang", gang=f"{key.namespace}/{key.name}", err=reason)
            self._binding_tracker.exclude(key, frozenset(lost))
            self._handle.metrics.moved(len(pods))
            self._status_reporter.explain_fault(key, "")
            unit = settled_unit(key, pods, self._informers.owners)
            members = len(pods), unit.needed
            self._status_reporter.enqueue(
                StatusUpdate(unit, Phase.COMMITTING, members, plan, reason, eviction_reason=reason)
            )
            await evict(self._handle, pods)

    async def _begin(self, key: GangKey, pods: tuple[PodInfo, ...], moved: Moved) -> bool:
        """Record a move, if all pods may be evicted; return whether it is recorded."""
        try:
            if why := self._informers.budgets.blocker(pods):
                self._refuse(key, why)
                return False
            await self._status_reporter.annotate(key, MOVED, moved_text(moved))
        except KubeError as error:
            name = f"{key.namespace}/{key.name}"
            _log.warning("Could not record move", gang=name, err=str(error))
            self._refuse(key, f"its move could not be recorded: {error}")
            return False
        return True

    def _pods(self, key: GangKey) -> list[PodInfo]:
        key_of = self._informers.owners.key
        return [pod for pod in self._state.group(key[:2]) if key_of(pod) == key]
