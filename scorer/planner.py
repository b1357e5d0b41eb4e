"""The leader's loop: what waits is planned on one snapshot, then committed one gang at a time.

A round decides everything that can be decided now, and counts it as held. Its commits run back to
back: no two gangs share the way to the API server, so that none is half placed for long. Whatever
changes meanwhile wakes the next round.
"""

import asyncio
from collections import deque
from collections.abc import Collection, Coroutine, Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime
from typing import TypeAlias

import structlog

from cluster.gang import GangKey
from cluster.node import Card
from cluster.pod import Owner
from runtime.clock import Clock
from runtime.kube import Kube, KubeError
from scorer.commit import Committer, Grant
from scorer.compare import best_possible, index_order
from scorer.follow import Follower, plan_id_of
from scorer.gangobject import GangPlan, Phase, name_of, placement_of, plan_of
from scorer.gangs import Unit, units_of
from scorer.measures import Measures
from scorer.outcome import Placement, Plan, Refusal
from scorer.owner import Declaration, members_of, path_of
from scorer.seen import Seen
from scorer.snapshot import Snapshot
from scorer.state import Key
from scorer.teller import Teller, Word
from scorer.turn import take_turns
from scorer.watches import Watches
from scorer.writes import allocation_of

_PAUSE = 30.0
"""Before an owner that could not be read is asked again [s]."""
_AGAIN = 1.0
"""Before what was refused is tried again [s]."""

Room: TypeAlias = tuple[int, frozenset[str] | None]
"""Equal while what did not fit does not fit still: how often something came free, and the nodes
that are avoided."""

_log = structlog.get_logger()


@dataclass(frozen=True, slots=True)
class Job:
    """A unit whose GPUs are held, on its way to the API server."""

    unit: Unit
    grants: tuple[Grant, ...]
    recorded: asyncio.Task[KubeError | None]
    """Done when its Gang has the plan, or why it could not be written."""
    complete: float
    """Since when all of it waited [s, of the loop's clock]."""


class Planner:
    """Everything that one leader does in its tenure."""

    def __init__(
        self,
        kube: Kube,
        watches: Watches,
        teller: Teller,
        measures: Measures,
        *,
        term: int,
        clock: Clock,
    ) -> None:
        """Say what to read, where to write, and under which term."""
        self._kube, self._watches, self._teller, self._measures = kube, watches, teller, measures
        self._state, self._term, self._clock = watches.state, term, clock
        self._committer = Committer(kube, term, clock)
        self._units: dict[Key, list[Unit]] = {}
        self._refusals: dict[GangKey, tuple[Unit, Room, Refusal]] = {}
        self._told: dict[Key, frozenset[GangKey]] = {}
        """By group, of whom people were told while pods of it were there."""
        self._follower = Follower(kube, watches, teller, measures, clock)
        self._jobs: deque[Job] = deque()
        self._queued = asyncio.Event()
        self._asked: set[str] = set()
        self._plans = 0
        self._complete: dict[GangKey, float] = {}
        """Since when all that waits could be planned [s, of the loop's clock]."""

    def waiting(self) -> Iterator[tuple[Unit, str]]:
        """Yield everything that waits, and why."""
        for units in self._units.values():
            for unit in units:
                _, _, refusal = self._refusals.get(
                    unit.key, (unit, (0, None), Refusal("its turn comes"))
                )
                yield unit, refusal.reason

    async def run(self) -> None:
        """Plan and commit until cancelled.

        Raises:
            Deposed: Another process leads by now.
        """
        try:
            async with asyncio.TaskGroup() as group:
                group.create_task(self._commit())
                self._follower.resume()
                while True:
                    self._watches.changed.clear()
                    for call in self._round():
                        group.create_task(call)
                    with suppress(TimeoutError):
                        async with asyncio.timeout(self._follower.left()):
                            await self._watches.changed.wait()
        finally:
            # The next leader may have written another plan there by now.
            for job in self._jobs:
                job.recorded.cancel()

    def _round(self) -> list[Coroutine[None, None, None]]:
        """Decide all that can be decided now; return the calls that are to be made beside."""
        units = list(self._regroup())
        self._note_complete(units)
        calls = self._follower.follow()
        fresh = [unit for unit in units if not self._is_on_its_way(unit)]
        snapshot, began = self._state.snapshot(), _now()
        decided = take_turns(
            snapshot,
            fresh,
            aged=self._is_aged,
            standing=self._standing(fresh),
            avoided=self._follower.avoided,
        )
        for decision in decided.decisions:
            if isinstance(decision.outcome, Plan):
                self._start(decision.unit, decision.outcome, snapshot)
            else:
                self._refuse(decision.unit, decision.outcome)
        if decided.decisions:
            self._measures.planned(_now() - began)
        return calls + [self._ask(*owner) for owner in self._unsized(units)]

    def _regroup(self) -> Iterator[Unit]:
        """Yield everything that waits; only groups of which a pod changed are read again."""
        owners = self._watches.owners
        if self._watches.reowned:
            self._watches.reowned = False
            self._state.regrouped.update(self._state.groups)
        for at in self._state.regrouped:
            units = units_of(self._state.group(at), owners)
            for gone in {unit.key for unit in self._units.pop(at, [])} - {u.key for u in units}:
                self._refusals.pop(gone, None)
            if units:
                self._units[at] = units
                self._told[at] = self._told.get(at, frozenset()) | {unit.key for unit in units}
            if at not in self._state.groups:
                for gone in self._told.pop(at, ()):
                    self._teller.forget(gone)
        self._state.regrouped.clear()
        for units in self._units.values():
            yield from units

    def _standing(self, units: Iterable[Unit]) -> dict[GangKey, Refusal]:
        """Return the refusals that hold still: nothing came free, and the gang is the same."""
        found: dict[GangKey, Refusal] = {}
        for unit in units:
            before = self._refusals.get(unit.key)
            if before and before[0] is unit and before[1] == self._room(unit):
                found[unit.key] = before[2]
        return found

    def _room(self, unit: Unit) -> Room:
        return self._state.freed, self._follower.avoided.get(unit.key)

    def _is_aged(self, unit: Unit) -> bool:
        """Tell whether a unit has waited so long that no smaller one may pass it."""
        try:
            since = datetime.fromisoformat(unit.since).timestamp()
        except ValueError:
            return False
        return self._clock() - since >= self._watches.policy.policy.gangs.ageing_minutes * 60

    def _refuse(self, unit: Unit, refusal: Refusal) -> None:
        self._refusals[unit.key] = unit, self._room(unit), refusal
        phase = Phase.ASSEMBLING if unit.blocked else Phase.WAITING
        self._teller.say(Word(unit, phase, (unit.present, unit.needed), reason=refusal.reason))

    def _start(self, unit: Unit, plan: Plan, snapshot: Snapshot) -> None:
        """Hold what was planned, and queue it."""
        self._refusals.pop(unit.key, None)
        self._plans += 1
        plan_id = f"{self._term}-{self._plans}"
        order = index_order(snapshot, unit.members)
        written = plan_of(
            plan,
            plan_id,
            best_possible=best_possible(snapshot, unit.members),
            index_order=order.bandwidth if order else None,
        )
        self._queue(unit, plan.placements, written)

    def _is_on_its_way(self, unit: Unit) -> bool:
        """Tell whether a unit is not to be planned: its members are moved, or its plan goes on."""
        return self._follower.is_moving(unit.key) or self._finish(unit)

    def _finish(self, unit: Unit) -> bool:
        """Go on with a plan of which some members have their GPUs already; say whether there is.

        A leader that was interrupted leaves such a gang; the plan stands in its Gang.
        """
        gang = self._watches.gangs.get((unit.key.namespace, name_of(unit.key)))
        plan = gang.spec.plan if gang and unit.is_gang else None
        given = {plan_id_of(pod) for pod in unit.settled}
        if plan is None or plan.id not in given:
            return False
        planned = {member.uid: member for member in plan.members}
        if not all(pod.uid in planned for pod in unit.waiting):
            return False
        nodes = self._state.snapshot().ledger.nodes
        try:
            placements = tuple(
                placement_of(planned[pod.uid], member, nodes[planned[pod.uid].node].node)
                for pod, member in zip(unit.waiting, unit.members, strict=True)
            )
            self._state.snapshot().hold_all(
                (p.node, p.member.holding(p.shares)) for p in placements
            )
        except (KeyError, IndexError, ValueError):
            return False
        _log.info("Finishing gang", gang=f"{unit.key.namespace}/{unit.key.name}", plan=plan.id)
        self._queue(unit, placements, plan)
        return True

    def _queue(self, unit: Unit, placements: tuple[Placement, ...], plan: GangPlan) -> None:
        tables = self._state.snapshot().tables
        nodes = self._state.snapshot().ledger.nodes
        grants = tuple(
            Grant(
                pod,
                placement,
                allocation_of(placement, tables.get(placement.node), plan.id),
                _card_memory(placement, nodes[placement.node].node.cards),
            )
            for pod, placement in zip(unit.waiting, placements, strict=True)
        )
        for grant in grants:
            self._state.hold(grant.pod, grant.allocation)
        recorded = asyncio.create_task(self._record(unit, plan))
        complete = self._complete.get(unit.key, _now())
        self._jobs.append(Job(unit, grants, recorded, complete))
        self._queued.set()
        # What is held is read again in the next round.
        self._watches.changed.set()

    async def _record(self, unit: Unit, plan: GangPlan) -> KubeError | None:
        self._follower.begin(unit, plan)
        try:
            if unit.is_gang:
                await self._teller.record(unit, plan)
        except KubeError as error:
            return error
        return None

    async def _commit(self) -> None:
        """Carry out what is queued, one unit after the other."""
        while True:
            while not self._jobs:
                self._queued.clear()
                await self._queued.wait()
            job = self._jobs.popleft()
            error = await job.recorded
            if error is not None:
                name = f"{job.unit.key.namespace}/{job.unit.key.name}"
                _log.warning("Could not record plan", gang=name, err=str(error))
                self._follower.drop(job.unit.key)
                self._drop([grant.pod for grant in job.grants])
                continue
            began = _now()
            refused = await self._committer.commit(job.grants)
            now = _now()
            self._measures.committed(now - began, conflicts=len(refused))
            if not refused:
                self._measures.placed(now - job.complete)
            self._drop(refused)

    def _note_complete(self, units: Iterable[Unit]) -> None:
        """Note since when each unit could be planned, if something were free."""
        known, now = self._complete, _now()
        complete = (unit.key for unit in units if unit.blocked is None)
        self._complete = {key: known.get(key, now) for key in complete}

    def _drop(self, pods: Collection[Seen]) -> None:
        """Free what could not be given; the pods, as far as they are still there, wait again.

        Not at once: who is always refused would be tried without end.
        """
        if pods:
            asyncio.get_running_loop().call_later(_AGAIN, self._free, pods)

    def _free(self, pods: Iterable[Seen]) -> None:
        for pod in pods:
            self._state.let_go(pod)
        self._watches.changed.set()

    def _unsized(self, units: Iterable[Unit]) -> Iterator[tuple[Owner, str]]:
        """Yield the owners that were not asked yet how many members they declare."""
        for unit in units:
            owner = unit.owner
            if unit.is_gang and owner is not None and owner.uid not in self._asked:
                self._asked.add(owner.uid)
                yield owner, unit.key.namespace

    async def _ask(self, owner: Owner, namespace: str) -> None:
        path = path_of(owner, namespace)
        if path is None:
            return
        try:
            found = members_of(await self._kube.get(path, Declaration), owner.uid)
        except KubeError as error:
            _log.warning("Could not read owner", owner=path, err=str(error))
            # Asked again, if the gang waits still.
            await asyncio.sleep(_PAUSE)
            self._asked.discard(owner.uid)
            self._watches.changed.set()
            return
        if found:
            self._watches.declare(owner.uid, found)


def _now() -> float:
    """Return the time of a clock that goes on evenly [s]."""
    return asyncio.get_running_loop().time()


def _card_memory(placement: Placement, cards: tuple[Card, ...]) -> int | None:
    return cards[placement.shares[0].i].memory if placement.shares else None
