import subprocess
import sys
from collections.abc import Iterator
from fractions import Fraction
from itertools import combinations, pairwise, permutations
from math import factorial

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.builders import dgx1_p100, dgx1_v100

from linkwise.topology.machine import gpus_of
from linkwise.topology.packing import pack_chains, pack_rings

Links = tuple[tuple[int, ...], ...]


def complete(k: int, count: int) -> Links:
    return tuple(tuple(0 if i == j else count for j in range(k)) for i in range(k))


def graph(k: int, edges: dict[tuple[int, int], int]) -> Links:
    return tuple(
        tuple(edges.get((min(i, j), max(i, j)), 0) if i != j else 0 for j in range(k))
        for i in range(k)
    )


@st.composite
def small_graphs(draw: st.DrawFn) -> Links:
    k = draw(st.integers(3, 5))
    pairs = list(combinations(range(k), 2))
    counts = draw(st.lists(st.integers(0, 3), min_size=len(pairs), max_size=len(pairs)))
    return graph(k, dict(zip(pairs, counts, strict=True)))


def best_packing(links: Links, walks: set[frozenset[frozenset[int]]]) -> Fraction:
    """Solve the packing exactly: the simplex method over fractions, with Bland's rule."""
    edges = [frozenset(e) for e in combinations(range(len(links)), 2)]
    columns = sorted(walks, key=lambda walk: sorted(map(sorted, walk)))
    # One row for each edge: its walks, its slack, its capacity. The last row is the objective.
    rows = [
        [
            *(Fraction(edge in walk) for walk in columns),
            *(Fraction(edge == other) for other in edges),
            Fraction(links[min(edge)][max(edge)]),
        ]
        for edge in edges
    ]
    rows.append([*(Fraction(-1) for _ in columns), *(Fraction(0) for _ in edges), Fraction(0)])
    basis = [len(columns) + i for i in range(len(edges))]
    while (enter := next((c for c, x in enumerate(rows[-1][:-1]) if x < 0), None)) is not None:
        _, _, leave = min(
            (row[-1] / row[enter], basis[i], i) for i, row in enumerate(rows[:-1]) if row[enter] > 0
        )
        pivot = rows[leave][enter]
        rows[leave] = [x / pivot for x in rows[leave]]
        for i, row in enumerate(rows):
            if i != leave and row[enter]:
                factor = row[enter]
                rows[i] = [x - factor * y for x, y in zip(row, rows[leave], strict=True)]
        basis[leave] = enter
    return rows[-1][-1]


def hamiltonian(k: int, *, closed: bool) -> set[frozenset[frozenset[int]]]:
    return {
        frozenset(map(frozenset, pairwise((*order, order[0]) if closed else order)))
        for order in permutations(range(k))
    }


def partitions(items: tuple[int, ...]) -> Iterator[list[list[int]]]:
    if not items:
        yield []
        return
    first, *rest = items
    for smaller in partitions(tuple(rest)):
        yield [[first], *smaller]
        for i, block in enumerate(smaller):
            yield [*smaller[:i], [first, *block], *smaller[i + 1 :]]


def tree_bound(links: Links, gpus: tuple[int, ...]) -> float:
    """Return the largest packing of spanning trees, by the theorem of Nash-Williams and Tutte."""
    total = sum(links[i][j] for i, j in combinations(gpus, 2))
    return min(
        (total - sum(links[i][j] for block in blocks for i, j in combinations(block, 2)))
        / (len(blocks) - 1)
        for blocks in partitions(gpus)
        if len(blocks) > 1
    )


@given(small_graphs())
@settings(max_examples=40)
def test_packings_are_the_exact_optima_of_their_linear_programs(links):
    k = len(links)

    assert pack_rings(links) == pytest.approx(
        float(best_packing(links, hamiltonian(k, closed=True)))
    )
    assert pack_chains(links) == pytest.approx(
        float(best_packing(links, hamiltonian(k, closed=False)))
    )


@pytest.mark.parametrize("count", [1, 2, 12])
@pytest.mark.parametrize("k", [3, 4, 5, 6, 7])
def test_a_complete_mesh_is_used_up_whole(k, count):
    links = complete(k, count)

    # A ring takes two of the (k−1)·count links of a GPU; a chain k−1 of all k·(k−1)·count/2.
    assert pack_rings(links) == pytest.approx(count * (k - 1) / 2)
    assert pack_chains(links) == pytest.approx(count * k / 2)


def test_the_walks_of_eight_equal_gpus_pack_as_counted():
    links = complete(8, 1)

    assert factorial(7) // 2 == len(hamiltonian(8, closed=True))
    assert pack_rings(links) == pytest.approx(3.5)


@pytest.mark.parametrize(
    ("edges", "rings", "chains"),
    [
        ({(0, 1): 1, (1, 2): 1, (2, 3): 1}, 0, 1),
        ({(0, 1): 3, (1, 2): 2, (2, 3): 5}, 0, 2),
        ({(0, 1): 1, (1, 2): 1, (2, 3): 1, (0, 3): 1}, 1, 4 / 3),
        ({(0, 1): 4, (0, 2): 4, (0, 3): 4}, 0, 0),
        ({(0, 1): 4, (2, 3): 4}, 0, 0),
        ({}, 0, 0),
    ],
    ids=["path", "uneven path", "square", "star", "two pairs", "no links"],
)
def test_packings_of_plain_shapes_are_those_of_pencil_and_paper(edges, rings, chains):
    links = graph(4, edges)

    assert pack_rings(links) == pytest.approx(rings)
    assert pack_chains(links) == pytest.approx(chains)


@pytest.mark.parametrize("machine", [dgx1_v100(), dgx1_p100()], ids=["v100", "p100"])
def test_no_packing_on_a_dgx1_beats_the_packing_of_spanning_trees(machine):
    for mask in range(1 << 8):
        gpus = gpus_of(mask)
        if len(gpus) < 3:
            continue
        links = tuple(tuple(machine.links[i][j] for j in gpus) for i in gpus)
        trees = tree_bound(machine.links, gpus)
        rings, chains = pack_rings(links), pack_chains(links)

        assert chains <= trees + 1e-6, gpus
        # A ring without each of its links in turn is as many chains, k for each k−1 rings.
        assert rings * len(gpus) / (len(gpus) - 1) <= chains + 1e-6, gpus


@given(small_graphs(), st.randoms(use_true_random=False))
@settings(max_examples=30)
def test_packings_do_not_depend_on_numbering(links, random):
    order = list(range(len(links)))
    random.shuffle(order)
    other = tuple(tuple(links[i][j] for j in order) for i in order)

    assert pack_rings(other) == pack_rings(links)
    assert pack_chains(other) == pack_chains(links)


def test_solver_prints_nothing() -> None:
    code = (
        "from linkwise.topology.packing import pack_rings; "
        "pack_rings(((0, 1, 1), (1, 0, 1), (1, 1, 0)))"
    )

    argv = (sys.executable, "-c", code)
    ran = subprocess.run(argv, capture_output=True, check=True)  # noqa: S603 - our own code

    assert (ran.stdout, ran.stderr) == (b"", b"")
