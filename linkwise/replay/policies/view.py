"""The view that policies have of the nodes: columns in the order of `snapshot.nodes`."""

from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from linkwise.cluster.account.node_ledger import NodeLedger
from linkwise.cluster.keys import GFD_PRODUCT
from linkwise.cluster.nodes.node import Node
from linkwise.planning.placement.state.node_cache import Value
from linkwise.planning.placement.state.snapshot import Snapshot
from linkwise.replay.job import MILLI, Shape

Ints = NDArray[np.int64]
Floats = NDArray[np.float64]
Bools = NDArray[np.bool_]


@dataclass(frozen=True)
class View:
    """The free amounts of all nodes. Do not change the columns."""

    free_milli: Ints
    """Free part of each GPU [1/1000], shape (GPUs, nodes); -1 where a node has no such GPU."""
    holders: Ints
    """Pods on each GPU, in the same shape."""
    cpu: Ints
    """Free [millicores]."""
    memory: Ints
    """Free [bytes]."""
    snapshot: Snapshot
    """The same nodes, as the planner sees them."""

    @cached_property
    def total_free(self) -> Ints:
        """Free parts of all GPUs of each node [1/1000]."""
        total: Ints = np.maximum(self.free_milli, 0).sum(axis=0)
        return total

    @cached_property
    def free_gpus(self) -> Ints:
        """GPUs of each node that nothing runs on."""
        free: Ints = (self.free_milli == MILLI).sum(axis=0)
        return free

    @cached_property
    def gpus(self) -> Ints:
        """GPUs of each node."""
        gpus: Ints = (self.free_milli >= 0).sum(axis=0)
        return gpus

    @property
    def most_gpu(self) -> int:
        """Parts of all GPUs of the largest node [1/1000]."""
        return MILLI * len(self.free_milli)

    @property
    def most_cpu(self) -> int:
        """CPU of the largest node [millicores], at least 1."""

        def compute(node: NodeLedger) -> Value:
            return (node.node.cpu,)

        key, nodes = "replay cpu", self.snapshot.nodes
        return max(1, int(self.snapshot.cache.get_or_compute(key, nodes, compute, np.int64).max()))

    def node(self, row: int) -> Node:
        """Return the node of a row."""
        return self.snapshot.nodes[row].node

    def capacity(self, shape: Shape, most: int) -> Ints:
        """Return how many pods of a shape fit each node, at most so many."""
        fits = (self.free_milli // shape.milli).clip(0)
        each = fits.sum(axis=0) if shape.is_share else fits.sum(axis=0) // shape.gpus
        for free, asked in ((self.cpu, shape.cpu), (self.memory, shape.memory)):
            if asked:
                each = np.minimum(each, np.maximum(free, 0) // asked)
        if shape.models:
            each = each * self.has_model(shape.models)
        capacity: Ints = np.minimum(each, most)
        return capacity

    def has_model(self, models: frozenset[str]) -> Bools:
        """Return which nodes have one of these GPU models."""

        def compute(node: NodeLedger) -> Value:
            return (node.node.labels.get(GFD_PRODUCT) in models,)

        key = "replay model", models
        nodes = self.snapshot.nodes
        column: Bools = self.snapshot.cache.get_or_compute(key, nodes, compute, np.int64)[0] > 0
        return column

    def cards(self, row: int, milli: int) -> list[int]:
        """Return the GPUs of a node with so much free, ascending."""
        cards: list[int] = np.flatnonzero(self.free_milli[:, row] >= milli).tolist()
        return cards


def free_parts(node: NodeLedger) -> list[int]:
    """Return the free part of each GPU of a node [1/1000]."""
    shares = node.node.mode.shares_memory
    return [MILLI - t.memory if shares else MILLI * (not t.holders) for t in node.taken]


def view_of(snapshot: Snapshot) -> View:
    """Return the view of a snapshot. Cost: the nodes that changed since the last one."""
    most = _most_gpus(snapshot)

    def compute(node: NodeLedger) -> Value:
        missing = most - len(node.taken)
        free = free_parts(node) + [-1] * missing
        holders = [taken.holders for taken in node.taken] + [0] * missing
        return (*free, *holders, node.cpu_free, node.memory_free_bytes)

    columns = snapshot.cache.get_or_compute("replay view", snapshot.nodes, compute, np.int64)
    return View(
        columns[:most], columns[most : 2 * most], columns[2 * most], columns[2 * most + 1], snapshot
    )


def _most_gpus(snapshot: Snapshot) -> int:
    def compute(node: NodeLedger) -> Value:
        return (len(node.taken),)

    key, nodes = "replay cards", snapshot.nodes
    return int(snapshot.cache.get_or_compute(key, nodes, compute, np.int64).max())
