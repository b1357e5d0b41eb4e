"""Fragmentation gradient descent: the node and GPU where the least GPU is lost to fragments.

Q. Weng et al., Beware of Fragmentation: Scheduling GPU-Sharing Workloads with Fragmentation
Gradient Descent, USENIX ATC 2023, sections 4 and 5. The fragmentation of a node is what a pod that
is drawn from the trace can not use of its free GPUs, on average. The simulator of its authors
(`hkust-adsl/kubernetes-scheduler-simulator`, `pkg/utils/frag.go`) rounds scores to whole numbers;
here they are exact.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from itertools import islice

import numpy as np

from linkwise.cluster.account.node_ledger import NodeLedger
from linkwise.cluster.keys import GFD_PRODUCT
from linkwise.planning.placement.state.node_cache import Value
from linkwise.replay.job import Shape
from linkwise.replay.policies.policy import Rows, lowest_indices
from linkwise.replay.policies.view import Bools, Floats, Ints, View, free_parts

_TYPICAL = 0.95
"""The most popular shapes that are together at least this part of the jobs are typical."""
_TYPICAL_MAX = 64


@dataclass(frozen=True, slots=True)
class TypicalPods:
    """The pods that are expected next, with their probabilities."""

    probability: Floats
    gpus: Ints
    milli: Ints
    cpu: Ints
    models: tuple[frozenset[str], ...]

    def fragments(self, free: Ints, cpu: Ints, model: str) -> Floats:
        """Return the fragmentation of states of one node [1/1000 GPU].

        Args:
            free: Free part of each GPU, shape (states, GPUs).
            cpu: Free CPU of each state.
            model: The node's GPU model.
        """
        enough = free[:, None, :] >= self.milli[None, :, None]
        runs = enough.sum(axis=2) >= self.gpus
        runs &= cpu[:, None] >= self.cpu
        runs &= self._accessible(model)
        # A pod that runs cannot use GPUs with too little free; one that does not can use none.
        too_little = np.where(enough, 0, free[:, None, :]).sum(axis=2)
        lost = np.where(runs, too_little, free.sum(axis=1)[:, None])
        fragments: Floats = lost @ self.probability
        return fragments

    def _accessible(self, model: str) -> Bools:
        access = (not models or model in models for models in self.models)
        return np.fromiter(access, dtype=np.bool_)


def typical_pods(popularity: Mapping[Shape, float]) -> TypicalPods:
    """Return the most popular shapes, with their parts of the jobs among them."""
    ordered = sorted(popularity.items(), key=lambda pair: -pair[1])
    chosen: list[tuple[Shape, float]] = []
    total = 0.0
    for shape, part in islice(ordered, _TYPICAL_MAX):
        if total >= _TYPICAL:
            break
        chosen.append((shape, part))
        total += part
    return TypicalPods(
        np.array([part / total for _, part in chosen], dtype=np.float64),
        np.array([shape.gpus for shape, _ in chosen], dtype=np.int64),
        np.array([shape.milli for shape, _ in chosen], dtype=np.int64),
        np.array([shape.cpu for shape, _ in chosen], dtype=np.int64),
        tuple(shape.models for shape, _ in chosen),
    )


class FragmentationGradientDescent:
    """Chooses the node, then the GPU, whose fragmentation grows the least."""

    def __init__(self, typical: TypicalPods) -> None:
        """Choose by these pods."""
        self._typical = typical

    def node(self, view: View, shape: Shape, rows: Rows) -> int:
        """Return the row where fragmentation grows the least; of equal ones the first."""
        return int(rows[np.argmin(self._growth(view, shape)[0][rows])])

    def cards(self, view: View, shape: Shape, row: int) -> list[int]:
        """Return the GPU where it grows the least; for whole GPUs the free ones are equal."""
        if not shape.is_share:
            return lowest_indices(view, shape, row)
        return [int(self._growth(view, shape)[1][row])]

    def _growth(self, view: View, shape: Shape) -> Floats:
        """Return how much fragmentation grows on each node, and by which GPU."""

        def compute(node: NodeLedger) -> Value:
            return self._growth_on(node, shape)

        key = "replay fgd", shape.gpus, shape.milli, shape.cpu
        cache, nodes = view.snapshot.cache, view.snapshot.nodes
        return cache.get_or_compute(key, nodes, compute, np.float64)

    def _growth_on(self, node: NodeLedger, shape: Shape) -> Value:
        free = free_parts(node)
        fitting = [i for i, part in enumerate(free) if part >= shape.milli]
        if len(fitting) < shape.gpus or node.cpu_free < shape.cpu:
            return (0.0, -1)
        # GPUs with the same amount free are equal: only the first of them is tried.
        options = [fitting[: shape.gpus]]
        if shape.is_share:
            options = [[i] for i in {free[i]: i for i in reversed(fitting)}.values()]
        states = np.tile(np.array(free), (len(options) + 1, 1))
        for state, cards in enumerate(options, start=1):
            states[state, cards] -= shape.milli
        cpu = np.full(len(states), node.cpu_free - shape.cpu)
        cpu[0] = node.cpu_free
        model = node.node.labels.get(GFD_PRODUCT, "")
        before, *after = self._typical.fragments(states, cpu, model).tolist()
        growth, card = min(
            (each - before, cards[0]) for each, cards in zip(after, options, strict=True)
        )
        return (growth, card)
