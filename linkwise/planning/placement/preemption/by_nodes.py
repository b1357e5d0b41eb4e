"""Take units off nodes until all members may fit, the cheapest nodes first.

A set of units need not be searched: a member needs one node, and on each node the cheapest units
that make room for one more member are found alone. A gang that is taken for one node leaves its
other nodes as well, so these are looked at again.
"""

import heapq
from collections import defaultdict
from collections.abc import Container, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import chain

import numpy as np

from linkwise.planning.placement.preemption.room import Ended, Room
from linkwise.planning.placement.preemption.victim import (
    Amounts,
    Cost,
    Disruptions,
    UnitsByCost,
    Victim,
)

SETS_MAX = 16
"""Sets that one start yields."""
UNITS_MAX = 512
"""Units of a set."""
ON_NODE_MAX = 256
"""Units of one node that are looked at, the cheapest ones."""


@dataclass(frozen=True, slots=True, order=True)
class _Option:
    """Units whose end makes room for one more member on a node."""

    excess: int
    """Pods beyond what the budgets allow. A set that needs none of them is found first, if it is
    easily found (`within_budgets` searches on)."""
    cost: Cost
    node: str
    version: int
    """How often units of the node were taken before."""
    units: tuple[Victim, ...] = field(compare=False)


class NodeSearch:
    """The cheapest units on each node that make room for one more member."""

    def __init__(
        self, room: Room, on_node: Mapping[str, Sequence[Victim]], disruptions: Disruptions
    ) -> None:
        """Look at each of some nodes once.

        Args:
            room: The nodes.
            on_node: The units on each of these nodes, the cheapest first.
            disruptions: The cost of evictions.
        """
        self._room = room
        self._disruptions = disruptions
        self._on_node = on_node
        nothing = Ended(room)
        options = (self._option(node, nothing, {}, 0) for node in on_node)
        self._first = [option for option in options if option]
        heapq.heapify(self._first)

    def sets(self, start: Sequence[Victim] = ()) -> Iterator[tuple[Victim, ...]]:
        """Yield sets of units after which all members may fit, each a part of the next one.

        Args:
            start: Units to take in any case.
        """
        heap, taken = list(self._first), _Taken(self._room)
        self._take(heap, taken, start)
        yielded = 0
        while yielded < SETS_MAX and len(taken.units) <= UNITS_MAX:
            if taken.units and taken.ended.suffices:
                yield tuple(taken.units)
                yielded += 1
            option = self._next(heap, taken)
            if option is None:
                return
            self._take(heap, taken, option.units, option.node)

    def _next(self, heap: list[_Option], taken: "_Taken") -> _Option | None:
        """Remove the cheapest option from the heap and return it."""
        while heap:
            option = heapq.heappop(heap)
            # An option whose node changed stays in the heap until it is popped: to remove it
            # there would be a pass over the heap for each unit that is taken.
            if option.version != taken.version[option.node]:
                continue
            # The units that were taken before may have used up its budgets.
            if any(unit.budgets for unit in option.units):
                excess = self._disruptions.excess
                more = excess([*taken.units, *option.units]) - excess(taken.units)
                if more.total() > option.excess:
                    heapq.heappush(heap, replace(option, excess=more.total()))
                    continue
            return option
        return None

    def _take(
        self, heap: list[_Option], taken: "_Taken", units: Iterable[Victim], node: str | None = None
    ) -> None:
        """Take units, and look again at the nodes that they leave."""
        changed = {node} if node else set[str]()
        for unit in units:
            taken.units[unit] = None
            taken.ended.add(unit)
            changed |= unit.amounts.keys() & self._on_node.keys()
        for name in sorted(changed):
            taken.version[name] += 1
            option = self._option(name, taken.ended, taken.units, taken.version[name])
            if option:
                heapq.heappush(heap, option)

    def _option(
        self, node: str, ended: Ended, taken: Container[Victim], version: int
    ) -> _Option | None:
        """Return the cheapest units that make room for one more member, or None."""
        room, free = self._room, ended.free(node)
        units = [unit for unit in self._on_node[node] if unit not in taken]
        if room.each.gpus:
            target = room.places(free) + 1
            units = _least(room, node, free, units, target) if target <= room.needed else []
        if not units:
            return None
        excess = self._disruptions.excess(units).total()
        return _Option(excess, self._disruptions.cost(units), node, version, tuple(units))


class _Taken:
    """The units that a search has taken."""

    def __init__(self, room: Room) -> None:
        self.units: dict[Victim, None] = {}
        self.ended = Ended(room)
        self.version: dict[str, int] = defaultdict(int)


def _least(
    room: Room, node: str, free: Amounts, units: Sequence[Victim], target: int
) -> list[Victim]:
    """Return the units after which a node has so many places: none that is not needed, or none.

    Args:
        room: The nodes.
        node: The node.
        free: Its free amounts.
        units: The units there, the cheapest first.
        target: How many places.
    """
    chosen: list[Victim] = []
    for unit in units:
        chosen.append(unit)
        free = free.plus(unit.amounts[node])
        if room.places(free) >= target:
            break
    else:
        return []
    # Room grows with each unit, so only the last one is surely needed: small cheap units before a
    # large one may be needless. The costliest ones are tried first.
    kept = [chosen.pop()]
    for unit in reversed(chosen):
        without = free.minus(unit.amounts[node])
        if room.places(without) >= target:
            free = without
        else:
            kept.append(unit)
    return kept


def cheapest_nodes(room: Room, ordered: UnitsByCost, count: int) -> dict[str, list[Victim]]:
    """Return the units on the nodes where one more member costs least, the cheapest unit first.

    An estimate: GPUs alone are counted, and of each node the cheapest units are taken first.

    Args:
        room: The nodes.
        ordered: All units.
        count: How many nodes.

    Cost: linear in the pairs of units and nodes; 20,000 of them take about 15 ms.
    """
    units = ordered.units
    held = [unit.amounts for unit in units]
    names, row_of = chain.from_iterable(held), room.rows
    rows = np.fromiter([row_of.get(name, -1) for name in names], np.int64)
    gpus = np.fromiter([amounts[0] for each in held for amounts in each.values()], np.int64)
    number = np.repeat(np.arange(len(units)), ordered.spans)
    # All pairs by node, and there the cheapest unit first.
    order = np.argsort(rows, kind="stable")
    order = order[rows[order] >= 0]
    rows, gpus, number = rows[order], gpus[order], number[order]
    starts = np.flatnonzero(np.diff(rows, prepend=-1))
    ends = np.append(starts[1:], len(rows))
    # The last unit of each node that the next member needs; of all where GPUs alone do not do.
    total = np.cumsum(gpus)
    before = np.repeat(total[starts] - gpus[starts], ends - starts)
    # The free GPUs of a node that no member uses count for the next one; one that is overbooked
    # has a debt to pay first.
    lacking = room.each.gpus - np.where(
        room.gpus < 0, room.gpus, room.gpus % max(room.each.gpus, 1)
    )
    is_enough = total - before >= lacking[rows]
    at = np.where(is_enough, np.arange(len(rows)), len(rows))
    last = np.minimum(np.minimum.reduceat(at, starts), ends - 1) if len(rows) else starts
    keys = number[last], last - starts, ordered.levels[number[last]]
    nodes = list(room.rows)
    return {
        nodes[rows[starts[i]]]: [units[k] for k in number[starts[i] : ends[i]][:ON_NODE_MAX]]
        for i in np.lexsort(keys)[:count].tolist()
    }
