"""Nodes that fit workers of a gang, grouped into classes of nodes that differ by name only."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from linkwise.planning.placement.state.node_columns import Ints, labels, node_columns
from linkwise.planning.placement.state.snapshot import Snapshot
from linkwise.topology.table import Table


@dataclass(frozen=True, slots=True)
class NodeClass:
    """Nodes with the same machine, free GPUs and capacity."""

    table: Table
    free: int
    """Mask of each node's free GPUs."""
    capacity: int
    """Number of workers that each node fits."""
    rows: list[int]
    """The nodes, as indices in `snapshot.nodes`, ascending, and so by name."""


@dataclass(frozen=True, slots=True)
class CandidateNodes:
    """The nodes that fit at least one worker."""

    snapshot: Snapshot
    rows: Ints
    """Indices in `snapshot.nodes`, ascending, and so by name."""
    capacity: Ints
    """By row: how many workers the node fits, at least 1."""

    def min_nodes(self, workers: int) -> int | None:
        """Return the least number of nodes for so many workers; None where all are too few."""
        total = np.cumsum(np.sort(self.capacity)[::-1])
        count = int(np.searchsorted(total, workers)) + 1
        return count if count <= len(total) else None

    def same(self, wanted: Sequence[str], workers: int) -> Iterator["CandidateNodes"]:
        """Yield the nodes that have the same values of some labels, where they fit all workers."""
        values = np.stack([labels(self.snapshot, label)[self.rows] for label in wanted])
        _, place = np.unique(values, axis=1, return_inverse=True)
        total = np.bincount(place.ravel(), self.capacity * (values > 0).all(axis=0))
        for number in np.flatnonzero(total >= workers).tolist():
            yield self.where(place.ravel() == number)

    def domains(self, label: str, workers: int) -> Iterator["Domain"]:
        """Yield the nodes of each network domain that fits all workers."""
        values = labels(self.snapshot, label)[self.rows]
        total = np.bincount(values, weights=self.capacity)
        # 0 stands for nodes without the label, which share no domain.
        for value in np.flatnonzero(total >= workers).tolist():
            if value:
                domain = self.where(values == value)
                first = self.snapshot.nodes[domain.rows[0]].node.labels[label]
                yield f"{label}={first}", domain

    def nearest_domains(self, workers: int, count: int) -> list["Domain"]:
        """Return the domains of the nearest label in which so many nodes fit all workers.

        Without any, all nodes are one domain.

        Args:
            workers: How many workers.
            count: The least number of nodes for them, `min_nodes`.
        """
        for label in self.snapshot.preferences.domains:
            near = self.domains(label, workers)
            if found := [pair for pair in near if pair[1].min_nodes(workers) == count]:
                return found
        return [(None, self)]

    def where(self, chosen: NDArray[np.bool_]) -> "CandidateNodes":
        """Return the nodes that a mask over these nodes chooses."""
        return replace(self, rows=self.rows[chosen], capacity=self.capacity[chosen])

    def classes(self) -> list[NodeClass]:
        """Return the nodes by class."""
        if not len(self.rows):
            return []
        states = node_columns(self.snapshot).state
        key = states[self.rows] * (int(self.capacity.max()) + 1) + self.capacity
        order = np.argsort(key, kind="stable")
        ends = [*(np.flatnonzero(np.diff(key[order])) + 1).tolist(), len(order)]
        rows, capacity = self.rows[order].tolist(), self.capacity[order].tolist()
        state = states[self.rows[order]].tolist()
        classes: list[NodeClass] = []
        for start, end in pairwise([0, *ends]):
            table, free = self.snapshot.cache.states[state[start]]
            classes.append(NodeClass(table, free, capacity[start], rows[start:end]))
        return classes


Domain = tuple[str | None, CandidateNodes]
"""A network domain as `label=value`, or None for all nodes, and the candidates in it."""
