"""The changes of nodes, so that a column of values needs no comparison of all of them."""

from itertools import compress
from operator import is_not
from typing import TypeAlias

import numpy as np

from linkwise.cluster.account.node_ledger import NodeLedger

_BLOCK = 128
"""Nodes that are compared in one step."""
Nodes: TypeAlias = tuple[NodeLedger, ...]


class Generations:
    """When each row changed, so that a column needs no comparison of all nodes."""

    def __init__(self) -> None:
        self._nodes: Nodes = ()
        """The latest ones."""
        self._changed = np.zeros(0, dtype=np.int64)
        """By row: the number of its last change."""
        self._generation = 0

    def generation(self, nodes: Nodes) -> int:
        """Return the number of the latest change; these nodes are the latest ones."""
        if nodes is not self._nodes:
            self._generation += 1
            places, shorter = changed_nodes(self._nodes, nodes), min(len(self._nodes), len(nodes))
            changed = np.full(len(nodes), self._generation)
            changed[:shorter] = self._changed[:shorter]
            changed[places] = self._generation
            self._nodes, self._changed = nodes, changed
        return self._generation

    def since(self, generation: int, before: Nodes) -> list[int]:
        """Return the same as `changed_nodes`, for an earlier generation and the latest one."""
        now = self._nodes
        rows = np.flatnonzero(self._changed[: len(before)] > generation).tolist()
        # Nodes change back, too: where many have changed, one comparison of all is faster.
        if len(rows) > _BLOCK:
            return changed_nodes(before, now)
        return [row for row in rows if before[row] is not now[row]]


def changed_nodes(before: Nodes, now: Nodes) -> list[int]:
    """Return the indices at which two tuples of nodes differ, up to the end of the shorter one."""
    changed: list[int] = []
    for start in range(0, min(len(before), len(now)), _BLOCK):
        old, new = before[start : start + _BLOCK], now[start : start + _BLOCK]
        # Comparing tuples of the same objects is four times as fast as comparing one by one.
        if old != new:
            changed += compress(range(start, start + len(old)), map(is_not, old, new))
    return changed
