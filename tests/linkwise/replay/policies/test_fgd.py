from itertools import product

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.traces import a_job, a_policy, occupied, placed, shared_fleet, whole_fleet

from linkwise.replay.policies.fgd import TypicalPods, typical_pods

SHARE, WHOLE = a_job(milli=500).shape, a_job().shape
PLENTY = 1 << 40


def typical(*pods):
    """Return typical pods from (probability, GPUs, milli, CPU)."""
    probability, gpus, milli, cpu = map(np.array, zip(*pods, strict=True))
    return TypicalPods(probability, gpus, milli, cpu, (frozenset(),) * len(pods))


def fragments(pods, left, cpu=PLENTY, model=""):
    return pods.fragments(np.array([left]), np.array([cpu]), model).tolist()[0]


def test_the_published_example_of_a_node_without_cpu():
    # `frag_test.go` of the authors' simulator: 2700 × 9.33 % = 251.91.
    pods = typical((0.0933, 1, 465, 6000))

    assert fragments(pods, [200, 1000, 1000, 500], cpu=1000) == pytest.approx(251.91)


@pytest.mark.parametrize(
    ("left", "expected"),
    [
        # Both run, and cannot use the GPU with 200 left.
        ([200, 1000], 200),
        # The share cannot use 200; the whole GPU finds none, so that all 1000 are lost for it.
        ([200, 800], 0.5 * 200 + 0.5 * 1000),
        ([500, 500], 0.5 * 0 + 0.5 * 1000),
        ([0, 0], 0),
        ([1000, 1000], 0),
    ],
)
def test_worked_examples(left, expected):
    assert fragments(typical((0.5, 1, 500, 0), (0.5, 1, 1000, 0)), left) == expected


def test_gpus_of_another_model_are_lost():
    pods = typical_pods({a_job(models=frozenset({"T4"})).shape: 1.0})

    assert fragments(pods, [1000], model="T4") == 0
    assert fragments(pods, [1000], model="V100") == 1000


def test_the_share_goes_where_the_fewest_fragments_grow():
    # On GPU 0 of node a fragments fall from 200 to 0; elsewhere they grow.
    fleet = occupied(shared_fleet(2, 2), ("a", 0, 800))
    policy = a_policy("fgd", shapes=(SHARE, WHOLE))

    assert placed(policy, fleet, milli=200) == [("a", [0])]


def test_typical_pods_are_the_most_popular_ones():
    pods = typical_pods({SHARE: 0.9, WHOLE: 0.06, a_job(gpus=2).shape: 0.04})

    assert pods.milli.tolist() == [500, 1000]
    assert pods.probability.tolist() == pytest.approx([0.9375, 0.0625])


def brute_fragments(pods, left, cpu):
    """Written again from the definition of the paper, for one pod and one GPU at a time."""
    total = 0.0
    for part, gpus, milli, need in pods:
        usable = [free for free in left if free >= milli]
        runs = len(usable) >= gpus and cpu >= need
        total += part * (sum(left) - sum(usable) if runs else sum(left))
    return total


AMOUNTS = st.sampled_from([0, 100, 300, 500, 700, 1000])
PODS = st.tuples(st.integers(1, 3), st.sampled_from([200, 500, 1000]), st.integers(0, 3))


@settings(max_examples=60, deadline=None)
@given(
    left=st.lists(AMOUNTS, min_size=1, max_size=4),
    cpu=st.integers(0, 3),
    pods=st.lists(PODS, min_size=1, max_size=4),
)
def test_fragments_are_those_of_brute_force(left, cpu, pods):
    each = [(1 / len(pods), *pod) for pod in pods]

    assert fragments(typical(*each), left, cpu) == pytest.approx(brute_fragments(each, left, cpu))


@settings(max_examples=40, deadline=None)
@given(taken=st.lists(AMOUNTS, min_size=4, max_size=4), milli=st.sampled_from([200, 500, 900]))
def test_the_choice_is_that_of_brute_force(taken, milli):
    used = [("ab"[i // 2], i % 2, amount) for i, amount in enumerate(taken) if amount]
    fleet = occupied(shared_fleet(2, 2), *used)
    found = placed(a_policy("fgd", shapes=(SHARE, WHOLE)), fleet, milli=milli)

    pods = [(0.5, 1, 500, 0), (0.5, 1, 1000, 0)]
    options = []
    for node, card in product(range(2), range(2)):
        left = [1000 - amount for amount in taken[2 * node : 2 * node + 2]]
        if left[card] >= milli:
            after = [free - milli * (i == card) for i, free in enumerate(left)]
            growth = brute_fragments(pods, after, 0) - brute_fragments(pods, left, 0)
            options.append((growth, node, card))
    best = min(options, default=None)
    assert found == (best and [("ab"[best[1]], [best[2]])])


def test_linkwise_by_fragments_chooses_the_node_by_fgd_and_the_gpus_by_links():
    fleet = occupied(shared_fleet(2, 2), ("a", 0, 800))
    policy = a_policy("linkwise-fgd", shapes=(SHARE, WHOLE))

    assert placed(policy, fleet, milli=200) == [("a", [0])]
    # GPUs 0 and 3 of the machine have two NVLinks.
    assert placed(policy, whole_fleet(2), shared=False, gpus=2) == [("node-0", [0, 3])]
    assert placed(policy, whole_fleet(1), shared=False, gpus=8, pods=2) is None


def test_linkwise_by_fragments_leaves_no_faster_node_for_fewer_fragments():
    # Node 0 has two free GPUs with one NVLink between them; node 1 is free.
    taken = [("node-0", gpu, None) for gpu in range(2, 8)]
    policy = a_policy("linkwise-fgd", shapes=(a_job(gpus=2).shape,))

    (pod,) = placed(policy, occupied(whole_fleet(2), *taken), shared=False, gpus=2)
    assert pod == ("node-1", [0, 3])
