"""Tables over every set of GPUs: arrays of shape (2ⁿ,), indexed by the set's mask.

Each is grown GPU by GPU: the sets with GPU i are those without any GPU above i−1, and GPU i.
"""

from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]


@lru_cache(maxsize=32)
def popcounts(n: int) -> Ints:
    """Return the number of GPUs of every mask of n bits, shape (2ⁿ,)."""
    return subset_sums(np.ones(n, dtype=np.int64))


def subset_sums(values: Ints) -> Ints:
    """Return the sum of per-GPU values over every set of GPUs, shape (2ⁿ,)."""
    sums = np.zeros(1, dtype=np.int64)
    for value in values:
        sums = np.concatenate([sums, sums + value])
    return sums


def pair_sums(weights: Ints) -> Ints:
    """Return the sum of pair weights inside every set of GPUs, shape (2ⁿ,).

    Args:
        weights: Weight of each pair, shape (n, n), symmetric; the diagonal is not read.
    """
    sums = np.zeros(1, dtype=np.int64)
    for i in range(len(weights)):
        sums = np.concatenate([sums, sums + subset_sums(weights[i, :i])])
    return sums


def subset_minima(values: Ints) -> Ints:
    """Return the least of per-GPU values in every set, shape (2ⁿ,)."""
    least = np.full(1, np.iinfo(np.int64).max)
    for value in values:
        least = np.concatenate([least, np.minimum(least, value)])
    return least


@lru_cache(maxsize=32)
def in_index_order(n: int) -> Ints:
    """Return every mask of n bits by ascending tuple of indices, as {0, 1, 2}, {0, 1, 5}, {0, 1}.

    A set comes behind the sets it begins, as if filled up with GPUs beyond the last: so ties are
    broken, and so upstream walks its partitions.
    """
    # Tuples of indices ascend as masks, read from GPU 0 on, descend; and to mirror undoes itself.
    return subset_sums(1 << np.arange(n)[::-1])[::-1]


@lru_cache(maxsize=128)
def sets_of(n: int, k: int) -> Ints:
    """Return the masks of all k-sets of n GPUs, by ascending tuple of indices."""
    masks = in_index_order(n)
    sets: Ints = masks[popcounts(n)[masks] == k]
    return sets


def sets_within(free: int, n: int, k: int, required: int) -> Ints:
    """Return the masks of the k-sets of free GPUs that hold the required ones, in index order."""
    sets = sets_of(n, k)
    within: Ints = sets[((sets & ~free) == 0) & ((sets & required) == required)]
    return within
