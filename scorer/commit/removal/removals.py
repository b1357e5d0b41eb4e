"""Take units off their GPUs, for whatever reason: each as a whole, or not at all.

The only caller of the Eviction API. First it asks by dry runs whether all pods may be evicted, then
the removal is recorded for the next leader, then the pods are evicted. What may pass is tried
again. Any other refusal in the middle ends the removal: the evicted pods go back to their own
places, which are reserved for them, and the unit is protected for a while. Where a fault is under
these places, the others are tried again for longer, since the unit would run in part. No member of
a unit is planned meanwhile.
"""

import asyncio
from collections.abc import Awaitable, Callable, Collection, Coroutine, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, TypeAlias

import structlog

from linkwise.cluster.gang import GangKey
from linkwise.planning.gang.health import faults_of
from linkwise.planning.gang.pod_info import PodInfo
from linkwise.runtime.process.clock import loop_time
from scorer.commit.handle import Handle
from scorer.commit.removal.evict import evict
from scorer.commit.removal.protected_units import ProtectedUnits
from scorer.commit.removal.removal_state import Removal, Step
from scorer.metrics import EvictionReason, Stage
from scorer.queue.fault_isolation import FAULT

Call: TypeAlias = Coroutine[Any, Any, object]

_log = structlog.get_logger()


async def _unrecorded() -> None:
    """Record nothing: the next leader finds what it needs."""


@dataclass(frozen=True, slots=True)
class Request:
    """Units that are to be taken off their GPUs, all for one reason."""

    units: Mapping[GangKey, Sequence[PodInfo]]
    """The pods that are to go; at least one of each unit."""
    reason: EvictionReason
    on_end: Callable[[Removal], None]
    """Called with each unit once it is decided what becomes of it."""
    record: Callable[[], Awaitable[str | None]] = _unrecorded
    """Write what the next leader must know; return why it may not be evicted, or None."""
    is_wanted: Callable[[], bool] = lambda: True
    """Return whether units that are not touched are still to go."""
    begun: frozenset[GangKey] = frozenset()
    """Units of which an earlier leader has evicted a part."""


class Removals:
    """The units of one term of the Lease that are being taken off their GPUs."""

    def __init__(self, handle: Handle) -> None:
        """Start without removals."""
        self._handle, self._faults = handle, handle.faults
        self._informers, self._state = handle.informers, handle.informers.state
        self._pause = handle.timings.commit_retry
        self._removals: dict[GangKey, Removal] = {}
        self._calls: list[Call] = []
        self._protected = ProtectedUnits(handle.clock)

    def __contains__(self, key: GangKey) -> bool:
        """Return whether a unit is being taken off its GPUs."""
        return key in self._removals

    @property
    def units(self) -> frozenset[GangKey]:
        """The units that are being taken off their GPUs."""
        return frozenset(self._removals)

    def is_evicting(self, key: GangKey) -> bool:
        """Return whether pods of a unit may still be evicted, so that no member may be planned."""
        removal = self._removals.get(key)
        if removal is None:
            return False
        is_gone = removal.step is Step.GONE
        return not removal.is_over or (is_gone and bool(self._staying(removal.pods)))

    def is_touched(self, key: GangKey) -> bool:
        """Return whether a part of a unit was evicted, and the rest is not decided or left."""
        removal = self._removals.get(key)
        return removal is not None and removal.is_touched and removal.step is not Step.RETURNED

    def left(self, key: GangKey) -> list[PodInfo]:
        """Return the pods of a unit that are to be evicted, and have not begun to end."""
        return self._staying(self._removals[key].pods) if self.is_evicting(key) else []

    def refusal(self, key: GangKey) -> str:
        """Return why pods of a unit are not evicted yet; empty: nothing was refused."""
        removal = self._removals.get(key)
        return removal.refusal if removal else ""

    def protection(self, key: GangKey) -> str | None:
        """Return why a unit is not to be evicted for another one now; None: it may be."""
        return self._protected.reason(key)

    def refused_lately(self, key: GangKey) -> str | None:
        """Return why a unit is not to be evicted for its own sake now; None: it may be."""
        return self._protected.refused_lately(key)

    def protect(self, key: GangKey, why: str) -> None:
        """Let a unit not be evicted for a while."""
        self._protected.protect(key, why)
        self._informers.changed.set()

    def time_left(self) -> float | None:
        """Return the time until a unit may be evicted again [s]; None: none is protected."""
        return self._protected.time_left()

    def begin(self, request: Request) -> None:
        """Begin to take units off their GPUs; one that is in a removal ends as not touched."""
        added = {key: pods for key, pods in request.units.items() if key not in self._removals}
        for key, pods in added.items():
            self._removals[key] = Removal(key, tuple(pods), is_begun=key in request.begun)
        if added:
            self._calls.append(self._carry_out(replace(request, units=added)))
        for key, pods in request.units.items():
            if key not in added:
                request.on_end(Removal(key, tuple(pods)).given_up(""))
        self._informers.changed.set()

    def drain(self) -> list[Call]:
        """Return the calls that were not returned before, to run concurrently."""
        calls, self._calls = self._calls, []
        return calls

    async def _carry_out(self, request: Request) -> None:
        with self._faults.isolate(Stage.EVICT, next(iter(request.units))):
            await self._ask(request)
            await self._record(request)
            await self._evict(request)
        for key in request.units:
            with self._faults.isolate(Stage.EVICT, key):
                if not self._removals[key].is_over:
                    self._update(request, self._removals[key].given_up(FAULT))
            del self._removals[key]
        self._informers.changed.set()

    async def _ask(self, request: Request) -> None:
        """Ask whether all pods may be evicted; where one may not, no unit is touched."""
        if request.reason is not EvictionReason.UNBOUND:
            self._observe_budgets(request)
        while asked := [each for each in self._open(request) if each.step is Step.ASKING]:
            if not self._is_going_on(request):
                break
            for removal in asked:
                pods = self._staying(removal.pods)
                answers = await evict(self._handle, pods, dry_run=True)
                self._update(request, removal.asked(answers, loop_time()))
            if any(each.refused for each in self._open(request)):
                await asyncio.sleep(self._pause)
        self._stop_untouched(request)

    def _observe_budgets(self, request: Request) -> None:
        """Refuse a unit whose budgets do not allow all evictions: a dry run uses up none.

        A pod that is not bound may be evicted in spite of them. So may one that has not started,
        of which the plan is given up; the API server says which.
        """
        for removal in self._open(request):
            bound = [pod for pod in removal.pods if pod.bound]
            if not removal.is_begun and (why := self._informers.budgets.blocker(bound)):
                self._update(request, removal.given_up(why))

    async def _record(self, request: Request) -> None:
        if self._open(request) and (why := await request.record()) is not None:
            for removal in self._open(request):
                self._update(request, removal.given_up(why), is_refused=False)
        self._stop_untouched(request)

    async def _evict(self, request: Request) -> None:
        """Evict pods until none is left of the units that are not given up."""
        while left := self._left(request):
            await asyncio.gather(*(self._evict_some(request, removal) for removal in left))
            if self._left(request):
                await asyncio.sleep(self._pause)
        for removal in self._open(request):
            self._update(request, removal.gone())

    async def _evict_some(self, request: Request, removal: Removal) -> None:
        """Evict what is due of a unit, and decide what becomes of it."""
        for wave in removal.due(self._staying(removal.pods), loop_time()):
            answers = await evict(self._handle, wave, dry_run=False)
            before = len(removal.accepted)
            removal = removal.answered(answers, loop_time(), self._may_return)
            self._handle.metrics.evicted(len(removal.accepted) - before, request.reason)
            if removal.refused:
                break
        pods = self._staying(removal.pods)
        if not removal.is_over and all(pod.uid in removal.accepted for pod in pods):
            removal = removal.gone()
        self._update(request, removal)

    def _may_return(self, evicted: Collection[PodInfo]) -> bool:
        """Return whether no fault is under the places of pods that were evicted."""
        return not faults_of(evicted, self._state.ledger)

    def _open(self, request: Request) -> list[Removal]:
        """Return the units of which it is not decided what becomes of them."""
        return [each for key in request.units if not (each := self._removals[key]).is_over]

    def _left(self, request: Request) -> list[Removal]:
        """Return the units that are not given up and of which pods stay."""
        self._stop_untouched(request)
        removals = map(self._removals.__getitem__, request.units)
        kept = (each for each in removals if not each.is_over or each.step is Step.GONE)
        return [each for each in kept if self._staying(each.pods)]

    def _is_going_on(self, request: Request) -> bool:
        """Return whether units may still be touched: none was refused, and they are to go."""
        removals = map(self._removals.__getitem__, request.units)
        kept = {Step.ASKING, Step.EVICTING, Step.GONE}
        return request.is_wanted() and all(each.step in kept for each in removals)

    def _stop_untouched(self, request: Request) -> None:
        """Give up the units that are not touched, if they need not go or another one was refused.

        A unit of which a part was evicted is evicted as a whole.
        """
        for removal in [] if self._is_going_on(request) else self._open(request):
            if not removal.is_touched:
                self._update(request, removal.given_up(""))

    def _update(self, request: Request, removal: Removal, *, is_refused: bool = True) -> None:
        """Keep the state of a unit, and say so once it is decided what becomes of it."""
        was_over = self._removals[removal.key].is_over
        self._removals[removal.key] = removal
        if was_over or not removal.is_over:
            return
        if removal.step is Step.RETURNED:
            evicted = removal.accepted.keys() | self._ending(removal.key)
            self._informers.replacements.keep_places(removal.key, evicted)
        if is_refused and removal.refusal:
            _log.warning(
                "Could not evict unit",
                unit="/".join(removal.key[:2]),
                evicted=len(removal.accepted),
                of=len(removal.pods),
                err=removal.refusal,
            )
            self.protect(removal.key, removal.refusal)
        request.on_end(removal)
        self._informers.changed.set()

    def _ending(self, key: GangKey) -> set[str]:
        """Return the uids of the members of a unit that end; the last leader evicted some."""
        key_of, pods = self._informers.owners.key, self._state.groups.of(key[:2])
        return {pod.uid for pod in pods if pod.is_ending and key_of(pod) == key}

    def _staying(self, pods: Sequence[PodInfo]) -> list[PodInfo]:
        """Return pods as they are now, without those that have ended or are being deleted."""
        return [now for pod in pods if (now := self._staying_pod(pod))]

    def _staying_pod(self, pod: PodInfo) -> PodInfo | None:
        now = self._state.pod(pod.key)
        if now is None or now.uid != pod.uid or now.usage is None:
            return None
        # A member that lost its GPUs before they were written waits.
        return now if now.settled or now.member or now.ungated else None
