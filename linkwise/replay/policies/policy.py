"""A policy: it places all pods of a job on a snapshot, or none."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol, TypeAlias, runtime_checkable

import numpy as np

from linkwise.cluster.allocations.gpus import Exact, GPUShare
from linkwise.planning.placement.pods.member import Member
from linkwise.planning.placement.preemption.search import Eviction
from linkwise.planning.placement.preemption.victim import Victim
from linkwise.planning.placement.result import Placement
from linkwise.planning.placement.state.snapshot import Snapshot
from linkwise.replay.job import Shape
from linkwise.replay.policies.view import Floats, Ints, View, view_of

Rows: TypeAlias = Ints
"""Nodes that fit a pod, as indices in `snapshot.nodes`, ascending."""


@dataclass(frozen=True, slots=True)
class Context:
    """What a policy may know of a run before it begins."""

    draw: np.random.Generator
    """Random numbers of the run's seed."""
    popularity: Mapping[Shape, float]
    """The part of the jobs of each shape, in the trace."""


@runtime_checkable
class Policy(Protocol):
    """Chooses the nodes and the GPUs of jobs, for one run."""

    def place(
        self, snapshot: Snapshot, shape: Shape, members: Sequence[Member]
    ) -> Sequence[Placement] | None:
        """Return the placement of each pod, or None where not all of them fit."""


@runtime_checkable
class Preempting(Protocol):
    """A policy that evicts jobs of a lower priority for one that does not fit."""

    def preempt(
        self, snapshot: Snapshot, members: Sequence[Member], units: Iterable[Victim], now: float
    ) -> Eviction | None:
        """Return the jobs to evict, and the placement that they make possible, or None.

        Args:
            snapshot: The fleet, on which the pods do not fit.
            members: The pods of the job.
            units: The jobs that run.
            now: The time [s].
        """


ChooseNode: TypeAlias = Callable[[View, Shape, Rows], int]
"""Returns one of the rows, of which there is at least one."""
ChooseCards: TypeAlias = Callable[[View, Shape, int], list[int]]
"""Returns as many GPUs of a node as a pod asks for; so many fit."""
Score: TypeAlias = Callable[[View, Shape, Rows], Floats]
"""Returns the score of each row; the highest is the best."""


@dataclass(frozen=True, slots=True)
class PodByPod:
    """Places pods one after another, each where the ones before it leave room."""

    node: ChooseNode
    cards: ChooseCards

    def place(
        self, snapshot: Snapshot, shape: Shape, members: Sequence[Member]
    ) -> Sequence[Placement] | None:
        """Return the placement of each pod, or None where not all of them fit."""
        placements: list[Placement] = []
        for member in members:
            view = view_of(snapshot)
            rows = np.flatnonzero(view.capacity(shape, 1))
            if not len(rows):
                return None
            row = self.node(view, shape, rows)
            placement = placed(view, shape, member, row, self.cards(view, shape, row))
            placements.append(placement)
            if len(members) > 1:
                snapshot = snapshot.hold_all([(placement.node, placement.holding)])
        return placements


def placed(view: View, shape: Shape, member: Member, row: int, cards: Sequence[int]) -> Placement:
    """Return the placement of a pod on these GPUs of a node."""
    node = view.node(row)
    part = shape.milli if node.mode.shares_memory else None
    gpus = Exact(tuple(GPUShare(i, mem=part) for i in sorted(cards)))
    return Placement(member, node.name, gpus)


def highest(score: Score) -> ChooseNode:
    """Return the choice of the node with the highest score; of equal ones, the first by name."""
    return lambda view, shape, rows: int(rows[np.argmax(score(view, shape, rows))])


def lowest_indices(view: View, shape: Shape, row: int) -> list[int]:
    """Choose the GPUs of the lowest indices."""
    return view.cards(row, shape.milli)[: shape.gpus]


def least_left(view: View, shape: Shape, row: int) -> list[int]:
    """Choose the GPUs with the least free, then of the lowest indices."""
    cards = view.cards(row, shape.milli)
    return sorted(cards, key=lambda i: int(view.free_milli[i, row]))[: shape.gpus]


def most_left(view: View, shape: Shape, row: int) -> list[int]:
    """Choose the GPUs with the most free, then of the lowest indices."""
    cards = view.cards(row, shape.milli)
    return sorted(cards, key=lambda i: -int(view.free_milli[i, row]))[: shape.gpus]
