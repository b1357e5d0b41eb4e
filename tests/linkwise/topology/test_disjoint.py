from functools import cache
from itertools import combinations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.builders import a_pcie_machine, dgx1_v100

from linkwise.topology.bandwidth import bandwidths
from linkwise.topology.disjoint import best_disjoint, best_partition
from linkwise.topology.machine import gpus_of, mask_of
from linkwise.topology.subsets import pair_sums


def slow_disjoint(a: np.ndarray, j: int, mask: int) -> float:
    """Return V_j of one set by trying, for its lowest GPU, every j-set and leaving it out."""

    @cache
    def best(left: int) -> float:
        gpus = gpus_of(left)
        if len(gpus) < j:
            return 0.0
        without = best(left & ~(1 << gpus[0]))
        sets = [mask_of((gpus[0], *others)) for others in combinations(gpus[1:], j - 1)]
        return max(without, *(float(a[s]) + best(left & ~s) for s in sets))

    return best(mask)


def slow_partition(w: np.ndarray, k: int, mask: int) -> int:
    """Return W* of one set by trying every group of leftovers, then every split into k-sets."""

    @cache
    def whole(left: int) -> int:
        gpus = gpus_of(left)
        if not gpus:
            return 0
        sets = [mask_of((gpus[0], *others)) for others in combinations(gpus[1:], k - 1)]
        return max(int(w[s]) + whole(left & ~s) for s in sets)

    gpus = gpus_of(mask)
    leftovers = [mask_of(group) for group in combinations(gpus, len(gpus) % k)]
    return max(int(w[group]) + whole(mask & ~group) for group in leftovers)


@st.composite
def values(draw: st.DrawFn) -> np.ndarray:
    """A value of at least 0 for every set of up to seven GPUs; few different ones, so that ties."""
    n = draw(st.integers(1, 7))
    seed = draw(st.integers(0, 2**32 - 1))
    kinds = draw(st.sampled_from([1, 2, 5, 1000]))
    return np.random.default_rng(seed).integers(0, kinds, 1 << n).astype(float)


@given(values(), st.integers(1, 8))
@settings(max_examples=60)
def test_v_is_the_best_sum_of_disjoint_sets_for_any_values(a, j):
    n = len(a).bit_length() - 1

    v = best_disjoint(a, n, j)

    assert v.tolist() == [slow_disjoint(a, j, mask) for mask in range(1 << n)]


@given(
    st.integers(2, 7), st.integers(2, 8), st.integers(0, 2**32 - 1), st.sampled_from([1, 3, 500])
)
@settings(max_examples=60)
def test_the_best_partition_counts_leftovers_as_one_group(n, k, seed, kinds):
    weights = np.random.default_rng(seed).integers(0, kinds, (n, n))
    w = pair_sums(weights + weights.T)

    best = best_partition(w, n, k)

    assert best.tolist() == [slow_partition(w, k, mask) for mask in range(1 << n)]


@pytest.mark.parametrize("j", [1, 2, 3, 4, 5, 8])
def test_v_of_a_dgx1_agrees_with_brute_force(j):
    a, _ = bandwidths(dgx1_v100())

    v = best_disjoint(a, 8, j)

    assert v == pytest.approx([slow_disjoint(a, j, mask) for mask in range(256)])


def test_leftovers_count_nothing_in_v_and_their_own_weight_in_a_partition():
    # Three GPUs, of which 0-1 and 1-2 are linked: after one pair, one GPU is left over.
    a = np.array([0, 0, 0, 5, 0, 1, 3, 9], dtype=float)
    w = pair_sums(np.array([[0, 5, 1], [5, 0, 3], [1, 3, 0]]))

    assert best_disjoint(a, 3, 2)[0b111] == 5
    assert best_disjoint(a, 3, 3)[0b111] == 9
    assert best_partition(w, 3, 2)[0b111] == 5
    assert best_partition(w, 3, 4)[0b111] == 9


def test_sets_larger_than_the_machine_are_worth_nothing():
    assert best_disjoint(np.arange(8.0), 3, 4).tolist() == [0.0] * 8


@pytest.mark.parametrize("k", [2, 4, 5])
def test_where_all_pairs_weigh_alike_only_sizes_count(k):
    w = pair_sums(np.full((6, 6), 7))

    best = best_partition(w, 6, k)

    assert best.tolist() == [slow_partition(w, k, mask) for mask in range(64)]


@pytest.fixture(scope="module")
def pcie() -> np.ndarray:
    return bandwidths(a_pcie_machine(16, socket=8, switch=4))[0]


def test_sixteen_gpus_on_pcie_split_into_their_switches(pcie):
    v2, v4 = (best_disjoint(pcie, 16, j) for j in (2, 4))

    # Eight pairs below one switch each; four switches of four; three of them once GPU 0 is gone.
    assert v2[-1] == pytest.approx(8 * 12)
    assert v4[-1] == pytest.approx(4 * 12 * 4 / 6)
    assert v4[mask_of(range(1, 16))] == pytest.approx(3 * 12 * 4 / 6)
    # Three GPUs left on each switch: four by four they must cross the host bridge or the sockets.
    three_each = mask_of([g for g in range(16) if g % 4])
    assert v4[three_each] == pytest.approx(2 * 10 * 4 / 6 + 6 * 4 / 6)
