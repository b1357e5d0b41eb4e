"""Count the members that fit once some units have ended: an upper bound that needs no plan."""

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence

import numpy as np

from linkwise.cluster.gang import Link
from linkwise.planning.placement.filtering.feasibility import excluded
from linkwise.planning.placement.pods.group import Group, new_group
from linkwise.planning.placement.preemption.victim import Amounts, Victim
from linkwise.planning.placement.state.node_columns import Ints, allocatable, bounded, node_columns
from linkwise.planning.placement.state.snapshot import Snapshot


class Room:
    """The free amounts of the nodes that could hold a member."""

    def __init__(self, snapshot: Snapshot, group: Group) -> None:
        """Read the nodes of a snapshot for a group."""
        usable = np.zeros(len(snapshot.nodes), dtype=np.bool_)
        for member in group.representatives:
            usable |= ~excluded(snapshot, new_group([member], group.options))
        columns = node_columns(snapshot)
        for name, amount in _least_others(group):
            usable &= allocatable(snapshot, name) >= bounded(amount)
        rows = np.flatnonzero(usable)
        amounts = columns.free, columns.cpu, columns.memory, columns.pods
        self._free: Ints = np.stack(amounts)[:, rows]
        self.gpus: Ints = self._free[0]
        """Free GPUs, by row."""
        nodes = snapshot.nodes
        self.rows = {nodes[index].node.name: row for row, index in enumerate(rows.tolist())}
        """Of the usable nodes, by name."""
        if group.options.link is Link.ONE_NODE:
            total = group.total
            self.needed, self.each = 1, Amounts(group.gpus, total.cpu, total.memory, group.size)
        else:
            self.needed, self.each = group.size, _least(group)
        # The least that a member needs gives an upper bound of the members that fit, which rules
        # sets of units out without a plan. An amount that nobody asks for does not limit.
        limits = [
            free // bounded(each) for free, each in zip(self._free, self.each, strict=True) if each
        ]
        places = np.stack(limits).min(axis=0).clip(0, self.needed)
        self.places_now = int(places.sum())

    def free(self, node: str) -> Amounts:
        """Return the free amounts of a usable node."""
        return Amounts(*self._free[:, self.rows[node]].tolist())

    def places(self, free: Amounts) -> int:
        """Return how often `each` fits into these amounts, at most `needed` times.

        Parts of GPUs are not counted.
        """
        places = self.needed
        for amount, each in zip(free, self.each, strict=True):
            if each and amount // each < places:
                places = amount // each
        return max(0, places)


def may_suffice(room: Room, units: Sequence[Victim], allowed: Mapping[str, int]) -> bool:
    """Return whether all members may fit once those of some units have ended that budgets allow.

    False is certain: of each node, as few pods under budgets as could make room for one member
    more are counted, whatever budget they are under, and no more than it allows. GPUs alone count.

    Args:
        room: The nodes.
        units: All units that may be evicted.
        allowed: The pods that may be evicted, by budget; of a missing one none.

    Cost: linear in the pods.
    """
    gpus, each = room.gpus.copy(), room.each.gpus
    if not each or not any(unit.budgets for unit in units):
        return True
    limited: dict[int, dict[str, list[int]]] = {}
    for pod in (pod for unit in units for pod in unit.pods if pod.node in room.rows):
        row, held = room.rows[pod.node], len(pod.holding.gpus)
        if pod.budgets:
            limited.setdefault(row, defaultdict(list))[min(pod.budgets)].append(held)
        else:
            gpus[row] += held
    prices: list[int] = []
    for row, of_budgets in limited.items():
        pods = [
            held
            for name, some in of_budgets.items()
            for held in sorted(some, reverse=True)[: allowed.get(name, 0)]
        ]
        prices += _prices(int(gpus[row]), each, sorted(pods, reverse=True))
    missing = room.needed - int((gpus // each).clip(0, room.needed).sum())
    names = {name for of_budgets in limited.values() for name in of_budgets}
    total = sum(allowed.get(name, 0) for name in names)
    return missing <= len(prices) and sum(sorted(prices)[: max(0, missing)]) <= total


def _prices(free: int, each: int, pods: Iterable[int]) -> Iterator[int]:
    """Yield how many pods must end for each member more, by the GPUs of the pods."""
    places, price = max(0, free // each), 0
    for gpus in pods:
        free, price = free + gpus, price + 1
        for _ in range(places, free // each):
            yield price
            price = 0
        places = max(places, free // each)


def _least(group: Group) -> Amounts:
    """Return the least that a member needs."""
    members = group.representatives
    return Amounts(
        min(member.gpus for member in members),
        min(member.demand.cpu for member in members),
        min(member.demand.memory for member in members),
        1,
    )


def _least_others(group: Group) -> Iterator[tuple[str, int]]:
    """Yield the least of each other resource that a member needs on its node."""
    for name, total in group.total.others:
        is_together = group.options.link is Link.ONE_NODE
        each = (member.demand.amount(name) for member in group.representatives)
        yield name, total if is_together else min(each)


class Ended:
    """Units that count as ended, and the room that they leave."""

    def __init__(self, room: Room, units: Iterable[Victim] = ()) -> None:
        """Count these units as ended."""
        self._room = room
        self._free: dict[str, Amounts] = {}
        self._places = room.places_now
        for unit in units:
            self.add(unit)

    @property
    def suffices(self) -> bool:
        """All members may fit.

        False is certain. True is not: unhealthy GPUs of ended pods are counted, and links are not.
        """
        return self._places >= self._room.needed

    def free(self, node: str) -> Amounts:
        """Return the free amounts of a usable node."""
        return self._free.get(node) or self._room.free(node)

    def add(self, unit: Victim) -> None:
        """Count one more unit as ended."""
        for node, amounts in unit.amounts.items():
            if node in self._room.rows:
                self._change(node, self.free(node).plus(amounts))

    def remove(self, unit: Victim) -> None:
        """Count a unit as running again."""
        for node, amounts in unit.amounts.items():
            if node in self._room.rows:
                self._change(node, self.free(node).minus(amounts))

    def _change(self, node: str, free: Amounts) -> None:
        self._places += self._room.places(free) - self._room.places(self.free(node))
        self._free[node] = free
