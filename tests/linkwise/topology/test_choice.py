from collections.abc import Iterator
from dataclasses import replace
from functools import cache
from itertools import combinations

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from support.best_effort import best_effort, pair_scores
from support.builders import (
    a_machine,
    a_pcie_machine,
    an_nvswitch_machine,
    bridged_pairs,
    dgx1_p100,
    dgx1_v100,
    renumbered,
)
from support.strategies import machines

from linkwise.topology.bandwidth import bandwidths
from linkwise.topology.choice import (
    ChoiceMode,
    ChoiceRequest,
    advantage,
    candidates,
    choose,
    ranked,
)
from linkwise.topology.constants import Constants
from linkwise.topology.machine import NIC, Level, Machine, gpus_of, mask_of
from linkwise.topology.table import Table, table_of

MACHINES = {
    "dgx1-v100": dgx1_v100(),
    "dgx1-p100": dgx1_p100(),
    "pcie": a_pcie_machine(8, socket=4),
    "bridges": bridged_pairs(),
}


class Rules:
    """The rules of choice as they are written, worked out for one set after the other."""

    def __init__(self, machine: Machine) -> None:
        self.machine = machine
        self.a = bandwidths(machine)[0].tolist()
        self.pair = pair_scores(machine)
        self.v = cache(self.v)
        self.split = cache(self.split)

    def w(self, mask: int) -> int:
        return sum(self.pair[i][j] for i, j in combinations(gpus_of(mask), 2))

    def v(self, j: int, mask: int) -> float:
        gpus = gpus_of(mask)
        if len(gpus) < j:
            return 0.0
        with_first = (mask_of((gpus[0], *others)) for others in combinations(gpus[1:], j - 1))
        return max(
            self.v(j, mask & ~(1 << gpus[0])),
            *(self.a[s] + self.v(j, mask & ~s) for s in with_first),
        )

    def split(self, k: int, mask: int) -> int:
        """Return W*: the first GPU is in a k-set, or with all the others that are left over."""
        gpus = gpus_of(mask)
        if not gpus:
            return 0
        sums = []
        for size in {k, len(gpus) % k} - {0}:
            for others in combinations(gpus[1:], size - 1):
                group = mask_of((gpus[0], *others))
                sums.append(self.w(group) + self.split(k, mask & ~group))
        return max(sums)

    def near(self, gpu: int) -> int:
        return max((nic.levels[gpu] for nic in self.machine.nics), default=0)

    def keys(self, ask: ChoiceRequest, chosen: int) -> tuple[float, ...]:
        rest, k = ask.free & ~chosen, ask.k
        fast = (
            round(self.a[chosen], 6),
            round(self.v(k, rest), 6),
            self.w(chosen) + self.split(k, rest),
            -len({self.machine.gpus[g].numa for g in gpus_of(chosen)}),
            sum(self.near(g) for g in gpus_of(chosen)) if ask.multi_node else 0,
        )
        if ask.mode is ChoiceMode.FAST:
            return fast
        kept = self.a[chosen] + 0.25 * (self.v(2, rest) + self.v(4, rest))
        return (round(kept, 6), round(self.a[rest], 6), *fast)

    def connected(self, mask: int) -> bool:
        gpus = gpus_of(mask)
        reached = {gpus[0]}
        for _ in gpus:
            reached |= {j for i in reached for j in gpus if self.machine.links[i][j]}
        return reached == set(gpus)

    def candidates(self, ask: ChoiceRequest) -> Iterator[int]:
        for gpus in combinations(gpus_of(ask.free), ask.k):
            mask = mask_of(gpus)
            if mask & ask.required == ask.required and (self.connected(mask) or not ask.linked):
                yield mask

    def choose(self, ask: ChoiceRequest) -> int | None:
        return max(self.candidates(ask), key=lambda s: self.keys(ask, s), default=None)


@st.composite
def asks(draw: st.DrawFn, machine: Machine, mode: ChoiceMode | None = None) -> ChoiceRequest:
    free = draw(st.integers(1, (1 << machine.n) - 1))
    k = draw(st.integers(1, free.bit_count()))
    required = draw(st.sets(st.sampled_from(gpus_of(free)), max_size=min(k, 2)))
    return ChoiceRequest(
        free,
        k,
        mask_of(required),
        mode or draw(st.sampled_from([ChoiceMode.FAST, ChoiceMode.KEEP])),
        multi_node=draw(st.booleans()),
        linked=draw(st.booleans()),
    )


def chosen(machine: Machine, free: set[int] | range, k: int, **ask: object) -> tuple[int, ...]:
    return gpus_of(choose(table_of(machine), ChoiceRequest(mask_of(set(free)), k, **ask)) or 0)


@pytest.mark.parametrize("mode", [ChoiceMode.FAST, ChoiceMode.KEEP])
@pytest.mark.parametrize("name", MACHINES)
def test_every_choice_on_eight_gpus_is_the_one_the_rules_give(name, mode):
    machine = MACHINES[name]
    table, rules = Table(machine), Rules(machine)

    for free in range(1, 256):
        for k in range(1, free.bit_count() + 1):
            ask = ChoiceRequest(free, k, mode=mode)
            assert choose(table, ask) == rules.choose(ask), (gpus_of(free), k)


@given(machines(), st.data())
@settings(max_examples=70)
def test_any_choice_on_any_machine_is_the_one_the_rules_give(machine, data):
    ask = data.draw(asks(machine))

    assert choose(Table(machine), ask) == Rules(machine).choose(ask)


@given(machines(), st.data())
@settings(max_examples=40)
def test_choice_depends_on_numbering_only_between_equal_sets(machine, data):
    order = data.draw(st.permutations(range(machine.n)))
    ask = data.draw(asks(machine))

    def there(mask: int) -> int:
        return mask_of([order.index(g) for g in gpus_of(mask)])

    here = choose(Table(machine), ask)
    other = choose(
        Table(renumbered(machine, order)),
        replace(ask, free=there(ask.free), required=there(ask.required)),
    )

    assert (here is None) == (other is None)
    if here is not None and other is not None:
        back = mask_of([order[g] for g in gpus_of(other)])
        rules = Rules(machine)
        assert rules.keys(ask, back) == rules.keys(ask, here)


@given(machines(), st.data())
@settings(max_examples=30)
def test_ranking_begins_with_the_choice_and_goes_down(machine, data):
    ask = data.draw(asks(machine))
    table, rules = Table(machine), Rules(machine)

    order = list(ranked(table, ask))

    assert sorted(order) == sorted(rules.candidates(ask))
    assert order[:1] == [s for s in [choose(table, ask)] if s is not None]
    keys = [rules.keys(ask, s) for s in order]
    assert keys == sorted(keys, reverse=True)


@given(machines(least=3), st.data())
@settings(max_examples=50)
def test_fast_is_never_below_best_effort_whatever_is_required(machine, data):
    ask = data.draw(asks(machine, ChoiceMode.FAST).filter(lambda ask: ask.k > 1))
    ask = replace(ask, linked=False)
    table = Table(machine)

    ours = choose(table, ask)
    theirs = best_effort(pair_scores(machine), gpus_of(ask.free), ask.k, gpus_of(ask.required))

    if len(theirs) == ask.k:
        assert table.bandwidth(ours) >= table.bandwidth(mask_of(theirs))


@pytest.mark.parametrize(
    ("free", "k", "fast", "keep"),
    [
        (range(8), 1, (0,), (0,)),
        (range(8), 2, (0, 3), (0, 3)),
        (range(8), 4, (0, 1, 2, 3), (0, 1, 2, 3)),
        (range(8), 8, tuple(range(8)), tuple(range(8))),
        ({0, 1, 6, 7}, 2, (6, 7), (6, 7)),
        ({0, 3, 5}, 1, (0,), (5,)),
        ({0, 1, 2, 4, 7}, 3, (0, 1, 2), (0, 1, 2)),
    ],
    ids=str,
)
def test_known_choices_on_a_dgx1_v100(free, k, fast, keep):
    assert chosen(dgx1_v100(), free, k, mode=ChoiceMode.FAST) == fast
    assert chosen(dgx1_v100(), free, k, mode=ChoiceMode.KEEP) == keep


def test_keep_gives_up_bandwidth_now_where_it_would_break_more():
    # A row of four GPUs: the middle pair is the fastest, and no link is left beside it.
    machine = a_machine(4, {(0, 1): 9, (1, 2): 10, (2, 3): 9})

    assert chosen(machine, range(4), 2, mode=ChoiceMode.FAST) == (1, 2)
    assert chosen(machine, range(4), 2, mode=ChoiceMode.KEEP) == (0, 1)


def test_a_single_gpu_is_taken_off_the_fabric_first():
    machine = an_nvswitch_machine(4, 12, off=1)

    assert chosen(machine, range(4), 1) == (3,)


def test_the_default_is_keep_on_one_node():
    assert ChoiceRequest(0b11, 1) == ChoiceRequest(
        0b11, 1, 0, ChoiceMode.KEEP, multi_node=False, linked=False
    )


def test_fewer_numa_nodes_break_a_tie():
    machine = a_machine(4, numa=(0, 1, 0, 1))

    assert chosen(machine, range(4), 2) == (0, 2)


def test_nearer_nics_break_a_tie_only_when_the_job_spans_nodes():
    nic = NIC("mlx5_0", (Level.SYS, Level.SYS, Level.PIX, Level.PHB))
    machine = replace(a_machine(4), nics=(nic,))

    assert chosen(machine, range(4), 1) == (0,)
    assert chosen(machine, range(4), 1, multi_node=True) == (2,)
    assert chosen(machine, range(4), 2, multi_node=True) == (2, 3)


def test_without_any_difference_the_lowest_indices_are_taken():
    assert chosen(a_machine(6), {1, 3, 4, 5}, 3) == (1, 3, 4)


def test_bandwidths_a_millionth_apart_are_equal():
    def level(i: int, j: int) -> Level:
        return {(0, 1): Level.PIX, (2, 3): Level.PHB}.get((i, j), Level.SYS)

    constants = Constants(pcie=12.0, bridge=12.0 + 1e-8)
    machine = a_machine(4, level=level, constants=constants)

    for mode in (ChoiceMode.FAST, ChoiceMode.KEEP):
        assert chosen(machine, range(4), 2, mode=mode) == (0, 1)


def test_only_linked_sets_are_chosen_if_requested():
    assert chosen(bridged_pairs(), {0, 2, 3}, 2, linked=True) == (2, 3)
    assert chosen(bridged_pairs(), {0, 2, 4}, 2, linked=True) == ()
    assert chosen(bridged_pairs(), {0, 2, 4}, 1, linked=True) == (4,)
    assert chosen(bridged_pairs(), range(8), 4, linked=True) == ()


def test_compat_takes_a_linked_set_even_where_its_own_choice_is_not_linked():
    # By pair scores two boards of two GPUs, 60 each, beat the one link and the socket, 100 and 10.
    def level(i: int, j: int) -> Level:
        return {(0, 3): Level.PSB, (1, 2): Level.PSB, (0, 1): Level.UNKNOWN}.get((i, j), Level.SYS)

    machine = a_machine(4, {(0, 1): 1}, level=level)

    assert chosen(machine, range(4), 2, mode=ChoiceMode.COMPAT) == (0, 3)
    assert chosen(machine, range(4), 2, mode=ChoiceMode.COMPAT, linked=True) == (0, 1)


@pytest.mark.parametrize("mode", ChoiceMode)
@given(data=st.data())
def test_a_choice_consists_of_sets_that_are_allowed(mode, data):
    machine, k = bridged_pairs(), data.draw(st.integers(1, 2))
    every = [mask_of(gpus) for gpus in combinations(range(machine.n), k)]
    allowed = data.draw(st.lists(st.sampled_from(every), unique=True))
    ask = replace(data.draw(asks(machine, mode)), linked=False)
    assume((ask.k - ask.required.bit_count()) % k == 0)

    found = choose(table_of(machine).restricted(allowed, k), ask)

    sets = map(mask_of, combinations(gpus_of(ask.free), ask.k))
    possible = {s for s in sets if not ask.required & ~s and is_union(s & ~ask.required, allowed)}
    assert found in possible or (found is None and not possible)


def is_union(mask: int, sets: list[int]) -> bool:
    """Return whether a set is the union of some disjoint ones."""
    return not mask or any(is_union(mask & ~one, sets) for one in sets if one & mask == one)


@pytest.mark.parametrize(
    ("ask", "problem"),
    [
        (ChoiceRequest(0b1111, 0), "asked for 0 GPUs; the least is 1"),
        (ChoiceRequest(0b1111, -2), "asked for -2 GPUs; the least is 1"),
        (ChoiceRequest(0b0101, 2, required=0b1010), "required, but not free: GPU 1, 3"),
        (ChoiceRequest(0b1111, 1, required=0b0011), "asked for 1, fewer than the 2 GPUs required"),
        (ChoiceRequest(0b0101, 3), "asked for 3, more than the 2 GPUs free"),
        (ChoiceRequest(0, 1), "asked for 1, more than the 0 GPUs free"),
    ],
    ids=["none", "negative", "taken", "too many required", "too few free", "none free"],
)
@pytest.mark.parametrize("mode", ChoiceMode)
def test_an_ask_that_cannot_be_met_says_why_and_gets_nothing(ask, problem, mode):
    ask = replace(ask, mode=mode)

    assert ask.problem() == problem
    assert choose(table_of(a_machine(4)), ask) is None
    assert candidates(table_of(a_machine(4)), ask).tolist() == []


def test_an_ask_that_can_be_met_has_no_problem():
    assert ChoiceRequest(0b0101, 2, required=0b0100).problem() is None


def test_cached_choices_are_keyed_by_the_whole_request():
    nic = NIC("mlx5_0", (Level.SYS,) * 6 + (Level.PIX, Level.SYS))
    table = Table(replace(bridged_pairs(), nics=(nic,)))
    plain = ChoiceRequest(mask_of([0, 2, 3, 5, 6]), 1, mode=ChoiceMode.FAST)
    others = [
        replace(plain, free=mask_of([2, 3, 5])),
        replace(plain, k=3),
        replace(plain, required=mask_of([5])),
        replace(plain, mode=ChoiceMode.KEEP),
        replace(plain, multi_node=True),
        replace(plain, k=2),
        replace(plain, k=2, required=mask_of([5])),
        replace(plain, k=2, required=mask_of([5]), linked=True),
    ]

    answers = [choose(table, ask) for ask in (plain, *others)]

    assert answers == [choose(Table(table.machine), ask) for ask in (plain, *others)]
    assert len(set(answers)) > len(others) // 2


@pytest.mark.parametrize(
    ("machine", "ask", "other", "words"),
    [
        (bridged_pairs(), ChoiceRequest(0xFF, 2, mode=ChoiceMode.FAST), (0, 2), "it is faster"),
        (bridged_pairs(), ChoiceRequest(0xFF, 1), (0,), "its indices are lower"),
        (
            bridged_pairs(),
            ChoiceRequest(mask_of([0, 2, 3]), 1),
            (2,),
            "what it leaves free keeps better sets of two and four",
        ),
        (
            a_machine(4, numa=(0, 1, 0, 1)),
            ChoiceRequest(15, 2),
            (0, 1),
            "it touches fewer NUMA nodes",
        ),
        (
            replace(a_machine(2), nics=(NIC("n", (Level.SYS, Level.PIX)),)),
            ChoiceRequest(3, 1, multi_node=True),
            (0,),
            "it is nearer to the NICs",
        ),
        (
            a_pcie_machine(4, socket=2),
            ChoiceRequest(15, 2, mode=ChoiceMode.COMPAT),
            (0, 2),
            "with it the free GPUs divide best by NVIDIA's pair scores",
        ),
        (
            a_pcie_machine(4, socket=2),
            ChoiceRequest(15, 2, mode=ChoiceMode.COMPAT),
            (2, 3),
            "NVIDIA's policy meets it first",
        ),
    ],
    ids=["faster", "indices", "keeps", "numa", "nics", "partition", "first"],
)
def test_explanation_has_the_advantage_over_another_set(machine, ask, other, words):
    table = table_of(machine)

    assert advantage(table, ask, choose(table, ask), mask_of(other)) == words


def test_of_two_optimal_partitions_compat_keeps_the_first_even_where_the_other_has_a_better_set():
    # 0-1 and 2-3 score 50 each; 0-2 and 1-3 score 100 and nothing.
    def level(i: int, j: int) -> Level:
        return {(0, 1): Level.PIX, (2, 3): Level.PIX}.get((i, j), Level.UNKNOWN)

    table = table_of(a_machine(4, {(0, 2): 1}, level=level))
    ask = ChoiceRequest(15, 2, mode=ChoiceMode.COMPAT)

    assert choose(table, ask) == mask_of([0, 1])
    assert (
        advantage(table, ask, mask_of([0, 1]), mask_of([0, 2])) == "NVIDIA's policy meets it first"
    )
