"""Fractional packings of rings and chains over the NVLinks of a set.

A ring of NCCL is a Hamiltonian cycle, and a tree inside a node is a Hamiltonian path (a chain);
every channel takes one link of each pair it passes. The most channels, allowing fractions, is the
linear program max Σ xₚ subject to Σ_{p∋e} xₚ ≤ cₑ, x ≥ 0, with one column for each cycle or path p.
"""

from collections.abc import Iterator
from functools import lru_cache
from itertools import pairwise

import highspy
import numpy as np

from linkwise.topology.canonical import canonical_graph

Weights = tuple[tuple[int, ...], ...]


def pack_rings(links: Weights) -> float:
    """Return C, the largest fractional packing of undirected Hamiltonian cycles.

    Args:
        links: NVLink counts between the k ≥ 3 GPUs of a set, shape (k, k), symmetric.

    Cost: (k−1)!/2 columns on a complete graph; 2 520 for k = 8.
    """
    return largest_packing(_renumbered(links), closed=True)


def pack_chains(links: Weights) -> float:
    """Return H, the largest fractional packing of Hamiltonian paths.

    Args:
        links: NVLink counts between the k ≥ 2 GPUs of a set, shape (k, k), symmetric.

    Cost: k!/2 columns on a complete graph; 20 160 for k = 8.
    """
    return largest_packing(_renumbered(links), closed=False)


def _renumbered(links: Weights) -> Weights:
    """Return the same links in canonical numbering, so that equal sets are solved once."""
    # Most sets of a machine are equal but for their numbers, and a program has many columns.
    order = canonical_graph(links, [0] * len(links)).order
    return tuple(tuple(links[i][j] for j in order) for i in order)


@lru_cache(maxsize=4096)
def largest_packing(links: Weights, *, closed: bool) -> float:
    """Return the largest packing of cycles or paths; once for links in canonical numbering."""
    k = len(links)
    number = {(i, j): e for e, (i, j) in enumerate((i, j) for j in range(k) for i in range(j))}
    capacity = [links[i][j] for i, j in number]
    # A column is a walk, a row is a pair: a channel uses one link of each pair that it passes.
    columns = [
        [number[min(a, b), max(a, b)] for a, b in pairwise(walk)]
        for walk in _walks(links, closed=closed)
    ]
    return _maximum(columns, capacity) if columns else 0.0


def _walks(links: Weights, *, closed: bool) -> Iterator[tuple[int, ...]]:
    """Yield every Hamiltonian cycle or path once, as vertices (a cycle ends where it began)."""
    k = len(links)
    neighbours = [[j for j in range(k) if links[i][j]] for i in range(k)]

    def extend(walk: tuple[int, ...]) -> Iterator[tuple[int, ...]]:
        if len(walk) < k:
            for j in neighbours[walk[-1]]:
                if j not in walk:
                    yield from extend((*walk, j))
        # Links have no direction, and neither has a walk: of a walk and its reverse, one is enough.
        elif not closed:
            if walk[0] < walk[-1]:
                yield walk
        elif links[walk[-1]][walk[0]] and walk[1] < walk[-1]:
            yield (*walk, walk[0])

    # A cycle passes every vertex, so it may begin at any one. A path has two ends of its own.
    for start in [0] if closed else range(k):
        yield from extend((start,))


class _SilentSolver(highspy.Highs):
    """A solver that prints nothing: HiGHS 1.16 prints a banner while it enables callbacks."""

    def enableCallbacks(self) -> None:  # noqa: N802
        self.silent()
        super().enableCallbacks()  # type: ignore[no-untyped-call]


def _maximum(columns: list[list[int]], capacity: list[int]) -> float:
    """Solve max Σx, Σ over columns through a row ≤ its capacity, x ≥ 0, with HiGHS."""
    # HiGHS minimises, hence the costs of −1.
    lp = highspy.HighsLp()
    lp.num_col_, lp.num_row_ = len(columns), len(capacity)
    lp.col_cost_ = np.full(len(columns), -1.0)
    lp.col_lower_ = np.zeros(len(columns))
    lp.col_upper_ = np.full(len(columns), highspy.kHighsInf)
    lp.row_lower_ = np.full(len(capacity), -highspy.kHighsInf)
    lp.row_upper_ = np.array(capacity, dtype=float)
    lp.a_matrix_.format_ = highspy.MatrixFormat.kColwise
    lp.a_matrix_.start_ = np.cumsum([0, *map(len, columns)])
    lp.a_matrix_.index_ = np.concatenate(columns)
    lp.a_matrix_.value_ = np.ones(sum(map(len, columns)))
    solver = _SilentSolver()  # type: ignore[no-untyped-call]
    solver.passModel(lp)
    solver.run()
    return -float(solver.getInfo().objective_function_value)
