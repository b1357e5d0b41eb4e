import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.builders import a_machine, a_pcie_machine, bridged_pairs, dgx1_p100, dgx1_v100
from support.strategies import machines

from linkwise.topology.choice import ChoiceMode, ChoiceRequest, choose, ranked
from linkwise.topology.explain import Explanation, GPUSet, explain, index_order
from linkwise.topology.machine import Machine, gpus_of, mask_of
from linkwise.topology.table import Table, table_of


def explained(machine: Machine, free: object, k: int, **ask: object) -> Explanation:
    return explain(table_of(machine), ChoiceRequest(mask_of(set(free)), k, **ask))


def test_every_field_of_a_choice_on_a_partly_taken_dgx1():
    explanation = explained(dgx1_v100(), {0, 1, 2, 4, 5}, 2)

    assert explanation == Explanation(
        chosen=GPUSet((0, 4), 40.0),
        reason="40.0 GB/s; taken before the runner-up because "
        "all that it leaves free is faster together",
        best_possible=40.0,
        best_free=40.0,
        index_order=GPUSet((0, 1), 20.0),
        runner_up=GPUSet((1, 2), 40.0),
        free_after=GPUSet((1, 2, 5), 36.8),
        exact=True,
    )


def test_a_single_gpu_has_no_bandwidth_to_compare():
    explanation = explained(dgx1_v100(), {0, 3, 5}, 1)

    assert explanation == Explanation(
        chosen=GPUSet((5,), None),
        reason="a single GPU; taken before the runner-up because "
        "what it leaves free keeps better sets of two and four",
        best_possible=None,
        best_free=None,
        index_order=GPUSet((0,), None),
        runner_up=GPUSet((3,), None),
        free_after=GPUSet((0, 3), 40.0),
        exact=True,
    )


def test_where_no_set_satisfies_the_ask_the_reason_is_all_there_is():
    explanation = explained(dgx1_v100(), {0, 1}, 3)

    assert explanation == Explanation(
        None, "asked for 3, more than the 2 GPUs free", None, None, None, None, None, True
    )


def test_without_a_linked_set_the_reason_says_so():
    explanation = explained(bridged_pairs(), {0, 2}, 2, linked=True)

    assert explanation.chosen is None
    assert explanation.reason == "NVLink alone connects no such set of free GPUs"


@pytest.mark.parametrize(
    ("machine", "free", "k", "ask", "reason"),
    [
        (dgx1_v100(), range(8), 4, {}, "55.2 GB/s; the next best kind of set gives 42.9 GB/s"),
        (
            dgx1_v100(),
            {0, 1, 6, 7},
            4,
            {},
            "4.0 GB/s; there is no other such set",
        ),
        (
            bridged_pairs(),
            {0, 1},
            1,
            {},
            "a single GPU; every other such set is the same but for numbering",
        ),
        (
            a_machine(4),
            range(4),
            2,
            {},
            "6.0 GB/s; every other such set is the same but for numbering",
        ),
        (
            a_machine(4, {(0, 1): 9, (1, 2): 10, (2, 3): 9}),
            range(4),
            2,
            {},
            "180.0 GB/s rather than the 200.0 GB/s that the free GPUs could give: "
            "what it leaves free keeps better sets of two and four",
        ),
        (
            a_machine(4, numa=(0, 1, 0, 1)),
            range(4),
            2,
            {"mode": ChoiceMode.FAST},
            "6.0 GB/s; taken before the runner-up because it touches fewer NUMA nodes",
        ),
    ],
    ids=["faster", "only one", "symmetric", "all alike", "keeps", "numa"],
)
def test_the_reason_names_what_decided(machine, free, k, ask, reason):
    assert explained(machine, free, k, **ask).reason == reason


def test_compat_does_not_claim_to_keep_sets():
    # On an empty DGX-1 best-effort takes a slower set of five.
    explanation = explained(dgx1_v100(), range(8), 5, mode=ChoiceMode.COMPAT)

    assert explanation.chosen is not None
    assert (explanation.chosen.bandwidth, explanation.best_free) == (36.8, 46.0)
    assert explanation.reason.startswith("36.8 GB/s rather than the 46.0 GB/s")
    assert "NVIDIA" in explanation.reason or "pair scores" in explanation.reason


@pytest.mark.parametrize(
    ("free", "k", "required", "expected"),
    [
        ((0, 2, 3, 5), 2, (), (0, 2)),
        ((0, 2, 3, 5), 2, (5,), (0, 5)),
        ((1, 4), 2, (), (1, 4)),
        ((1, 4, 6), 1, (6,), (6,)),
    ],
    ids=["lowest", "required first", "all", "only the required"],
)
def test_index_order_takes_the_required_and_then_the_lowest(free, k, required, expected):
    assert gpus_of(index_order(ChoiceRequest(mask_of(free), k, mask_of(required)))) == expected


@pytest.mark.parametrize("mode", [ChoiceMode.FAST, ChoiceMode.KEEP])
@pytest.mark.parametrize(
    "machine", [dgx1_v100(), dgx1_p100(), bridged_pairs()], ids=["v100", "p100", "bridges"]
)
def test_the_runner_up_is_the_next_set_that_is_no_image_of_the_choice(machine, mode):
    table = table_of(machine)

    for free in range(1, 256, 5):
        for k in range(1, free.bit_count() + 1):
            ask = ChoiceRequest(free, k, mode=mode)
            runner_up = explain(table, ask).runner_up
            images = table.images(choose(table, ask) or 0)
            others = [s for s in ranked(table, ask) if not images[s]]
            expected = gpus_of(others[0]) if others else None

            assert (runner_up and runner_up.gpus) == expected


@given(machines(), st.data())
@settings(max_examples=40)
def test_an_explanation_agrees_with_the_table_it_explains(machine, data):
    free = data.draw(st.integers(1, (1 << machine.n) - 1))
    ask = ChoiceRequest(
        free,
        data.draw(st.integers(1, free.bit_count())),
        mode=data.draw(st.sampled_from(ChoiceMode)),
    )
    table = Table(machine)

    explanation = explain(table, ask)

    chosen = mask_of(explanation.chosen.gpus)
    assert chosen == choose(table, ask)
    assert mask_of(explanation.free_after.gpus if explanation.free_after else ()) == free & ~chosen
    for one in (
        explanation.chosen,
        explanation.index_order,
        explanation.runner_up,
        explanation.free_after,
    ):
        if one is not None:
            alone = len(one.gpus) == 1
            assert one.bandwidth == (None if alone else table.bandwidth(mask_of(one.gpus)))
    if ask.k > 1:
        assert explanation.chosen.bandwidth <= explanation.best_free <= explanation.best_possible
        if ask.mode is ChoiceMode.FAST:
            assert explanation.chosen.bandwidth == explanation.best_free


def test_nothing_is_left_of_a_machine_taken_whole():
    assert explained(dgx1_v100(), range(8), 8).free_after is None


def test_bounds_are_distinguished_from_exact_values():
    ring = a_machine(9, {(i, (i + 1) % 9): 1 for i in range(9)})

    assert not explained(ring, range(9), 6).exact


def test_sixteen_alike_gpus_are_explained_without_trying_every_pair_of_sets():
    explanation = explained(a_pcie_machine(16, socket=16, switch=16), range(16), 8)

    assert explanation.runner_up is None
    assert explanation.reason.endswith("every other such set is the same but for numbering")
