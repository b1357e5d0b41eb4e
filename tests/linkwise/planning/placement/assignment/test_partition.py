from collections.abc import Iterator
from itertools import combinations, permutations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.builders import (
    a_machine,
    a_pcie_machine,
    an_nvswitch_machine,
    bridged_pairs,
    dgx1_v100,
)
from support.strategies import machines

from linkwise.planning.placement.assignment.partition import choose_linked, set_capacity, split
from linkwise.topology.choice import ChoiceRequest
from linkwise.topology.machine import Machine, gpus_of, mask_of
from linkwise.topology.table import Table, table_of


def all_splits(gpus: frozenset[int], sizes: tuple[int, ...]) -> Iterator[tuple[int, ...]]:
    if not sizes:
        yield ()
        return
    for chosen in combinations(sorted(gpus), sizes[0]):
        for rest in all_splits(gpus - set(chosen), sizes[1:]):
            yield (mask_of(chosen), *rest)


def judged(table: Table, parts: tuple[int, ...]) -> tuple[float, float]:
    speeds = [table.bandwidth(part) for part in parts if part.bit_count() > 1]
    return min(speeds, default=0.0), round(sum(speeds), 6)


def worst_step(table: Table, ring: tuple[int, ...]) -> tuple[float, float]:
    steps = [
        max(table.bandwidth(1 << i | 1 << j) for i in gpus_of(one) for j in gpus_of(other))
        for one, other in zip(ring, (*ring[1:], ring[0]), strict=True)
    ]
    return min(steps), round(sum(steps), 6)


@st.composite
def splits(draw: st.DrawFn) -> tuple[Machine, int, tuple[int, ...]]:
    """Machines, some of their GPUs, and workers that share these; mostly equal workers."""
    machine = draw(machines(least=2, most=7))
    sizes = draw(
        st.sampled_from([(1, 1), (2, 2), (3, 3), (2, 2, 2), (1,) * 5, (3,), (4, 2), (1, 2, 1, 3)])
        | st.lists(st.integers(1, 3), min_size=1, max_size=4).map(tuple)
    )
    if sum(sizes) > machine.n:
        sizes = (1,) * min(2, machine.n)
    gpus = draw(st.permutations(range(machine.n)))[: sum(sizes)]
    return machine, mask_of(gpus), sizes


@settings(max_examples=100)
@given(splits(), st.booleans())
def test_the_worst_worker_set_then_the_sum_are_those_of_the_best_of_all_splits(given_split, linked):
    machine, mask, sizes = given_split
    table = table_of(machine)
    every = list(all_splits(frozenset(gpus_of(mask)), sizes))
    allowed = [s for s in every if not linked or all(table.linked[part] for part in s)]

    found = split(table, mask, sizes, linked=linked)

    if not allowed:
        assert found is None
    else:
        assert found in allowed
        assert judged(table, found) == max(judged(table, parts) for parts in allowed)


@settings(max_examples=60)
@given(st.integers(0, 255), st.sampled_from((1, 2)), st.sampled_from((dgx1_v100, bridged_pairs)))
def test_neighbours_in_rank_are_neighbours_on_the_best_ring(mask, each, machine):
    gpus = gpus_of(mask)[: mask.bit_count() // each * each]
    if len(gpus) < 2 * each or len(gpus) > 6 * each:
        return
    table = table_of(machine())

    found = split(table, mask_of(gpus), (each,) * (len(gpus) // each))

    assert found is not None
    rings = ((found[0], *rest) for rest in permutations(found[1:]))
    assert worst_step(table, found) == max(worst_step(table, ring) for ring in rings)


def test_single_gpus_of_a_dgx_1_follow_its_double_links():
    found = split(table_of(dgx1_v100()), 0b00001111, (1, 1, 1, 1))

    assert [gpus_of(part)[0] for part in found] == [0, 1, 2, 3]  # 0-1 and 1-2, 2-3, 3-0
    assert worst_step(table_of(dgx1_v100()), found) == (20.0, 140.0)


def test_many_single_gpus_are_ordered_each_next_to_its_nearest():
    machine = a_pcie_machine(12, socket=6, switch=3)

    found = split(table_of(machine), (1 << 12) - 1, (1,) * 12)

    assert [gpus_of(part)[0] // 3 for part in found] == [0, 0, 0, 1, 1, 1, 2, 2, 2, 3, 3, 3]


def test_two_workers_of_four_get_a_half_of_a_dgx_1_each():
    assert split(table_of(dgx1_v100()), 255, (4, 4)) == (0b00001111, 0b11110000)


def test_unequal_workers_are_answered_in_their_own_order():
    table = table_of(bridged_pairs())

    assert split(table, 0b00001111, (1, 2, 1)) == (0b0100, 0b0011, 0b1000)
    assert split(table, 0b00111111, (2, 4)) is not None
    assert [part.bit_count() for part in split(table, 0b00111111, (2, 4))] == [2, 4]


def test_the_largest_worker_does_not_take_the_only_link_of_another():
    # The fastest three of these would leave 1 and 6, which no link joins.
    found = split(table_of(dgx1_v100()), mask_of((0, 1, 2, 3, 6)), (2, 3), linked=True)

    assert found == (mask_of((2, 6)), mask_of((0, 1, 3)))


@pytest.mark.parametrize(
    ("mask", "each", "most"),
    [
        (0b11111111, 2, 4),
        (0b01010101, 2, 0),
        (0b00010111, 2, 1),
        (0b11111111, 4, 0),
        (0b1111, 1, 4),
    ],
)
def test_so_many_workers_find_a_linked_set_on_bridged_pairs(mask, each, most):
    assert set_capacity(table_of(bridged_pairs()), mask, each, linked=True) == most


def test_the_best_set_that_splits_into_linked_sets_is_chosen():
    table = table_of(bridged_pairs())

    assert choose_linked(table, ChoiceRequest(0b11110111, 4), (2, 2)) == 0b11110000
    assert choose_linked(table, ChoiceRequest(0b00010111, 4), (2, 2)) is None


def test_unequal_workers_that_share_many_gpus_choose_the_largest_first():
    table = table_of(a_pcie_machine(12, socket=6, switch=2))

    assert split(table, 0xFFF, (2, 6, 4)) == (0xC00, 0x03F, 0x3C0)


def test_unequal_workers_of_many_gpus_find_linked_sets_or_none():
    links = {(i, i + 1): 4 for i in range(0, 12, 2)}
    table = table_of(a_machine(12, links))

    assert split(table, 0b1111_1111_1101, (2,) * 5 + (1,), linked=True) is not None
    assert split(table, 0b0101_1111_1111, (2,) * 5, linked=True) is None
    assert split(table, 0b1111_1111_1111, (3, 2, 2, 2, 2, 1), linked=True) is None


def test_sixteen_gpus_behind_a_switch_are_split_by_index():
    table = table_of(an_nvswitch_machine(16, 6))

    assert split(table, 0xFFFF, (4,) * 4) == (0xF, 0xF0, 0xF00, 0xF000)
    assert split(table, 0xFFFF, (8, 6, 2), linked=True) == (0x00FF, 0x3F00, 0xC000)
