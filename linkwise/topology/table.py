"""Tables of A, V, W and W* for every set of GPUs of a machine.

A is solved once per class, in the class's own numbering, and renumbered for each machine of it.
The other tables are built when first asked for: off the request path, by `Table.prepare`.
"""

from collections.abc import Iterable
from copy import copy
from dataclasses import replace
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from linkwise.topology.bandwidth import bandwidths, nvlink_connected, uplinks
from linkwise.topology.canonical import class_of
from linkwise.topology.disjoint import best_disjoint, best_partition
from linkwise.topology.machine import GPU, NIC, Level, Machine
from linkwise.topology.per_table import empty_caches
from linkwise.topology.subsets import Floats, Ints, pair_sums, popcounts, subset_sums

CACHE_MAX = 64 << 20
"""Limit of the tables that are kept for machines that are not in use [bytes]: 2 of 16 GPUs."""


class Table:
    """The tables of one machine in its own numbering. Values never change once computed.

    Memory: 0.5 MB for each of A, V_j, W and W*_k at 16 GPUs, 2 KB at 8.
    """

    def __init__(self, machine: Machine) -> None:
        self.machine = machine
        self.n = machine.n
        here = class_of(machine)
        self.key, order = here.key, here.order
        self._symmetries = here.symmetries
        class_a, self.exact = class_bandwidths(_renumber(machine, order))
        # Bit order[i] of a mask here is bit i of the same set's mask in the class.
        place = np.zeros(self.n, dtype=np.int64)
        place[list(order)] = 1 << np.arange(self.n)
        self.a: Floats = class_a[subset_sums(place)]
        self.rounded: list[float] = np.round(self.a, 6).tolist()
        self.linked = nvlink_connected(machine)
        self.allowed = np.ones(1 << self.n, dtype=np.bool_)
        """By mask: whether it may be chosen."""
        self.w: Ints = pair_sums(_pair_scores(machine))
        self.numa: Ints = _numa_counts(machine)
        self.near: Ints = subset_sums(_nic_scores(machine))
        self._uplinks = uplinks(machine)
        self._v: dict[int, Floats] = {}
        self._partition: dict[int, Ints] = {}
        self._fastest: dict[int, NDArray[np.int8]] = {}
        self._remainder: list[float] | None = None

    def bandwidth(self, mask: int) -> float:
        """Return A of a set [GB/s], rounded to 1e-6; 0 for fewer than two GPUs."""
        return self.rounded[mask]

    def speed_out(self, mask: int) -> float:
        """Return the most that a set of GPUs sends to other machines [GB/s], per direction."""
        links = sum(min(ways, (mask & gpus).bit_count()) for gpus, ways in self._uplinks)
        return links * self.machine.constants.pcie

    def v(self, j: int) -> Floats:
        """Return V_j by mask: the best sum of A over disjoint whole j-sets [GB/s], shape (2ⁿ,)."""
        if j not in self._v:
            self._v[j] = best_disjoint(self.a, self.n, j)
        return self._v[j]

    def partition(self, k: int) -> Ints:
        """Return W*_k by mask: the best sum of W over partitions into k-sets, shape (2ⁿ,)."""
        if k not in self._partition:
            self._partition[k] = best_partition(self.w, self.n, k) if k > 1 else self.w * 0
        return self._partition[k]

    def fastest(self, k: int) -> NDArray[np.int8]:
        """Return by mask the most disjoint k-sets with the best A of the machine, shape (2ⁿ,)."""
        if k not in self._fastest:
            is_best = np.array(self.rounded) >= self.best_possible(k)
            self._fastest[k] = best_disjoint(is_best.astype(float), self.n, k).astype(np.int8)
        return self._fastest[k]

    def remainder(self, mask: int) -> float:
        """Return what a set of free GPUs is still good for: 0.25·(V_2 + V_4) [GB/s]."""
        if self._remainder is None:
            self._remainder = np.round(0.25 * (self.v(2) + self.v(4)), 6).tolist()
        return self._remainder[mask]

    def restricted(self, sets: Iterable[int], k: int) -> "Table":
        """Return the same tables for workers of k GPUs each that may have only some sets.

        Several workers may have the unions of disjoint ones. These very tables, if every set of k
        GPUs may be chosen.
        """
        is_allowed, size = np.zeros(1 << self.n), popcounts(self.n)
        is_allowed[list(sets)] = 1
        if np.all(is_allowed[size == k]):
            return self
        restricted = copy(self)
        restricted.allowed = best_disjoint(is_allowed, self.n, k) * k == size
        return restricted

    def prepare(self) -> None:
        """Build every table that a first choice could need; about 2 s for 16 GPUs on PCIe."""
        self.remainder(0)
        for k in range(1, self.n + 1):
            self.v(k)
            self.partition(k)

    def best_possible(self, k: int) -> float:
        """Return the largest A of any k GPUs of the empty machine [GB/s]."""
        return round(float(self.a[popcounts(self.n) == k].max(initial=0.0)), 6)

    def images(self, mask: int) -> NDArray[np.bool_]:
        """Return for every set whether a symmetry of the machine maps the given one to it.

        Shape (2ⁿ,). Cost: milliseconds for 16 GPUs.
        """
        maps = [subset_sums(1 << np.array(s)) for s in self._symmetries]
        found = np.zeros(1 << self.n, dtype=np.bool_)
        new = np.array([mask])
        while len(new):
            found[new] = True
            reached = np.unique(np.concatenate([new, *(image[new] for image in maps)]))
            new = reached[~found[reached]]
        return found


def machine_class(machine: Machine) -> Machine:
    """Return a machine without its identity: equal for machines that share their tables."""
    nics = tuple(NIC("", nic.levels) for nic in machine.nics)
    gpus = tuple(GPU(gpu.numa) for gpu in machine.gpus)
    return replace(machine, gpus=gpus, nics=nics, model=None, warnings=())


def table_bytes(n: int) -> int:
    """Return the memory of the tables of n GPUs, once all are built [bytes]: 24 MB for 16."""
    # For each set: A twice, three sums, two truth values, two lists of floats; by size V, W* and
    # `fastest`.
    return (1 << n) * (5 * 8 + 2 + 2 * 40 + (2 * 8 + 1) * n) + (32 << 10)


def table_of(machine: Machine) -> Table:
    """Return the tables of a machine; machines that differ only in identity share them."""
    key = machine_class(machine)
    # Other threads read and write, too: each step is atomic, and a table may be built twice.
    if (known := _tables.get(key)) is not None:
        return known
    table = _tables.setdefault(key, Table(key))
    _limit_memory()
    return table


def _limit_memory() -> None:
    """Drop the oldest tables beyond `CACHE_MAX`."""
    kept = list(_tables)
    used = sum(table_bytes(machine.n) for machine in kept)
    if used <= CACHE_MAX:
        return
    for machine in kept:
        if used > CACHE_MAX:
            _tables.pop(machine, None)
            used -= table_bytes(machine.n)
    empty_caches()


_tables: dict[Machine, Table] = {}
"""The oldest first."""


@lru_cache(maxsize=16)
def class_bandwidths(machine: Machine) -> tuple[Floats, bool]:
    """Return A of a machine in canonical numbering: the same value for the whole class."""
    return bandwidths(machine)


def _renumber(machine: Machine, order: tuple[int, ...]) -> Machine:
    """Return a machine in another numbering, without what A does not depend on."""
    return Machine(
        links=tuple(tuple(machine.links[i][j] for j in order) for i in order),
        levels=tuple(tuple(machine.levels[i][j] for j in order) for i in order),
        gpus=(GPU(),) * machine.n,
        constants=machine.constants,
        switched=machine.switched,
    )


def _pair_scores(machine: Machine) -> Ints:
    """Return NVIDIA's pair scores: the PCIe level plus 100 for each NVLink, shape (n, n)."""
    return np.array(machine.levels, dtype=np.int64) + 100 * np.array(machine.links, dtype=np.int64)


def _numa_counts(machine: Machine) -> Ints:
    """Return how many NUMA nodes each set of GPUs touches, shape (2ⁿ,)."""
    masks = np.arange(1 << machine.n)
    count = np.zeros(1 << machine.n, dtype=np.int64)
    nodes = [gpu.numa for gpu in machine.gpus]
    for node in set(nodes):
        there = sum(1 << i for i, other in enumerate(nodes) if other == node)
        count += (masks & there) != 0
    return count


def _nic_scores(machine: Machine) -> Ints:
    """Return how near each GPU's nearest NIC is, as a pair score; 0 where there is none."""
    nearest = [
        max((nic.levels[i] for nic in machine.nics), default=Level.UNKNOWN)
        for i in range(machine.n)
    ]
    return np.array(nearest, dtype=np.int64)
