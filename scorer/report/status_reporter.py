"""Report on gangs and pods: the Gang object with its plan and status, and an Event for each change.

A plan is written before any of its pods is released. Everything else is written later, and only
the latest update: a gang that is placed within a second is never reported as waiting. The status is
computed from the pods when it is written; of earlier reports only the reason is kept.
"""

import asyncio
import math
from contextlib import suppress
from weakref import WeakValueDictionary

import structlog

from cluster.gang import GangKey
from runtime.kube.client import Kube, KubeError
from runtime.kube.event_recorder import EventRecorder
from runtime.process.clock import Clock, loop_time, rfc3339, wait_at_most
from scorer.cache.informers import Informers
from scorer.gang.crd import Gang, GangPlan, GangStatus, Phase
from scorer.gang.unit import Unit
from scorer.metrics import Stage
from scorer.queue.fault_isolation import FaultIsolation
from scorer.report.gang_state import GangState, gang_state
from scorer.report.gang_writer import GangWriter
from scorer.report.status_update import PENDING, StatusUpdate, desired_status, health_event
from scorer.timings import Timings

_CONCURRENT_WRITES = 8
_OF_NAMESPACE = 4
"""Of these, reports of gangs of one namespace, which may have any number."""

_log = structlog.get_logger()


class StatusReporter:
    """Writes Gangs and Events, for one term of the Lease."""

    def __init__(
        self,
        kube: Kube,
        informers: Informers,
        recorder: EventRecorder,
        faults: FaultIsolation,
        clock: Clock,
        *,
        timings: Timings,
    ) -> None:
        """Write nothing yet.

        Args:
            kube: The API server.
            informers: The pods, owners and Gangs.
            recorder: Creates the Events.
            faults: Isolates unforeseen exceptions.
            clock: The wall clock [s since 1970].
            timings: Of status updates.
        """
        self._timings = timings
        self._informers, self._recorder = informers, recorder
        self._faults, self._clock = faults, clock
        self._gangs = GangWriter(kube, informers)
        self._latest: dict[GangKey, StatusUpdate] = {}
        self._unwritten: dict[GangKey, StatusUpdate] = {}
        """Those of `_latest` that are not written yet."""
        self._written_at: dict[GangKey, float] = {}
        """Time of the last write about a gang [s, of the loop's clock]."""
        self._tasks: dict[GangKey, asyncio.Task[None]] = {}
        self._urgent: dict[GangKey, asyncio.Event] = {}
        """Set where an update is written without delay."""
        self._slots = asyncio.Semaphore(_CONCURRENT_WRITES)
        self._namespace_slots = WeakValueDictionary[str, asyncio.Semaphore]()
        self._plan_slots = asyncio.Semaphore(_CONCURRENT_WRITES)
        """Of plans, which must not wait for the reports of any number of other gangs."""
        self._plan_turns = WeakValueDictionary[GangKey, asyncio.Lock]()

    async def record_plan(self, unit: Unit, plan: GangPlan) -> None:
        """Write a gang's plan, before any of its pods is released.

        Raises:
            KubeError: It could not be written.
        """
        # An update that says that the gang waits is outdated.
        self._latest.pop(unit.key, None)
        self._unwritten.pop(unit.key, None)
        # Each plan has the members of those before, so it must not be replaced by one of them.
        async with self._plan_turn(unit.key), self._plan_slots:
            await self._gangs.write_plan(unit, plan)
        gang = self._gangs.find(unit.key)
        if gang and gang.status.phase in PENDING:
            bound = sum(pod.bound for pod in unit.settled)
            self.enqueue(StatusUpdate(unit, Phase.COMMITTING, (bound, unit.needed), plan))

    def enqueue(self, update: StatusUpdate) -> None:
        """Write an update soon, unless it equals the last one. A pod without a gang gets Events."""
        key = update.unit.key
        if self._latest.get(key) == update:
            return
        self._latest[key] = self._unwritten[key] = update
        self._start(key, is_urgent=update.phase not in PENDING)

    def reconcile(self, key: GangKey) -> GangState | None:
        """Return the state of a gang's pods; correct the status of its Gang soon if it differs.

        None where there is no Gang.
        """
        gang = self._gangs.find(key)
        if gang is None:
            return None
        state = self._state(gang, key)
        # A write that is pending reconciles it.
        if key not in self._tasks and not self._is_current(key):
            self._start(key, is_urgent=False)
        return state

    def forget(self, key: GangKey) -> None:
        """Drop what is kept of a gang without pods."""
        self._latest.pop(key, None)
        self._unwritten.pop(key, None)
        self._written_at.pop(key, None)
        self._gangs.forget(key)

    async def close(self) -> None:
        """Stop, without writing what is still queued."""
        for task in list(self._tasks.values()):
            task.cancel()
        await asyncio.gather(*self._tasks.values(), return_exceptions=True)

    def _start(self, key: GangKey, *, is_urgent: bool) -> None:
        if key not in self._tasks:
            self._urgent[key] = asyncio.Event()
            self._tasks[key] = asyncio.create_task(self._run(key))
        if is_urgent:
            self._urgent[key].set()

    async def _run(self, key: GangKey) -> None:
        try:
            while True:
                with self._faults.isolate(Stage.REPORT, key):
                    await self._write_all(key)
                    return
                await self._faults.wait(Stage.REPORT, key)
        finally:
            # Not in a callback of the task: an update enqueued before the callback would be lost.
            self._tasks.pop(key, None)
            self._urgent.pop(key, None)

    async def _write_all(self, key: GangKey) -> None:
        """Write until no update is left and the status of the Gang is that of its pods."""
        while key in self._unwritten or not self._is_current(key):
            await self._delay(key)
            update = self._unwritten.pop(key, None)
            if update is None and self._is_current(key):
                return
            self._written_at[key] = loop_time()
            try:
                async with self._slots_of(key.namespace), self._slots:
                    await self._write(key, update)
            except Exception as error:
                # Try again with the current Gang, unless there is a newer update.
                if update is not None and self._latest.get(key) == update:
                    self._unwritten[key] = update
                if not isinstance(error, KubeError):
                    raise
                _log.warning("Could not report gang", gang="/".join(key[:2]), err=str(error))
                await asyncio.sleep(self._timings.report_interval)
                with suppress(KubeError):
                    await self._gangs.refresh(key)

    def _slots_of(self, namespace: str) -> asyncio.Semaphore:
        return self._namespace_slots.setdefault(namespace, asyncio.Semaphore(_OF_NAMESPACE))

    async def _delay(self, key: GangKey) -> None:
        """Wait for a newer update that makes this one needless, unless one is urgent.

        A gang that goes on waiting is reported less often.
        """
        due = self._written_at.get(key, -math.inf) + self._timings.report_interval
        urgent = self._urgent[key]
        await wait_at_most(self._timings.report_delay, urgent)
        while not urgent.is_set() and loop_time() < due and self._still_waits(key):
            await wait_at_most(min(self._timings.report_delay, due - loop_time()), urgent)
        urgent.clear()

    def _still_waits(self, key: GangKey) -> bool:
        """Return whether a gang waits, as its last status says."""
        gang = self._gangs.find(key)
        if gang is None:
            return True
        written = self._gangs.last_status(gang, key).phase
        return written in PENDING and self._desired(gang, key).phase in PENDING

    async def _write(self, key: GangKey, update: StatusUpdate | None) -> None:
        """Write the status of a gang, then the Event of an update."""
        try:
            if update is None or update.unit.is_gang:
                await self._write_status(key, update)
        except KubeError:
            # Where the Gang cannot be written, the Event is the only report.
            await self._record_event(update)
            raise
        await self._record_event(update)

    async def _write_status(self, key: GangKey, update: StatusUpdate | None) -> None:
        gang = self._gangs.find(key)
        if gang is None:
            if update is None:
                return
            gang = await self._gangs.create(update.unit)
        desired = self._desired(gang, key)
        if desired.unhealthy and desired.unhealthy != self._gangs.last_status(gang, key).unhealthy:
            # First, so that it is created again if it fails.
            await self._recorder.record(health_event(gang, desired.unhealthy))
        await self._gangs.write_status(gang, key, desired)
        async with self._plan_turn(key):
            await self._shrink_plan(key)

    async def _shrink_plan(self, key: GangKey) -> None:
        """Remove members from the recorded plan that were deleted and are not made again."""
        if gang := self._gangs.find(key):
            state = self._state(gang, key)
            if state.plan is not None:
                await self._gangs.shrink_plan(gang, state.plan, state.members[1])

    def _plan_turn(self, key: GangKey) -> asyncio.Lock:
        return self._plan_turns.setdefault(key, asyncio.Lock())

    async def _record_event(self, update: StatusUpdate | None) -> None:
        event = update.event(self._gangs.find(update.unit.key)) if update else None
        if event is not None:
            await self._recorder.record(event)

    def _is_current(self, key: GangKey) -> bool:
        """Return whether a Gang has the status and the members of its pods, or there is no Gang."""
        gang = self._gangs.find(key)
        if gang is None:
            return True
        is_status = self._desired(gang, key) == self._gangs.last_status(gang, key)
        return is_status and self._state(gang, key).plan is None

    def _desired(self, gang: Gang, key: GangKey) -> GangStatus:
        return desired_status(
            self._state(gang, key),
            self._latest.get(key),
            gang,
            self._gangs.last_status(gang, key),
            rfc3339(self._clock()),
        )

    def _state(self, gang: Gang, key: GangKey) -> GangState:
        update = self._latest.get(key)
        return gang_state(gang, update.unit.needed if update else None, self._informers)
