"""Move gangs off faults: evict a gang as a whole, once, so that it is planned on healthy GPUs.

GPUs that claims hold instead of the planned ones count as faults if their links are slower.
The move is written into the Gang before the first eviction. So the next leader completes it, and
never begins a second one. No member is planned while others are still to be evicted.
"""

import asyncio
from collections.abc import Set
from functools import partial
from math import inf

import msgspec
import structlog

from linkwise.cluster.gang import GangKey
from linkwise.cluster.keys import MOVED
from linkwise.planning.gang.crd import Gang, Phase
from linkwise.planning.gang.crd_plan import GangPlan
from linkwise.planning.gang.health import Fault, fault_text, faults_of, slower_gpus, unplanned_gpus
from linkwise.planning.gang.moved import (
    Moved,
    is_moving,
    left_behind,
    moved_of,
    moved_text,
    running,
)
from linkwise.planning.gang.pod_info import PodInfo
from linkwise.planning.gang.unit import settled_unit
from linkwise.runtime.kube.client import KubeError
from scorer.commit.binding.excluded_nodes import SECONDS
from scorer.commit.binding.tracker import BindingTracker
from scorer.commit.handle import Handle
from scorer.commit.removal.removal_state import Removal, Step
from scorer.commit.removal.removals import Call, Removals, Request
from scorer.metrics import EvictionReason, Stage
from scorer.queue.fault_moves import Candidate, decide
from scorer.report.status_update import Evicted, StatusUpdate

_CHECK = 60.0
"""Time between two checks whether moves have ended [s]."""

_AGAIN = 5.0
"""Time until the end of a move is written again that was not [s]."""
_REPORTED = "no pod is evicted because of that (policy gangs.onFault: report)"

_log = structlog.get_logger()


class Healer:
    """The faults under the gangs of one term of the Lease, and the moves off them."""

    def __init__(self, handle: Handle, binding_tracker: BindingTracker, removals: Removals) -> None:
        """Start without faults. Their times start again with each leader."""
        self._removals = removals
        self._handle, self._informers = handle, handle.informers
        self._state, self._status_reporter = handle.informers.state, handle.status_reporter
        self._clock, self._binding_tracker = handle.clock, binding_tracker
        self._since: dict[GangKey, dict[Fault, float]] = {}
        """Since when each fault under a gang lasts [s since 1970]."""
        self._moving: set[GangKey] = set()
        """Gangs that were moved, and may not run again yet."""
        self._records: dict[GangKey, Moved] = {}
        """Moves of this term, which the watch may not show yet."""
        self._recorded: set[GangKey] = set()
        """Gangs whose move is recorded, and not decided yet."""
        self._calls: list[Call] = []
        self._unobserved: set[GangKey] = set()
        """Gangs that have changed; more than those of a round only after an exception."""
        self._next_at = inf
        self._has_synced = False

    @property
    def faulty(self) -> int:
        """The number of gangs with a fault under them."""
        return len(self._since)

    @property
    def moving(self) -> frozenset[GangKey]:
        """The gangs that were moved, and may not run again yet."""
        return frozenset(self._moving)

    def is_moving(self, key: GangKey) -> bool:
        """Return whether a gang was moved, and may not run again yet."""
        return key in self._moving

    def time_left(self) -> float | None:
        """Return the time until a gang is to be evicted, or evicted again [s]; None: never."""
        # A move may also end with its time, which lets another one begin.
        times = [_CHECK] if self._moving else []
        times += [self._next_at - self._clock()] if self._next_at < inf else []
        return max(min(times), 0.0) + 0.1 if times else None

    def update(self, changed: Set[GangKey]) -> list[Call]:
        """Begin the moves that are due; return other calls.

        Args:
            changed: Gangs of which the object, a pod, its node or the owner changed.

        Cost: the pods of these gangs, and of those with faults that last; in the first call of a
        term those of all gangs.
        """
        now, gangs = self._clock(), self._informers.gangs
        self._unobserved |= changed if self._has_synced else {gang.key for gang in gangs.values()}
        self._handle.faults.work_off(Stage.EVICT, self._unobserved, self._observe)
        self._has_synced = True
        self._moving = {key for key in self._moving if self._is_moving(key, now)}
        self._records = {
            key: moved for key, moved in self._records.items() if self._is_needed(key, moved)
        }
        self._complete_moves(now)
        self._start_moves(now)
        calls, self._calls = self._calls, []
        return calls

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

    def _is_needed(self, key: GangKey, moved: Moved) -> bool:
        """Return whether the watch may not show a move of this term as it is."""
        gang = self._informers.gang(key)
        return key in self._moving or (gang is not None and moved_of(gang) != moved)

    def _complete_moves(self, now: float) -> None:
        """Evict the pods that a move of the last leader left behind."""
        for key in self._moving:
            gang = self._informers.gang(key)
            moved = self._moved(gang) if gang else None
            if gang is None or moved is None or gang.spec.plan is None or key in self._removals:
                continue
            if pods := left_behind(gang, moved, self._pods(key), now):
                is_begun = len(pods) < len(gang.spec.plan.members)
                self._recorded.add(key)
                self._records[key] = moved
                self._removals.begin(
                    Request(
                        {key: pods},
                        EvictionReason.FAULT,
                        on_end=partial(self._removed, gang.spec.plan, pods, moved),
                        begun=frozenset({key} if is_begun else ()),
                    )
                )

    def _start_moves(self, now: float) -> None:
        """Decide which gangs move now, and report why others do not."""
        policy, self._next_at = self._informers.policy.policy.gangs, inf
        if policy.on_fault != "evict":
            for key in self._since:
                self._status_reporter.explain_fault(key, _REPORTED)
            return
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
        for gang in filter(None, map(self._informers.gang, decision.moves)):
            if gang.spec.plan:
                self._move(gang.key, gang.spec.plan, now)

    def _candidate(self, key: GangKey, since: dict[Fault, float]) -> Candidate:
        gang, usages = self._informers.gang(key), (pod.usage for pod in self._pods(key))
        moved = moved_of(gang) if gang else None
        priority = max((usage.priority for usage in usages if usage), default=0)
        return Candidate(key, priority, since, moved.at if moved else -inf)

    def _blocker(self, key: GangKey) -> str | None:
        """Return why a gang must not be evicted; None: it may be."""
        gang, pods = self._informers.gang(key), running(self._pods(key))
        plan = gang.spec.plan if gang else None
        if why := self._removals.refused_lately(key):
            return why
        if key in self._removals:
            return "it is being evicted already"
        planned = {member.uid for member in plan.members} if plan else set[str]()
        for pod in pods:
            if pod.uid not in planned:
                return f"its recorded plan does not have pod {pod.name}"
            if not pod.bound:
                return f"pod {pod.name} is not bound yet"
        return self._informers.workloads.eviction_blocker(pods)

    def _move(self, key: GangKey, plan: GangPlan, now: float) -> None:
        """Evict a gang once the move is recorded."""
        pods = running(self._pods(key))
        moved = Moved(plan.id, now, self._fault_text(pods))
        self._moving.add(key)
        self._records[key] = moved
        self._removals.begin(
            Request(
                {key: pods},
                EvictionReason.FAULT,
                on_end=partial(self._removed, plan, pods, moved),
                record=partial(self._record, key, moved),
            )
        )

    async def _record(self, key: GangKey, moved: Moved) -> str | None:
        """Record a move; return why it is not, or None."""
        name = f"{key.namespace}/{key.name}"
        try:
            await self._status_reporter.annotate(key, MOVED, moved_text(moved))
        except KubeError as error:
            _log.warning("Could not record move", gang=name, err=str(error))
            return f"its move could not be recorded: {error}"
        self._recorded.add(key)
        _log.warning("Moving gang", gang=name, err=moved.why)
        self._status_reporter.explain_fault(key, "")
        return None

    def _removed(
        self, plan: GangPlan, pods: tuple[PodInfo, ...], moved: Moved, removal: Removal
    ) -> None:
        """Report what became of a gang; a move that was refused has ended.

        Args:
            plan: What was given up.
            pods: The members.
            moved: The move.
            removal: Of the members.
        """
        key = removal.key
        if removal.step is Step.GONE:
            lost = {fault.node for fault in self._faults(pods) if fault.gpu is None}
            # A node that comes and goes is not trusted at once.
            excluded = self._binding_tracker.excluded
            excluded.exclude(key, frozenset(lost), "it was lost", at_least=SECONDS)
        elif key in self._recorded:
            self._records[key] = msgspec.structs.replace(moved, is_over=True)
            self._calls.append(self._end_move(key, self._records[key]))
        else:
            self._records.pop(key, None)
            if not self._removals.refused_lately(key):
                self._removals.protect(key, removal.refusal)
        self._recorded.discard(key)
        if removal.accepted:
            self._report(plan, pods, moved, removal)

    def _report(
        self, plan: GangPlan, pods: tuple[PodInfo, ...], moved: Moved, removal: Removal
    ) -> None:
        self._handle.metrics.moved()
        unit = settled_unit(removal.key, pods, self._informers.owners)
        evicted = Evicted(len(removal.accepted), moved.why, removal.refusal)
        reason = f"{moved.why}; {removal.summary}" if removal.refusal else moved.why
        members = len(pods), unit.needed
        self._status_reporter.enqueue(
            StatusUpdate(unit, Phase.COMMITTING, members, plan, reason, evicted=evicted)
        )

    async def _end_move(self, key: GangKey, moved: Moved) -> None:
        """Record that a move has ended, so that the next leader does not go on with it."""
        while self._records.get(key) == moved and self._informers.gang(key):
            try:
                await self._status_reporter.annotate(key, MOVED, moved_text(moved))
            except KubeError as error:
                name = f"{key.namespace}/{key.name}"
                _log.warning("Could not record the end of a move", gang=name, err=str(error))
                await asyncio.sleep(_AGAIN)
            else:
                return

    def _pods(self, key: GangKey) -> list[PodInfo]:
        key_of = self._informers.owners.key
        return [pod for pod in self._state.groups.of(key[:2]) if key_of(pod) == key]
