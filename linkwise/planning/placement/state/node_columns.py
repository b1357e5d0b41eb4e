"""Columns with a value of each node, in the order of `snapshot.nodes`.

A value that depends on the node alone is computed once for each of its ledgers.
"""

from typing import NamedTuple, TypeAlias

import numpy as np
from numpy.typing import NDArray

from linkwise.cluster.account.node_ledger import NodeLedger
from linkwise.cluster.keys import NVIDIA_GPU
from linkwise.planning.placement.state.node_cache import Value
from linkwise.planning.placement.state.snapshot import Snapshot

Ints: TypeAlias = NDArray[np.int64]

_MAX_AMOUNT = 1 << 62
"""Limit of amounts: columns hold 64 bits. No machine has more."""


class NodeColumns(NamedTuple):
    """The amounts of each node that placement compares."""

    free: Ints
    """Free whole GPUs."""
    idle: Ints
    """The same, with unhealthy ones."""
    state: Ints
    """Index in `NodeCache.states`; -1: it has no machine."""
    pods: Ints
    """Pods that it can have besides."""
    cpu: Ints
    """Free [millicores]."""
    memory: Ints
    """Free [bytes]."""
    counted: Ints
    """1: NVIDIA's plugin chooses its GPUs; else 0."""
    cards: Ints
    """GPUs, free or not."""
    speed: Ints
    """A of all GPUs of its machine [bytes/s]; 0 where its links are unknown."""

    @property
    def is_counted(self) -> NDArray[np.bool_]:
        """Whether NVIDIA's plugin chooses its GPUs."""
        return self.counted > 0


def node_columns(snapshot: Snapshot) -> NodeColumns:
    """Return the columns of all nodes."""
    if not snapshot.nodes:
        return NodeColumns(*np.zeros((len(NodeColumns._fields), 0), dtype=np.int64))
    tables, state = snapshot.tables, snapshot.cache.state

    def compute(node: NodeLedger) -> Value:
        free, table = node.free_mask, tables.get(node.node.name)
        is_known = table is not None and node.node.machine_known
        counted = bounded(node.counted_free(NVIDIA_GPU)) if node.is_counted else None
        return (
            free.bit_count() if counted is None else counted,
            node.ignoring_unhealthy.free_mask.bit_count() if counted is None else counted,
            -1 if table is None else state(table, free),
            node.pods_free,
            bounded(node.cpu_free),
            bounded(node.memory_free_bytes),
            node.is_counted,
            len(node.node.cards),
            int(table.bandwidth((1 << table.n) - 1) * 1e9) if table and is_known else 0,
        )

    columns = snapshot.cache.get_or_compute("columns", snapshot.nodes, compute, np.int64)
    return NodeColumns(*columns)


def labels(snapshot: Snapshot, label: str) -> Ints:
    """Return a number for each node's value of a label; 0 where it has none."""
    number = snapshot.cache.number

    def compute(node: NodeLedger) -> Value:
        value = node.node.labels.get(label)
        return (number(("label", value)) if value is not None else 0,)

    key, nodes = ("label", label), snapshot.nodes
    if nodes and not snapshot.cache.has(key):
        # Each pod may name another label, so the first computation must be fast.
        values = (node.node.labels.get(label) for node in nodes)
        numbers = [0 if value is None else number(("label", value)) for value in values]
        snapshot.cache.put(key, nodes, np.array([numbers], dtype=np.int64))
    column: Ints = snapshot.cache.get_or_compute(key, nodes, compute, np.int64)[0]
    return column


def amount_free(snapshot: Snapshot, resource: str) -> Ints:
    """Return how much of a resource besides CPU, memory and GPUs each node has free."""

    def compute(node: NodeLedger) -> Value:
        return (bounded(node.amount_free(resource)),)

    key, nodes = ("resource", resource), snapshot.nodes
    column: Ints = snapshot.cache.get_or_compute(key, nodes, compute, np.int64)[0]
    if resource not in snapshot.class_resources:
        return column
    return np.where(_listed(snapshot, resource) > 0, column, _MAX_AMOUNT)


def allocatable(snapshot: Snapshot, resource: str) -> Ints:
    """Return how much of such a resource the pods of each node can have together."""
    column = _listed(snapshot, resource)
    if resource not in snapshot.class_resources:
        return column
    return np.where(column > 0, column, _MAX_AMOUNT)


def _listed(snapshot: Snapshot, resource: str) -> Ints:
    def compute(node: NodeLedger) -> Value:
        return (bounded(node.node.resources.get(resource, 0)),)

    key, nodes = ("allocatable", resource), snapshot.nodes
    column: Ints = snapshot.cache.get_or_compute(key, nodes, compute, np.int64)[0]
    return column


def bounded(amount: int) -> int:
    """Return an amount within 64 bits."""
    return max(-_MAX_AMOUNT, min(amount, _MAX_AMOUNT))
