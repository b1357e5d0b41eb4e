"""What NVIDIA's best-effort policy intends: the best partition of the free GPUs, then its best set.

Upstream (go-gpuallocator at 876e7b7, `besteffort_policy.go`) walks every partition of the free GPUs
into k-sets and one leftover group, keeps the first with the largest sum of W, and returns that
partition's first set of largest W. Two defects are not repeated here: a set with padding is never
returned, and a remembered partition is never overwritten.
"""

from itertools import combinations

from topology.machine import gpus_of
from topology.table import Table


def first_optimal_set(table: Table, free: int, k: int, required: int) -> int:
    """Return the best whole set of the lexicographically first optimal partition, as a mask.

    Args:
        table: The machine.
        free: Mask of the free GPUs, at least k.
        k: Size of the sets. For one GPU: the required one, else the lowest index.
        required: Mask of GPUs that must be together in one whole set; at most k, all free.

    Cost: at most C(15, k−1) steps for each set of the partition.
    """
    if k == 1:
        return required or free & -free
    whole = [s for s in _first_optimal_partition(table, free, k, required) if s.bit_count() == k]
    fitting = [s for s in whole if s & required == required]
    return max(fitting, key=lambda s: int(table.w[s]))


def _first_optimal_partition(table: Table, free: int, k: int, required: int) -> list[int]:
    """Return the optimal partition that upstream would meet first, as masks."""
    partition: list[int] = []
    left = free
    while left:
        wanted = _best_sum(table, left, k, required)
        taken = next(
            s for s in _first_sets(left, k) if _sum_with(table, left, s, k, required) == wanted
        )
        if taken & required:
            required = 0
        partition.append(taken)
        left &= ~taken
    return partition


def _first_sets(left: int, k: int) -> list[int]:
    """Return the sets that may hold the lowest GPU left, in upstream's order.

    Padding comes after every GPU, so that a group of all that is left over comes behind the whole
    sets that begin alike.
    """
    gpus = gpus_of(left)
    sizes = {k} if len(gpus) >= k else set()
    if len(gpus) % k:
        sizes.add(len(gpus) % k)
    padded = [
        ((*c, *(99 for _ in range(k - size))), sum(1 << i for i in c))
        for size in sizes
        for c in combinations(gpus, size)
        if c[0] == gpus[0]
    ]
    return [mask for _, mask in sorted(padded)]


def _best_sum(table: Table, left: int, k: int, required: int) -> int | None:
    """Return the best sum of W over partitions with all required GPUs in one whole set, or None."""
    if not required:
        return int(table.partition(k)[left])
    others = gpus_of(left & ~required)
    extra = k - required.bit_count()
    sums = [
        int(table.w[s] + table.partition(k)[left & ~s])
        for c in combinations(others, extra)
        for s in [required | sum(1 << i for i in c)]
    ]
    return max(sums, default=None)


def _sum_with(table: Table, left: int, taken: int, k: int, required: int) -> int | None:
    """Return the best sum of W over partitions that hold the set taken, or None where none may."""
    if taken & required:
        if taken & required != required or taken.bit_count() < k:
            return None
        required = 0
    rest = _best_sum(table, left & ~taken, k, required)
    return None if rest is None else int(table.w[taken]) + rest
