"""Count the members that fit once some units have ended: an upper bound that needs no plan."""

from collections.abc import Iterable

import numpy as np

from cluster.gang import Link
from scorer.placement.filtering.feasibility import excluded
from scorer.placement.pods.group import Group, new_group
from scorer.placement.preemption.victim import Amounts, Victim
from scorer.placement.state.node_columns import Ints, bounded, node_columns
from scorer.placement.state.snapshot import Snapshot


class Room:
    """The free amounts of the nodes that could hold a member."""

    def __init__(self, snapshot: Snapshot, group: Group) -> None:
        """Read the nodes of a snapshot for a group."""
        usable = np.zeros(len(snapshot.nodes), dtype=np.bool_)
        for member in group.representatives:
            usable |= ~excluded(snapshot, new_group([member], group.options))
        columns, rows = node_columns(snapshot), np.flatnonzero(usable)
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


def _least(group: Group) -> Amounts:
    """Return the least that a member needs."""
    members = group.representatives
    return Amounts(
        min(member.gpus for member in members),
        min(member.demand.cpu for member in members),
        min(member.demand.memory for member in members),
        1,
    )


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
