"""The units that are to be planned: by priority, then the namespaces in turn, each by age.

Of one priority, those that replace lost members of a running gang are before all others.

A unit that was refused is parked, and costs nothing until capacity may have become free. Then all
parked units of its namespace and priority are to be planned again, once those are planned that are
left from the last time: else one that has just come would get capacity before older ones. Before
that, each other namespace with units of this priority has had a turn. Lower priorities have one
cycle after each in which units that are planned again left no time for them. So such units hold up
nobody.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from heapq import heapify, heappop, heappush
from typing import TypeAlias

from linkwise.cluster.gang import GangKey
from linkwise.planning.gang.unit import Unit

Level: TypeAlias = tuple[bool, int, bool]
"""Whether its units are planned after all others, the negative priority, and whether they repair no
running gang: the least first."""


_STALE_MAX = 64
"""Outdated entries of a heap that are kept beside as many as there are valid ones."""


@dataclass(slots=True, eq=False)
class _Lane:
    """The units of one namespace at one level."""

    level: Level
    namespace: str
    active: dict[GangKey, tuple[str, Unit]] = field(default_factory=dict)
    """Units to be planned, each with its age."""
    heap: list[tuple[str, GangKey]] = field(default_factory=list)
    """The same by age; entries of those that are not active any more are dropped later."""
    arrived: dict[GangKey, Unit] = field(default_factory=dict)
    """Units that have come since the last cycle, or wait until the parked ones are planned, too."""
    parked: dict[GangKey, tuple[int, Unit]] = field(default_factory=dict)
    """Units that were refused, each with the version of the capacity."""
    version: int = -1
    """Of the capacity when all units were to be planned last."""
    turn: int = 0
    shown: tuple[int, str, GangKey] | None = None
    """The last entry in the heap of the level."""

    @property
    def is_empty(self) -> bool:
        return not (self.active or self.arrived or self.parked)

    def activate(self, unit: Unit) -> None:
        self.active[unit.key] = unit.since, unit
        heappush(self.heap, (unit.since, unit.key))
        if len(self.heap) > 2 * len(self.active) + _STALE_MAX:
            self.heap = [(since, key) for key, (since, _) in self.active.items()]
            heapify(self.heap)

    def restart(self, version: int) -> None:
        """Let all units be planned that may fit with this version of the capacity."""
        self.version = version
        for key, (refused, unit) in list(self.parked.items()):
            if refused < version:
                del self.parked[key]
                self.activate(unit)

    def join(self) -> None:
        """Let units be planned that have come."""
        for unit in self.arrived.values():
            self.activate(unit)
        self.arrived.clear()

    def head(self) -> tuple[str, GangKey] | None:
        """Return the oldest unit that is to be planned; None: there is none."""
        while self.heap:
            since, key = self.heap[0]
            if key in self.active and self.active[key][0] == since:
                return since, key
            heappop(self.heap)
        return None


@dataclass(slots=True, eq=False)
class _Level:
    """The lanes of one level: the one with the fewest turns is next, then the oldest unit."""

    lanes: dict[str, _Lane] = field(default_factory=dict)
    heads: list[tuple[int, str, GangKey]] = field(default_factory=list)
    """The turn and the oldest unit of each lane; outdated entries are dropped later."""
    first: list[Unit] = field(default_factory=list)
    """Units that are planned before all others of the level."""
    turn: int = 0
    """Of the lane that was last. A lane that comes begins with it: it has no turns to catch up."""
    began: int | None = None
    """The turn at which the current round over all lanes began; None: not yet."""
    is_repeated: bool = False
    """Parked units were to be planned again, and nothing of a lower priority could be since."""

    @property
    def is_used(self) -> bool:
        return bool(self.lanes or self.first)

    def show(self, lane: _Lane) -> None:
        """Let a lane take part whose oldest unit or turn may have changed."""
        if head := lane.head():
            lane.turn = max(lane.turn, self.turn)
            if (entry := (lane.turn, *head)) != lane.shown:
                lane.shown = entry
                heappush(self.heads, entry)

    def next(self) -> _Lane | None:
        """Return the lane whose turn it is; None: no lane has a unit to be planned."""
        while self.heads:
            turn, since, key = self.heads[0]
            lane = self.lanes.get(key.namespace)
            if lane and lane.turn == turn and lane.head() == (since, key):
                return lane
            heappop(self.heads)
            if lane and lane.shown == (turn, since, key):
                lane.shown = None
                self.show(lane)
        return None

    def end_round(self) -> bool:
        """Return whether each lane had a turn since the last round."""
        if (lane := self.next()) and (self.began is None or lane.turn <= self.began):
            return False
        self.began = None
        return True

    def take(self, lane: _Lane) -> Unit:
        """Return the oldest unit of a lane, which then has had a turn."""
        _, key = heappop(lane.heap)
        _, unit = lane.active.pop(key)
        self.began = lane.turn if self.began is None else self.began
        self.turn = lane.turn
        lane.turn += 1
        self.show(lane)
        return unit


class SchedulingQueue:
    """The units that wait, without those that are blocked once this was reported."""

    def __init__(self, is_last: Callable[[Unit], bool]) -> None:
        """Start without units.

        Args:
            is_last: Returns whether a unit is planned after all others, whatever its priority.
        """
        self._is_last = is_last
        self._levels: dict[Level, _Level] = {}
        self._lane_of: dict[GangKey, _Lane] = {}
        self._again: dict[GangKey, tuple[Unit, bool]] = {}
        """Units that are planned again in the next cycle, and whether before the others."""

    def add(self, unit: Unit) -> None:
        """Let a unit be planned that has come or changed."""
        lane = self._move(unit)
        lane.arrived[unit.key] = unit

    def park(self, unit: Unit, version: int) -> None:
        """Keep a unit that was refused with this version of the capacity."""
        lane = self._move(unit)
        lane.parked[unit.key] = version, unit

    def activate(self, unit: Unit) -> None:
        """Let a parked unit be planned in this cycle: its refusal does not hold any more."""
        lane = self._move(unit)
        lane.activate(unit)
        self._levels[lane.level].show(lane)

    def put_back(self, unit: Unit, *, is_first: bool = False) -> None:
        """Let a unit be planned again in the next cycle, if need be before others of its level."""
        self._again[unit.key] = unit, is_first

    def remove(self, key: GangKey) -> None:
        """Forget a unit."""
        self._again.pop(key, None)
        if lane := self._lane_of.pop(key, None):
            for units in (lane.active, lane.arrived, lane.parked):
                units.pop(key, None)
            if level := self._levels.get(lane.level):
                level.first = [unit for unit in level.first if unit.key != key]

    def _move(self, unit: Unit) -> _Lane:
        """Return the lane of a unit, which is nowhere else now."""
        self.remove(unit.key)
        key, namespace = self._level(unit), unit.key.namespace
        lanes = self._levels.setdefault(key, _Level()).lanes
        lane = lanes.get(namespace)
        if lane is None:
            lane = lanes[namespace] = _Lane(key, namespace)
        self._lane_of[unit.key] = lane
        return lane

    def _level(self, unit: Unit) -> Level:
        return self._is_last(unit), -unit.priority, not unit.is_repair

    def _lanes(self) -> Iterator[_Lane]:
        for level in self._levels.values():
            yield from level.lanes.values()

    def start(self, version: int) -> None:
        """Start a cycle with this version of the capacity. Cost: linear in the namespaces."""
        # The last level of which units are to be planned, as far as these are known.
        last = max((self._level(unit) for unit, _ in self._again.values()), default=None)
        for key, level in sorted(self._levels.items(), reverse=True):
            is_over = level.end_round() and not (level.is_repeated and last and last > key)
            for lane in list(level.lanes.values()):
                if not lane.active:
                    if lane.parked and lane.version != version and not is_over:
                        continue
                    lane.restart(version)
                    level.is_repeated |= bool(lane.active)
                lane.join()
                level.show(lane)
                if lane.is_empty:
                    del level.lanes[lane.namespace]
            if level.first or level.next():
                last = last or key
        self._levels = {key: each for key, each in self._levels.items() if each.is_used}
        again, self._again = self._again, {}
        for unit, is_first in again.values():
            if is_first:
                lane = self._move(unit)
                self._levels[lane.level].first.append(unit)
            else:
                self.activate(unit)

    def pop(self) -> Unit | None:
        """Return the next unit to be planned in this cycle; None: there is none."""
        for key in sorted(self._levels):
            level = self._levels[key]
            while True:
                if level.first:
                    unit = level.first.pop(0)
                elif lane := level.next():
                    unit = level.take(lane)
                else:
                    level.is_repeated = False
                    break
                self._lane_of.pop(unit.key, None)
                if key[0] or not self._is_last(unit):
                    return unit
                self.activate(unit)
        return None

    def is_due(self, version: int) -> bool:
        """Return whether there is more to plan with this version of the capacity."""
        return any(
            lane.active or lane.arrived or (lane.parked and lane.version != version)
            for lane in self._lanes()
        )

    def parked(self) -> list[Unit]:
        """Return the units that were refused, in no order."""
        return [unit for lane in self._lanes() for _, unit in lane.parked.values()]

    def is_parked(self, unit: Unit) -> bool:
        """Return whether a unit was refused, and has not changed since."""
        return self._parked(unit) is not None

    def is_refused(self, unit: Unit, version: int) -> bool:
        """Return whether a unit is parked, and no capacity was freed before this version."""
        return self._parked(unit) == version

    def _parked(self, unit: Unit) -> int | None:
        """Return the version of the capacity with which a unit was parked; None: it is not."""
        lane = self._lane_of.get(unit.key)
        version, parked = lane.parked.get(unit.key, (0, None)) if lane else (0, None)
        return version if parked is unit else None
