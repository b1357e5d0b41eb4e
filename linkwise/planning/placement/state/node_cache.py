"""Cache of computed values of nodes: a plan costs only the nodes that changed since the last one.

A node's ledger is immutable, so a value that was computed from it holds for the same object for
ever. Successive snapshots share one cache.
"""

from collections.abc import Callable, Hashable, Iterator, Mapping
from contextlib import contextmanager
from copy import copy
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, NamedTuple, TypeAlias, TypeVar

import numpy as np
from numpy.typing import NDArray

from linkwise.cluster.account.ledger import Ledger
from linkwise.cluster.account.node_ledger import NodeLedger
from linkwise.cluster.requests.user_claims.pod_claims import DeviceNeeds
from linkwise.planning.placement.state.generations import Generations, Nodes
from linkwise.topology.table import Table

MAX_COLUMNS = 256
"""Columns that are kept; one of 5,000 nodes takes 40 KB for each number of a value."""

MAX_NUMBERS = 1 << 17
"""Numbers of things, such as values of labels, before a cache is replaced: about 40 MB."""

_SELECTIONS_MAX = 8
"""Needs for which nodes are kept."""


Value: TypeAlias = tuple[float, ...]
"""The numbers that are computed of one node."""
Number = TypeVar("Number", np.int64, np.float64)
Derived = TypeVar("Derived")


_NO_GENERATION = -1
"""The generation of a column whose nodes were not the latest ones of any."""


class _Column(NamedTuple):
    """Values of nodes."""

    nodes: Nodes
    generation: int
    """The change of nodes after which they were computed."""
    values: NDArray[Any]


class DeadlineExceeded(Exception):  # noqa: N818 - the name of Go's context package.
    """The time for planning is over."""


class _Deadline:
    """The deadline that all caches of one cluster share, also that without pods."""

    def __init__(self, is_over: Callable[[], bool] | None) -> None:
        self.is_over = is_over or _never


@dataclass(frozen=True, slots=True)
class NodesWithoutPods:
    """Nodes with nothing running on them."""

    before: Nodes
    """The nodes with their pods."""
    ledger: Ledger
    """The same nodes without them."""
    cache: "NodeCache"
    """The values of these."""


@dataclass(frozen=True, slots=True)
class SelectedNodes:
    """Nodes as some needs of GPUs see them."""

    before: Nodes
    """The nodes without regard to needs."""
    after: Nodes
    """The same nodes with the GPUs closed that the selectors exclude."""
    tables: Mapping[str, Table]
    """By node name: its tables with the sets that the constraints allow; none for nodes without
    constraints."""
    cache: "NodeCache"
    """The values of `after`."""


class NodeCache:
    """Values of nodes, in columns; the key of a column is what is computed."""

    def __init__(self, is_over: Callable[[], bool] | None = None) -> None:
        """Start empty.

        Args:
            is_over: Whether the time for planning is over; None: it has no end.
        """
        self._deadline = _Deadline(is_over)
        self._generations = Generations()
        self._columns: dict[Hashable, _Column] = {}
        """The least recently used first."""
        self._numbers: dict[Hashable, int] = {}
        self._state_numbers: dict[tuple[Table, int], int] = {}
        self.states: list[tuple[Table, int]] = []
        """By number: a machine's tables, and the mask of its free GPUs."""
        self._derived: dict[Hashable, tuple[NDArray[Any], Any]] = {}
        """By key: a column, and what was made of it."""
        self.kept: dict[int, Any] = {}
        """By value of a column: what it stands for. Who reads the column drops what no node has."""
        self.nodes_without_pods: NodesWithoutPods | None = None
        """The nodes of the last `Snapshot.without_pods`."""
        self._selected: dict[DeviceNeeds, SelectedNodes] = {}
        """The least recently used first."""

    @property
    def is_full(self) -> bool:
        """It has so many numbers that a new cache must replace it."""
        own = len(self._numbers) + len(self.states)
        others = [selected.cache for selected in self._selected.values()]
        others += [self.nodes_without_pods.cache] if self.nodes_without_pods else []
        return own > MAX_NUMBERS or any(cache.is_full for cache in others)

    def fresh(self) -> "NodeCache":
        """Return an empty cache with the same deadline."""
        cache = NodeCache()
        cache._deadline = self._deadline
        return cache

    def selected_nodes(self, needs: DeviceNeeds) -> SelectedNodes:
        """Return the nodes that were kept for some needs; without any, an empty cache."""
        return self._selected.get(needs) or SelectedNodes((), (), {}, self.fresh())

    def keep_selected(self, needs: DeviceNeeds, nodes: SelectedNodes) -> None:
        """Keep the nodes for some needs, and those that were kept last for others."""
        self._selected.pop(needs, None)
        self._selected[needs] = nodes
        if len(self._selected) > _SELECTIONS_MAX:
            del self._selected[next(iter(self._selected))]

    @cached_property
    def without_gpu_pods(self) -> "NodeCache":
        """The cache of the same cluster without the pods with GPUs that can end."""
        return self.fresh()

    @contextmanager
    def deadline(self, is_over: Callable[[], bool]) -> Iterator[None]:
        """Stop computing within the block as soon as `is_over` returns True."""
        before, self._deadline.is_over = self._deadline.is_over, is_over
        try:
            yield
        finally:
            self._deadline.is_over = before

    def fork(self, is_over: Callable[[], bool] | None = None) -> "NodeCache":
        """Return a cache with the same values; later values of either are not seen by the other.

        Args:
            is_over: Of the copy, whether the time for planning is over; None: it has no end.
        """
        cache = NodeCache(is_over)
        cache._columns, cache._numbers = dict(self._columns), dict(self._numbers)
        cache._generations, cache.kept = copy(self._generations), dict(self.kept)
        cache._state_numbers, cache.states = dict(self._state_numbers), list(self.states)
        if (empty := self.nodes_without_pods) is not None:
            cache.nodes_without_pods = replace(empty, cache=empty.cache.fork(is_over))
        return cache

    def check_deadline(self) -> None:
        """Raise `DeadlineExceeded` if the time for planning is over."""
        if self._deadline.is_over():
            raise DeadlineExceeded

    def get_or_compute(
        self,
        key: Hashable,
        nodes: Nodes,
        compute: Callable[[NodeLedger], Value],
        dtype: type[Number],
    ) -> NDArray[Number]:
        """Return the values of all nodes, shape (numbers of a value, nodes); do not change them.

        Args:
            key: Different for each `compute`.
            nodes: At least one.
            compute: Returns the value of one node; depends on the node's ledger alone.
            dtype: Of the values.

        Raises:
            DeadlineExceeded: The time is over; it is checked before each node that is computed.
                Values that were computed until then are kept.

        Cost: 0.1 ms for 5,000 nodes, and `compute` for each new one.
        """
        self.check_deadline()
        is_over = self._deadline.is_over
        column = self._columns.pop(key, None)
        if column and column.nodes is nodes:
            self._columns[key] = column
            return column.values
        generation = self._generations.generation(nodes)
        column = column or _Column((), _NO_GENERATION, np.empty((0, 0), dtype))
        differ = self._generations.since(column.generation, column.nodes)
        values, left = _updated(column, nodes, differ, compute, is_over)
        if left:
            done = np.delete(np.arange(len(nodes)), left)
            nodes, values = tuple(nodes[i] for i in done.tolist()), values[:, done]
            # Their places are not those of the rows.
            generation = _NO_GENERATION
        self._columns[key] = _Column(nodes, generation, values)
        if len(self._columns) > MAX_COLUMNS:
            del self._columns[next(iter(self._columns))]
        if left:
            raise DeadlineExceeded
        return values

    def derived(self, key: Hashable, column: NDArray[Any], make: Callable[[], Derived]) -> Derived:
        """Return what `make` makes of a column; it is called again once the column changed.

        Args:
            key: Different for each `make`.
            column: As `get_or_compute` returns it.
            make: Depends on the column alone.
        """
        known = self._derived.get(key)
        if known is None or known[0] is not column:
            known = self._derived[key] = column, make()
        derived: Derived = known[1]
        return derived

    def has(self, key: Hashable) -> bool:
        """Return whether values of a key are kept, of any nodes."""
        return key in self._columns

    def put(self, key: Hashable, nodes: Nodes, values: NDArray[Any]) -> None:
        """Keep values that were computed elsewhere, in the shape of `get_or_compute`."""
        self._columns[key] = _Column(nodes, self._generations.generation(nodes), values)

    def number(self, thing: Hashable) -> int:
        """Return a number for a thing, from 1; equal things have the same number."""
        return self._numbers.setdefault(thing, len(self._numbers) + 1)

    def state(self, table: Table, free: int) -> int:
        """Return the place in `states` of a machine with these free GPUs."""
        number = self._state_numbers.setdefault((table, free), len(self.states))
        if number == len(self.states):
            self.states.append((table, free))
        return number


def _never() -> bool:
    return False


def _updated(
    column: _Column,
    now: Nodes,
    differ: list[int],
    compute: Callable[[NodeLedger], Value],
    is_over: Callable[[], bool],
) -> tuple[NDArray[Any], list[int]]:
    """Return the values of the nodes as they are now, and the indices left at the deadline.

    Values of nodes that only have another index are not computed again.
    """
    before, _, known = column
    shorter = min(len(before), len(now))
    places = [*differ, *range(shorter, len(now))]
    if not places and len(before) == len(now):
        return known, []
    moved = {id(before[i]): i for i in (*differ, *range(shorter, len(before)))}
    values: list[Value] = []
    for i in places:
        place = moved.get(id(now[i]))
        if place is None and is_over():
            break
        values.append(compute(now[i]) if place is None else tuple(known[:, place].tolist()))
    after = np.empty((len(values[0]) if values else len(known), len(now)), dtype=known.dtype)
    if shorter:
        after[:, :shorter] = known[:, :shorter]
    if values:
        after[:, places[: len(values)]] = np.array(values, dtype=known.dtype).T
    return after, places[len(values) :]
