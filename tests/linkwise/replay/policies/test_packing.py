from itertools import permutations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.traces import a_job, a_policy, occupied, placed, shared_fleet

from linkwise.replay.engine import Rules, Run
from linkwise.replay.job import members_of
from linkwise.replay.policies.registry import POLICIES


def place(name, fleet, **shape):
    return placed(a_policy(name), fleet, **shape)


# Node a: GPUs with 1000 and 300 left; b: 500 and 1000; c: 1000 and 1000, idle.
FLEET = occupied(shared_fleet(2, 2, 2), ("a", 1, 700), ("b", 0, 500))


@pytest.mark.parametrize(
    ("name", "shape", "node", "gpus"),
    [
        ("best-fit", {"milli": 300}, "a", [1]),
        ("best-fit", {"milli": 400}, "a", [0]),
        ("best-fit", {"gpus": 2}, "c", [0, 1]),
        ("worst-fit", {"milli": 300}, "c", [0]),
        ("worst-fit", {"gpus": 1}, "c", [0]),
        ("dot-product", {"milli": 300}, "a", [1]),
        # In use with the least left: 100 - 30/10 = 97 against 100 - 50/10 = 95.
        ("gpu-packing", {"milli": 300}, "a", [1]),
        # b needs no free GPU, a does: 95 against 50 - 1.
        ("gpu-packing", {"milli": 400}, "b", [0]),
        ("gpu-packing", {"gpus": 1}, "a", [0]),
        ("gpu-packing", {"gpus": 2}, "c", [0, 1]),
        # Shares run on a and b, whole GPUs nowhere: an idle node is better than other kinds.
        ("gpu-clustering", {"milli": 300}, "a", [1]),
        ("gpu-clustering", {"gpus": 1}, "c", [0]),
        ("round-robin", {"milli": 300}, "a", [0]),
        # a: 10 × (1/20 + 2 × 0.35) = 7.5; b: 10 × (1/20 + 2 × 0.25) = 5.5; c: 0.
        ("hami-binpack", {"milli": 300}, "a", [1]),
        ("hami-binpack", {"milli": 400}, "a", [0]),
        ("hami-spread", {"milli": 300}, "c", [0]),
    ],
)
def test_worked_examples(name, shape, node, gpus):
    assert place(name, FLEET, **shape) == [(node, gpus)]


def test_round_robin_takes_the_next_node_that_fits():
    chosen = a_policy("round-robin")
    job = a_job(milli=400)
    nodes = [
        chosen.place(FLEET, job.shape, members_of(job, n, shared=True))[0].node for n in range(4)
    ]

    assert nodes == ["a", "b", "c", "a"]


def test_random_takes_each_node_about_as_often():
    chosen, job = a_policy("random", 7), a_job()
    nodes = [
        chosen.place(FLEET, job.shape, members_of(job, n, shared=True))[0].node for n in range(300)
    ]

    assert all(60 <= nodes.count(name) <= 140 for name in "abc")


def test_models_and_cpu_exclude_nodes():
    fleet = shared_fleet(2, cpu=4000, model="T4")

    assert place("best-fit", fleet, models=frozenset({"V100", "T4"}), cpu=4000) is not None
    assert place("best-fit", fleet, models=frozenset({"V100"})) is None
    assert place("best-fit", fleet, cpu=4001) is None


AMOUNTS = st.lists(st.sampled_from([0, 100, 300, 500, 700, 1000]), min_size=4, max_size=4)


@pytest.mark.parametrize("name", POLICIES)
@settings(max_examples=40, deadline=None)
@given(taken=AMOUNTS, gpus=st.integers(1, 3), milli=st.sampled_from([200, 500, 900, 1000]))
def test_a_pod_is_placed_exactly_if_brute_force_finds_a_place(name, taken, gpus, milli):
    gpus = gpus if milli == 1000 else 1
    used = [("ab"[i // 2], i % 2, amount) for i, amount in enumerate(taken) if amount]
    fleet = occupied(shared_fleet(2, 2), *used)

    fits = any(
        all(taken[2 * node + card] + milli <= 1000 for card in cards)
        for node in range(2)
        for cards in permutations(range(2), gpus)
    )
    assert (place(name, fleet, gpus=gpus, milli=milli) is not None) == fits


def test_a_gang_by_a_baseline_is_all_or_nothing():
    job = a_job(gpus=2, pods=3)
    run = Run(shared_fleet(2, 2), a_policy("best-fit"), Rules(shared=True))

    assert [event.placements for event in run.events([job])] == [()]
