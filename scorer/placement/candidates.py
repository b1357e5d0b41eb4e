"""Nodes that can take workers of a gang; those that differ by name only are one kind."""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from itertools import pairwise

import numpy as np

from scorer.placement.feasibility import Ints, labels, states
from scorer.placement.node_assignment import Candidate
from scorer.placement.snapshot import Snapshot
from topology.table import Table


@dataclass(frozen=True, slots=True)
class NodeClass:
    """Nodes alike in machine, free GPUs and room."""

    table: Table
    free: int
    """Mask of each one's free GPUs."""
    room: int
    """How many workers each takes."""
    rows: list[int]
    """The nodes, as places in `snapshot.nodes`, ascending, and so by name."""


@dataclass(frozen=True, slots=True)
class CandidateNodes:
    """The nodes that can take some."""

    snapshot: Snapshot
    rows: Ints
    """Places in `snapshot.nodes`, ascending, and so by name."""
    room: Ints
    """By row: how many workers it takes, at least 1."""

    def fewest(self, workers: int) -> int | None:
        """Return how many nodes are needed at least, or None where all are too few."""
        held = np.cumsum(np.sort(self.room)[::-1])
        count = int(np.searchsorted(held, workers)) + 1
        return count if count <= len(held) else None

    def domains(
        self, label: str | None, workers: int
    ) -> Iterator[tuple[str | None, "CandidateNodes"]]:
        """Yield the nodes of each network domain that takes all workers; all nodes for no label."""
        if label is None:
            yield None, self
            return
        values = labels(self.snapshot, label)[self.rows]
        held = np.bincount(values, weights=self.room)
        # 0 stands for nodes without the label, which share no domain.
        for value in np.flatnonzero(held >= workers).tolist():
            if value:
                here = values == value
                one = replace(self, rows=self.rows[here], room=self.room[here])
                first = self.snapshot.nodes[one.rows[0]].node.labels[label]
                yield f"{label}={first}", one

    def roomy(self, workers: int) -> "CandidateNodes":
        """Return the nodes that take so many workers."""
        able = self.room >= workers
        return replace(self, rows=self.rows[able], room=self.room[able])

    def classes(self) -> list[NodeClass]:
        """Return the nodes by kind."""
        if not len(self.rows):
            return []
        key = states(self.snapshot)[self.rows] * (int(self.room.max()) + 1) + self.room
        order = np.argsort(key, kind="stable")
        ends = [*(np.flatnonzero(np.diff(key[order])) + 1).tolist(), len(order)]
        rows, room = self.rows[order].tolist(), self.room[order].tolist()
        state = states(self.snapshot)[self.rows[order]].tolist()
        found: list[NodeClass] = []
        for start, end in pairwise([0, *ends]):
            table, free = self.snapshot.cache.states[state[start]]
            found.append(NodeClass(table, free, room[start], rows[start:end]))
        return found


def candidate(snapshot: Snapshot, row: int, room: int = 1) -> Candidate:
    """Return a node that can take some workers."""
    node = snapshot.nodes[row]
    return Candidate(node, snapshot.tables[node.node.name], room)
