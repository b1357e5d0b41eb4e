"""Best partitions of a set of GPUs into disjoint sets, for every set.

Dynamic programming over sub-masks: the lowest GPU of a mask is either left out or in one of the
sets T taken from the mask, and what remains is a smaller mask whose best sum is known already.
"""

from collections.abc import Iterator
from math import comb
from typing import Any

import numpy as np
from numpy.typing import NDArray

from linkwise.topology.subsets import Floats, Ints, popcounts, sets_of

_BLOCK = 1 << 16
"""Pairs of a set and a subset of its complement that are tried at once: 0.5 MB for each array."""


def _splits(m: int, k: int, step: int) -> Iterator[tuple[Ints, Ints]]:
    """Yield the k-sets T of m GPUs, and subsets of each one's complement, in blocks of sets.

    At once, they and what is computed from them would take over 100 MB for m = 15.

    Args:
        m: Number of GPUs.
        k: Size of the sets T.
        step: Only subsets whose size is a multiple of this.

    Yields:
        Masks T, shape (c, 1), and sub-masks of ~T, shape (c, at most 2^(m−k)).
    """
    sets, rows = sets_of(m, k), max(1, _BLOCK >> (m - k))
    of_step = popcounts(m - k) % step == 0
    for at in range(0, len(sets), rows):
        taken = sets[at : at + rows, np.newaxis]
        absent = np.nonzero(~taken >> np.arange(m) & 1)[1].reshape(len(taken), m - k)
        subs = np.zeros((len(taken), 1 << (m - k)), dtype=np.int64)
        for i, gpu in enumerate(absent.T):
            subs[:, 1 << i : 2 << i] = subs[:, : 1 << i] | 1 << gpu[:, np.newaxis]
        yield taken, subs if step == 1 else subs[:, of_step]


def _raise(best: NDArray[Any], masks: Ints, values: NDArray[Any]) -> None:
    """Raise the best sums of some masks to the values found for them; masks may come twice."""
    # Over one dimension numpy is ten times as fast.
    np.maximum.at(best, masks.ravel(), values.ravel())


def best_disjoint(a: Floats, n: int, j: int) -> Floats:
    """Return V_j: the best sum of A over disjoint j-sets of each mask; leftovers count 0.

    Args:
        a: A by mask [GB/s], shape (2ⁿ,).
        n: Number of GPUs.
        j: Size of the sets, at least 1.

    Cost: C(n, j)·2^(n−j) steps of numpy; 0.1 s for n = 16, j = 4.
    """
    size = popcounts(n)
    of_size = a[size == j]
    if of_size.size == 0:
        return np.zeros(1 << n)
    if np.all(of_size == of_size[0]):
        alike: Floats = of_size[0] * (size // j)
        return alike
    best = np.zeros(1 << n)
    for low in reversed(range(n)):
        above = n - 1 - low
        here = best[:: 2 << low].copy()
        if above >= j - 1:
            for taken, subs in _splits(above, j - 1, 1):
                first = a[(taken << (low + 1)) | (1 << low)]
                _raise(here, taken | subs, first + best[subs << (low + 1)])
        best[1 << low :: 2 << low] = here
    return best


def best_partition(weight: Ints, n: int, k: int) -> Ints:
    """Return W*: the best sum of W over partitions of each mask into k-sets and one leftover group.

    As upstream (go-gpuallocator's padding), all that is left over is one group and counts its own
    W. The best sum of disjoint sets would do without it.

    Args:
        weight: W by mask, shape (2ⁿ,).
        n: Number of GPUs.
        k: Size of the sets, at least 2.

    Cost: as `best_disjoint`, and a share 1/k of each smaller size; 0.1 s for n = 16, k = 4.
    """
    size = popcounts(n)
    pairs = weight[size == 2]
    if np.all(pairs == pairs[:1]):
        alike: Ints = pairs[:1].sum() * (size // k * comb(k, 2) + (size % k) * (size % k - 1) // 2)
        return alike
    best = np.where(size < k, weight, 0)
    for low in reversed(range(n)):
        above = n - 1 - low
        small = size[1 << low :: 2 << low] < k
        here = np.where(small, best[1 << low :: 2 << low], -1)
        for group in range(1, min(k, above + 1) + 1):
            # A group smaller than k is all that is left over beside whole sets.
            for taken, subs in _splits(above, group - 1, 1 if group == k else k):
                first = weight[(taken << (low + 1)) | (1 << low)]
                _raise(here, taken | subs, first + best[subs << (low + 1)])
        best[1 << low :: 2 << low] = np.where(small, best[1 << low :: 2 << low], here)
    return best
