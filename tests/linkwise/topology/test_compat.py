from itertools import combinations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.best_effort import best_effort, pair_scores
from support.builders import (
    a_machine,
    a_pcie_machine,
    an_nvswitch_machine,
    bridged_pairs,
    dgx1_p100,
    dgx1_v100,
)
from support.strategies import machines

from linkwise.topology.choice import ChoiceMode, ChoiceRequest, choose
from linkwise.topology.machine import Level, Machine, gpus_of, mask_of
from linkwise.topology.table import table_of


def compat(machine: Machine, free: object, k: int, *required: int) -> tuple[int, ...]:
    ask = ChoiceRequest(mask_of(set(free)), k, mask_of(required), ChoiceMode.COMPAT)
    return gpus_of(choose(table_of(machine), ask) or 0)


def rtx8000x4() -> Machine:
    def level(i: int, j: int) -> Level:
        return Level.NODE if (i, j) in {(0, 1), (2, 3)} else Level.SYS

    return a_machine(4, {(0, 3): 2, (1, 2): 2}, level=level)


def best_sum(machine: Machine, free: tuple[int, ...], k: int, required: set[int]) -> int:
    """Return the best sum over partitions with a whole set that holds what is required."""
    weight = pair_scores(machine)

    def sums(left: tuple[int, ...], must: frozenset[int]) -> int:
        if not left:
            return 0 if not must else -(10**9)
        best = -(10**9)
        for size in {k, len(left) % k} - {0}:
            for others in combinations(left[1:], size - 1):
                group = (left[0], *others)
                if must & set(group) and (not must <= set(group) or size < k):
                    continue
                rest = tuple(g for g in left if g not in group)
                own = sum(weight[i][j] for i, j in combinations(group, 2))
                best = max(best, own + sums(rest, must - set(group)))
        return best

    return sums(free, frozenset(required))


@pytest.mark.parametrize(
    ("free", "k", "required", "expected"),
    [
        ((0, 2, 4, 5), 2, (), (4, 5)),
        ((0, 4, 5, 6), 2, (), (5, 6)),
        ((0, 3, 1), 2, (), (0, 3)),
        ((0, 1, 4), 2, (), (0, 4)),
        (range(8), 1, (4,), (4,)),
        (range(8), 2, (4,), (4, 7)),
        (range(8), 4, (4,), (4, 5, 6, 7)),
        (range(8), 4, (0, 2, 4, 6), (0, 2, 4, 6)),
        (range(1, 8), 4, (0, 1, 2, 3), ()),
        (range(8), 4, (1, 2, 3, 4, 5, 6), ()),
        ((1, 2, 3, 4, 5), 1, (1, 2, 3, 4, 5, 6), ()),
        (range(8), 8, (), tuple(range(8))),
        ((2, 5), 1, (), (2,)),
    ],
    ids=str,
)
def test_upstreams_own_expectations_on_a_dgx1_v100(free, k, required, expected):
    assert compat(dgx1_v100(), free, k, *required) == expected


@pytest.mark.parametrize(
    ("machine", "k", "expected"),
    [
        (rtx8000x4(), 1, [(0,), (1,), (2,), (3,)]),
        (rtx8000x4(), 2, [(0, 3), (1, 2)]),
        (rtx8000x4(), 4, [(0, 1, 2, 3)]),
        (dgx1_p100(), 1, [(g,) for g in range(8)]),
        (dgx1_p100(), 2, [(0, 2), (1, 3), (4, 6), (5, 7)]),
        (dgx1_p100(), 4, [(0, 1, 2, 3), (4, 5, 6, 7)]),
        (dgx1_p100(), 8, [tuple(range(8))]),
        (dgx1_v100(), 1, [(g,) for g in range(8)]),
        (dgx1_v100(), 2, [(0, 3), (1, 2), (4, 7), (5, 6)]),
        (dgx1_v100(), 4, [(0, 1, 2, 3), (4, 5, 6, 7)]),
    ],
    ids=["rtx-1", "rtx-2", "rtx-4", "p100-1", "p100-2", "p100-4", "p100-8", "1", "2", "4"],
)
def test_jobs_one_after_the_other_get_the_sets_that_upstream_expects(machine, k, expected):
    free, taken = set(range(machine.n)), []
    while len(free) >= k:
        taken.append(compat(machine, free, k))
        free -= set(taken[-1])

    assert taken == expected


def test_the_best_partition_is_remembered_however_many_sets_it_has():
    links = {(i, i + 1): 2 for i in range(0, 12, 2)} | {(12, 13): 4}

    assert compat(a_machine(14, links), range(14), 2) == (12, 13)


def test_a_set_with_padding_is_never_returned():
    # Upstream would return the pair 3-4, filled up with nothing.
    machine = a_machine(5, {(3, 4): 4})

    assert compat(machine, range(5), 3) == (0, 1, 2)


def test_what_is_required_is_not_in_the_leftovers():
    # 0-1 left over beside 2, 3, 4 scores as much as 0, 2, 3, and upstream would meet it first.
    switch = {(2, 3), (3, 4), (2, 4), (0, 2), (0, 3)}
    machine = a_machine(5, level=lambda i, j: Level.PXB if (i, j) in switch else Level.UNKNOWN)

    assert compat(machine, range(5), 3, 0) == (0, 2, 3)
    assert best_effort(pair_scores(machine), range(5), 3, (0,)) == (0, 2, 3)


@pytest.mark.parametrize(
    "machine",
    [dgx1_v100(), dgx1_p100(), a_pcie_machine(8, socket=4), bridged_pairs(), rtx8000x4()],
    ids=["v100", "p100", "pcie", "bridges", "rtx8000"],
)
def test_compat_is_best_effort_wherever_that_returns_whole_sets(machine):
    weight = pair_scores(machine)

    for free in range(1, 1 << machine.n):
        for k in range(2, free.bit_count() + 1):
            theirs = best_effort(weight, gpus_of(free), k)
            assert len(theirs) == k
            assert compat(machine, gpus_of(free), k) == theirs


@given(machines(least=3), st.data())
@settings(max_examples=80)
def test_compat_is_best_effort_or_a_whole_set_of_an_optimal_partition(machine, data):
    free = tuple(sorted(data.draw(st.sets(st.integers(0, machine.n - 1), min_size=2))))
    k = data.draw(st.integers(2, len(free)))
    required = data.draw(st.sets(st.sampled_from(free), max_size=min(k, 2)))
    weight = pair_scores(machine)

    ours = compat(machine, free, k, *required)
    theirs = best_effort(weight, free, k, tuple(required))

    assert len(ours) == k
    assert required <= set(ours) <= set(free)
    if len(theirs) == k:
        assert ours == theirs
    rest = tuple(g for g in free if g not in ours)
    own = sum(weight[i][j] for i, j in combinations(ours, 2))
    assert own + best_sum(machine, rest, k, set()) == best_sum(machine, free, k, required)


def test_on_one_nvswitch_the_lowest_gpus_are_the_first_optimal_set():
    machine = a_machine(
        16,
        dict.fromkeys(combinations(range(16), 2), 6),
        level=lambda _i, _j: Level.UNKNOWN,
        switched=True,
    )

    assert compat(machine, range(16), 8) == tuple(range(8))
    assert compat(machine, range(16), 4, 9) == (8, 9, 10, 11)
    assert compat(an_nvswitch_machine(8, 12), range(1, 8), 2) == (2, 3)
