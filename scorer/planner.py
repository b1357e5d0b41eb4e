"""The leader's loop: assemble pending units, track written plans, schedule, and report.

Each change that the informers see starts another round. Between two rounds the loop yields to the
tasks that commit, report and answer requests.
"""

import asyncio
from collections import Counter
from collections.abc import Coroutine, Iterable, Iterator, Mapping, Set
from typing import Any

from linkwise.cluster.gang import GangKey
from linkwise.cluster.objects.metadata import Owner
from linkwise.planning.cycle.cycle import Reservation
from linkwise.planning.gang.unit import Unit
from linkwise.planning.gang.victim_choice import RunningUnits
from linkwise.runtime.kube.objects import Key
from linkwise.runtime.process.clock import loop_time, wait_at_most
from linkwise.runtime.process.cooperative import cooperatively
from linkwise.runtime.process.portions import Portions
from scorer.commit.binding.tracker import BindingTracker
from scorer.commit.binding.vain_preemptions import VainPreemptions
from scorer.commit.handle import Handle
from scorer.commit.healer import Healer
from scorer.commit.removal.removals import Removals
from scorer.commit.write.queue import CommitQueue
from scorer.metrics import Stage, WaitReason
from scorer.preemption.preemptor import Preemptor
from scorer.queue.gang_size import GangSizeResolver
from scorer.queue.pending import PendingUnits
from scorer.report.lease_annotations import read_lease
from scorer.unit_scheduler import UnitScheduler

_READ_AGAIN = 1.0
"""Delay before the Lease is read again that was not read [s]."""


class Planner:
    """The loop of one leader, for one term of the Lease."""

    def __init__(self, handle: Handle) -> None:
        """Create the components of the loop."""
        informers, faults, timings = handle.informers, handle.faults, handle.timings
        self._informers, self._faults, self._timings = informers, faults, timings
        self._status_reporter, self._clock = handle.status_reporter, handle.clock
        self._kube = handle.kube
        self._pending = PendingUnits(
            informers.state, informers.owners, faults, informers.workloads.regroup
        )
        self._sizes = GangSizeResolver(
            handle.kube,
            informers,
            faults,
            retry=timings.owner_retry,
            lacks_members=self._pending.incomplete.__contains__,
        )
        self._removals = Removals(handle)
        self._vain = vain = VainPreemptions(informers.state)
        self._binding_tracker = BindingTracker(handle, self._removals, vain)
        self._commit_queue = CommitQueue(handle, self._binding_tracker)
        self._healer = Healer(handle, self._binding_tracker, self._removals)
        is_moving = self._healer.is_moving
        self._preemptor = Preemptor(handle, self._sizes, self._removals, is_moving, vain)
        self._scheduler = UnitScheduler(
            handle,
            self._pending,
            self._commit_queue,
            self._binding_tracker,
            self._removals,
            self._preemptor,
        )
        self._lacking_members = Portions[Unit](self._pending.incomplete.values)
        self._lacking: dict[GangKey, Owner] = {}
        """Gangs whose owners may want another number of members by now: some are missing although
        none waits, or there are more than declared."""
        self._unreported: set[GangKey] = set()
        """Gangs whose report raised, or was due during a backoff: they are reported again."""
        self.has_synced = False
        """True after the first full round. Before it, the GPUs that interrupted plans still need
        are not assumed, so nothing may be allocated."""

    @property
    def reservation(self) -> Reservation | None:
        """The nodes that are reserved for a starving unit; None: there are none."""
        return self._scheduler.reservation

    @property
    def evicting(self) -> frozenset[GangKey]:
        """The gangs and single pods that are being evicted, or were moved off a fault."""
        return self._removals.units | self._healer.moving

    @property
    def excluded_nodes(self) -> Mapping[str, Mapping[str, float]] | None:
        """The nodes where units could not be bound, as the Lease has them; None: not read yet."""
        return self._binding_tracker.excluded.published() if self.has_synced else None

    @property
    def vain_preemptions(self) -> Mapping[str, Mapping[str, str]] | None:
        """Where evictions did not help a unit, as the Lease has it; None: not read yet."""
        return self._vain.published() if self.has_synced else None

    def preemptions(self, now: float) -> RunningUnits:
        """Return the preemptions under way, and what budgets allow; no units to evict.

        Args:
            now: [s since 1970]
        """
        return self._preemptor.under_way(now)

    def waiting(self) -> Iterator[tuple[Unit, str]]:
        """Yield all pending units, each with the reason."""
        for unit in self._pending:
            reason = self._commit_queue.backoff_reason(unit.key) or self._pending.reason(unit)
            preemption = self._preemptor.reason(unit.key)
            yield unit, f"{reason}; {preemption}" if preemption else reason

    async def wait_reasons(self) -> Counter[WaitReason] | None:
        """Return how many pending units wait for each reason; None: not known yet."""
        if not self.has_synced:
            return None
        return Counter([self._wait_reason(unit) async for unit in cooperatively(self._pending)])

    def _wait_reason(self, unit: Unit) -> WaitReason:
        backs_off = self._commit_queue.backoff_reason(unit.key) is not None
        return WaitReason.RETRY if backs_off else self._pending.wait_reason(unit)

    def scale_up_candidates(self) -> list[tuple[Unit, bool]] | None:
        """Return all pending units, and whether each needs more nodes; None: not known yet.

        A unit for which others are evicted needs none.
        """
        if not self.has_synced:
            return None
        return [(unit, self._needs_nodes(unit)) for unit in self._pending]

    def _needs_nodes(self, unit: Unit) -> bool:
        return self._pending.lacks_capacity(unit) and not self._preemptor.preempts_for(unit.key)

    @property
    def partial(self) -> int:
        """The number of gangs of which some members have their GPUs, and others wait."""
        units = self._pending.partial.values()
        return sum(len(unit.settled) < (unit.needed or 0) for unit in units)

    @property
    def faulty(self) -> int:
        """The number of running gangs with a fault under them."""
        return self._healer.faulty

    async def run(self) -> None:
        """Plan and commit until cancelled.

        Raises:
            LeadershipLost: Another process leads.
        """
        try:
            async with asyncio.TaskGroup() as group:
                group.create_task(self._commit_queue.run())
                group.create_task(self._sizes.run())
                self._binding_tracker.restore()
                await self._remember()
                while True:
                    started = loop_time()
                    self._informers.changed.clear()
                    # Here end only faults that no stage has isolated; what it did not do waits.
                    with self._faults.isolate(Stage.PLAN, "round"):
                        for call in self._round():
                            self._start(group, call)
                        self.has_synced = True
                    # Let responses and watch events be processed before the next plans: after a
                    # long round for as long as it took.
                    took = loop_time() - started
                    await asyncio.sleep(took if took > 2 * self._timings.round else 0)
                    await wait_at_most(self._time_left(), self._informers.changed)
        finally:
            self._commit_queue.close()

    async def _remember(self) -> None:
        """Take from the Lease what the last leader knew, however long that takes."""
        lease = await read_lease(self._kube, _READ_AGAIN)
        self._preemptor.load(lease)
        self._binding_tracker.excluded.restore(lease.excluded_nodes)
        self._vain.restore(lease.vain_preemptions)

    def _start(self, group: asyncio.TaskGroup, call: Coroutine[Any, Any, object]) -> None:
        task = group.create_task(self._isolated(call))
        # A task that is cancelled before it starts awaits nothing.
        task.add_done_callback(lambda _: call.close())

    async def _isolated(self, call: Coroutine[Any, Any, object]) -> None:
        """Await a call, whose fault must not end the others."""
        with self._faults.isolate(Stage.EVICT, "call"):
            await call

    def _round(self) -> Iterator[Coroutine[Any, Any, object]]:
        """Process all changes since the last round; yield calls to run concurrently.

        Each is known as under way already, so it must be started whatever fails after it.
        """
        dirty_groups = self._informers.state.groups.drain_dirty()
        self._forget(
            self._pending.assemble(dirty_groups, self._informers.workloads.drain_dirty_owners())
        )
        yield from self._binding_tracker.reconcile(dirty_groups)
        self._sizes.resolve(self._lacking_members.next(loop_time()))
        changed = self._changed_gangs(dirty_groups)
        with self._faults.isolate(Stage.PLAN, "replacements"):
            changed |= self._informers.replacements.update(self._clock(), changed)
        if not self.has_synced:
            with self._faults.isolate(Stage.PREEMPT, "restore"):
                self._preemptor.restore(list(self._pending))
        with self._faults.isolate(Stage.EVICT, "faults"):
            yield from self._healer.update(changed)
        self._report(changed)
        for key, owner in self._lacking.items():
            self._sizes.resolve_owner(owner, key.namespace)
        self._scheduler.schedule(None if self.has_synced else self._informers.gangs)
        with self._faults.isolate(Stage.PREEMPT, "preemptions"):
            yield from self._preemptor.reconcile()
        yield from self._removals.drain()

    def _forget(self, keys: Iterable[GangKey]) -> None:
        """Drop what the components know of units that have no pods left."""
        for key in keys:
            self._status_reporter.forget(key)
            self._forget_owner(key)
            self._commit_queue.forget(key)
            self._scheduler.forget(key)

    def _forget_owner(self, key: GangKey) -> None:
        """Do not read the owner of a gang any more, unless its pods wait or its Gang changes."""
        self._lacking.pop(key, None)
        self._sizes.forget(key)

    def _changed_gangs(self, dirty_groups: Iterable[Key]) -> Set[GangKey]:
        """Return the gangs of which a pod, the Gang or the owner changed."""
        gangs = self._informers.gang_objects
        for key in gangs.drain_deleted():
            self._status_reporter.forget_gang(key)
            self._forget_owner(key)
        changed = set(gangs.drain_dirty())
        for group in dirty_groups:
            changed |= gangs.named(group)
        return changed

    def _report(self, changed: Set[GangKey]) -> None:
        """Let the status of changed gangs be written."""
        self._unreported |= changed
        self._faults.work_off(Stage.REPORT, self._unreported, self._report_one)

    def _report_one(self, key: GangKey) -> None:
        was_lacking = self._lacking.pop(key, None)
        state = self._status_reporter.reconcile(key)
        gang = self._informers.gang(key)
        owner = gang.owner if gang else None
        if owner and state and state.is_size_outdated:
            self._lacking[key] = owner
            if not was_lacking:
                self._sizes.expire(owner, key.namespace)

    def _time_left(self) -> float | None:
        """Return the time until a round is due without any change [s]; None: none is."""
        times = (
            self._binding_tracker.time_left(),
            self._scheduler.time_left(),
            self._lacking_members.time_left(loop_time()),
            self._healer.time_left(),
            self._removals.time_left(),
            self._preemptor.time_left(),
            self._informers.replacements.time_left(self._clock()),
        )
        return min((left for left in times if left is not None), default=None)
