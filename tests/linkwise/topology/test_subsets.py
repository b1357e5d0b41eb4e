from itertools import combinations

import numpy as np
import pytest

from linkwise.topology.machine import gpus_of, mask_of
from linkwise.topology.subsets import (
    in_index_order,
    pair_sums,
    popcounts,
    sets_of,
    sets_within,
    subset_minima,
    subset_sums,
)


def test_sums_over_sets_are_the_sums_of_their_members_and_pairs():
    weights = np.array([[0, 1, 2], [1, 0, 4], [2, 4, 0]])

    assert subset_sums(np.array([1, 10, 100])).tolist() == [0, 1, 10, 11, 100, 101, 110, 111]
    assert pair_sums(weights).tolist() == [0, 0, 0, 1, 0, 2, 4, 7]
    assert popcounts(3).tolist() == [0, 1, 1, 2, 1, 2, 2, 3]
    assert subset_minima(np.array([5, 3, 4]))[1:].tolist() == [5, 3, 3, 4, 4, 3, 3]


@pytest.mark.parametrize(("n", "k"), [(1, 1), (4, 2), (6, 3), (8, 8), (5, 0)])
def test_sets_of_a_size_come_by_ascending_indices(n, k):
    assert [gpus_of(mask) for mask in sets_of(n, k).tolist()] == list(combinations(range(n), k))


def test_a_set_comes_behind_the_sets_that_it_begins():
    masks = in_index_order(6).tolist()

    padded = [(*gpus_of(mask), *(6,) * (6 - mask.bit_count())) for mask in masks]

    assert padded == sorted(padded)
    assert sorted(masks) == list(range(64))


def test_sets_within_are_the_sets_of_free_gpus_that_hold_the_required_ones():
    free, required = mask_of([0, 2, 3, 5]), mask_of([3])

    assert [gpus_of(mask) for mask in sets_within(free, 6, 2, required).tolist()] == [
        (0, 3),
        (2, 3),
        (3, 5),
    ]
