from collections.abc import Sequence
from dataclasses import replace
from itertools import permutations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.builders import (
    a_machine,
    a_pcie_machine,
    an_nvswitch_machine,
    dgx1_p100,
    dgx1_v100,
    numa_of,
    renumbered,
    with_gpus,
)
from support.strategies import machines

from linkwise.topology.canonical import canonical_graph, class_of
from linkwise.topology.constants import Constants
from linkwise.topology.machine import NIC, Level, Machine

NEAR, FAR = Level.PIX, Level.SYS


def nics(*near: int, n: int = 8) -> tuple[NIC, ...]:
    """Return one NIC for each GPU named, near that one and the next."""
    return tuple(
        NIC(f"mlx5_{g}", tuple(NEAR if i // 2 == g // 2 else FAR for i in range(n))) for g in near
    )


def as_seen(machine: Machine, order: tuple[int, ...]) -> object:
    """Return all that makes a class, in one numbering; NUMA nodes and NICs lose their names."""
    other = renumbered(machine, order)
    first = [numa_of(other).index(node) for node in numa_of(other)]
    return (
        other.links,
        other.levels,
        first,
        sorted(nic.levels for nic in other.nics),
        other.constants,
        other.switched,
    )


@given(machines(), st.data())
@settings(max_examples=40)
def test_a_class_key_does_not_depend_on_numbering(machine, data):
    order = data.draw(st.permutations(range(machine.n)))
    other = renumbered(machine, order)
    other = replace(
        with_gpus(other, numa=[7 - node for node in numa_of(other)]),
        nics=tuple(replace(nic, name=f"mlx5_{i}") for i, nic in enumerate(reversed(other.nics))),
    )

    assert class_of(other).key == class_of(machine).key


@given(machines(least=3, most=5), machines(least=3, most=5))
@settings(max_examples=40)
def test_equal_class_keys_mean_equal_machines_under_some_numbering(one, other):
    same = one.n == other.n and as_seen(one, tuple(range(one.n))) in [
        as_seen(other, order) for order in permutations(range(other.n))
    ]

    assert (class_of(one).key == class_of(other).key) == same


@given(machines(), st.data())
@settings(max_examples=30)
def test_the_canonical_numbering_gives_the_same_machine_for_every_numbering(machine, data):
    order = tuple(data.draw(st.permutations(range(machine.n))))
    other = renumbered(machine, order)

    assert as_seen(machine, class_of(machine).order) == as_seen(other, class_of(other).order)


def test_class_does_not_depend_on_names():
    named = replace(
        with_gpus(
            dgx1_v100(),
            uuid=tuple(f"GPU-{i}" for i in range(8)),
            bus_id=tuple(f"0000:{i:02x}:00.0" for i in range(8)),
            memory=(32,) * 8,
        ),
        model="Tesla V100-SXM2-32GB",
        warnings=("no legend",),
    )

    assert class_of(named).key == class_of(dgx1_v100()).key


def one_link_more(machine: Machine) -> Machine:
    links = [list(row) for row in machine.links]
    links[0][1] = links[1][0] = links[0][1] + 1
    return replace(machine, links=tuple(map(tuple, links)))


def one_level_less(machine: Machine) -> Machine:
    levels = [list(row) for row in machine.levels]
    levels[0][1] = levels[1][0] = Level.PXB
    return replace(machine, levels=tuple(map(tuple, levels)))


@pytest.mark.parametrize(
    "other",
    [
        one_link_more(dgx1_v100()),
        one_level_less(dgx1_v100()),
        with_gpus(dgx1_v100(), numa=(0,) * 8),
        with_gpus(dgx1_v100(), numa=(0, 1) * 4),
        replace(dgx1_v100(), nics=nics(0)),
        replace(dgx1_v100(), nics=nics(0, 2)),
        replace(dgx1_v100(), nics=nics(0, 0)),
        replace(dgx1_v100(), constants=Constants(nvlink=21.0)),
        replace(dgx1_v100(), constants=Constants(pcie=24.0)),
        replace(dgx1_v100(), constants=Constants(bridge=9.0)),
        replace(dgx1_v100(), constants=Constants(socket=10.0)),
        replace(dgx1_v100(), switched=True),
        dgx1_p100(),
        a_pcie_machine(8, socket=4),
        a_machine(7),
    ],
    ids=[
        "links",
        "levels",
        "one numa node",
        "numa across sockets",
        "a nic",
        "two nics",
        "a nic twice",
        "nvlink",
        "pcie",
        "bridge",
        "socket",
        "switched",
        "p100",
        "no links",
        "seven gpus",
    ],
)
def test_whatever_bandwidth_or_choice_depends_on_is_in_the_class(other):
    changed = [
        class_of(other).key,
        class_of(renumbered(other, tuple(reversed(range(other.n))))).key,
    ]

    assert changed[0] == changed[1] != class_of(dgx1_v100()).key


@pytest.mark.parametrize(
    ("one", "other", "same"),
    [
        ((0, 2), (4, 6), True),
        ((0, 2), (0, 4), False),
        ((0,), (4,), True),
        ((0,), (0, 0), False),
        ((0,), (2,), False),
        ((0, 1), (0, 2), False),
    ],
)
def test_nics_near_other_gpus_are_the_same_class_only_by_symmetry(one, other, same):
    with_nics = [replace(dgx1_v100(), nics=nics(*near)) for near in (one, other)]

    assert (class_of(with_nics[0]).key == class_of(with_nics[1]).key) == same


@given(machines())
@settings(max_examples=40)
def test_symmetries_generate_exactly_the_renumberings_that_change_nothing(machine):
    here = as_seen(machine, tuple(range(machine.n)))
    all_of_them = {o for o in permutations(range(machine.n)) if as_seen(machine, o) == here}

    generated, new = set(), {tuple(range(machine.n))}
    while new:
        generated |= new
        new = {
            tuple(s[i] for i in one) for s in class_of(machine).symmetries for one in new
        } - generated

    assert generated == all_of_them


@pytest.mark.parametrize(
    "machine",
    [
        a_machine(16),
        an_nvswitch_machine(16, 6),
        a_pcie_machine(16, socket=8, switch=4),
        a_machine(16, {(i, (i + 1) % 16): 1 for i in range(16)}),
    ],
    ids=["all alike", "switched", "tree", "ring"],
)
def test_sixteen_gpus_with_many_symmetries_have_one_key(machine):
    order = (3, 14, 1, 5, 9, 2, 6, 15, 8, 12, 7, 0, 10, 4, 13, 11)

    assert class_of(renumbered(machine, order)).key == class_of(machine).key


def test_a_key_says_how_many_gpus():
    assert class_of(dgx1_v100()).key.startswith("8gpu-")
    assert class_of(a_machine(1)).key.startswith("1gpu-")


def ring(*members: int) -> set[frozenset[int]]:
    return {frozenset((a, b)) for a, b in zip(members, (*members[1:], members[0]), strict=True)}


def matrix(edges: set[frozenset[int]], order: Sequence[int]) -> list[list[int]]:
    return [[int(frozenset((i, j)) in edges) for j in order] for i in order]


def torus(steps: set[tuple[int, int]]) -> set[frozenset[int]]:
    """Return the edges between the points of a 4×4 torus that are one of the steps apart."""
    return {
        frozenset((4 * x + y, 4 * ((x + dx) % 4) + (y + dy) % 4))
        for x in range(4)
        for y in range(4)
        for dx, dy in steps
    }


# Both have 16 vertices with six neighbours each, and every two vertices share two neighbours.
SHRIKHANDE = torus({(1, 0), (0, 1), (1, 1)})
ROOK = torus({(1, 0), (2, 0), (0, 1), (0, 2)})


@given(st.permutations(range(7)))
@settings(max_examples=25)
def test_vertices_that_only_look_alike_do_not_make_the_form_depend_on_numbering(order):
    edges = ring(0, 1, 2) | ring(3, 4, 5, 6)

    form = canonical_graph(matrix(edges, order), [0] * 7).form

    assert form == canonical_graph(matrix(edges, range(7)), [0] * 7).form
    assert form != canonical_graph(matrix(ring(*range(7)), order), [0] * 7).form


@pytest.mark.parametrize(
    ("edges", "count"), [(SHRIKHANDE, 192), (ROOK, 1152)], ids=["shrikhande", "rook"]
)
def test_all_symmetries_of_strongly_regular_graphs_are_found(edges, count):
    symmetries = canonical_graph(matrix(edges, range(16)), [0] * 16).symmetries

    generated, new = set(), {tuple(range(16))}
    while new:
        generated |= new
        new = {tuple(s[i] for i in one) for s in symmetries for one in new} - generated

    assert len(generated) == count


@given(st.permutations(range(16)))
@settings(max_examples=10)
def test_strongly_regular_graphs_are_distinguished_in_every_numbering(order):
    shrikhande, rook = (
        canonical_graph(matrix(edges, order), [0] * 16).form for edges in (SHRIKHANDE, ROOK)
    )

    assert shrikhande == canonical_graph(matrix(SHRIKHANDE, range(16)), [0] * 16).form
    assert rook == canonical_graph(matrix(ROOK, range(16)), [0] * 16).form
    assert shrikhande != rook
