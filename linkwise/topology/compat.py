"""NVIDIA's best-effort policy as intended: the best partition of the free GPUs, then its best set.

Upstream (go-gpuallocator at 876e7b7, `besteffort_policy.go`) walks every partition of the free GPUs
into k-sets and one leftover group, keeps the first with the largest sum of W, and returns that
partition's first set of largest W. Two defects are not repeated here: a set with padding is never
returned, and a remembered partition is never overwritten.
"""

from linkwise.topology.subsets import Ints, in_index_order, popcounts, sets_within
from linkwise.topology.table import Table


def first_optimal_set(table: Table, free: int, k: int, required: int) -> int:
    """Return the best whole set of the lexicographically first optimal partition, as a mask.

    Args:
        table: The machine.
        free: Mask of the free GPUs, at least k.
        k: Size of the sets. For one GPU: the required one, else the lowest index.
        required: Mask of GPUs that must be together in one whole set; at most k, all free.

    Cost: about 1 ms for 16 GPUs, some more with required ones.
    """
    if k == 1:
        return required or free & -free
    partition = _first_optimal_partition(table, free, k, required)
    fitting = [s for s in partition if s.bit_count() == k and s & required == required]
    return max(fitting, key=lambda s: int(table.w[s]))


def _first_optimal_partition(table: Table, free: int, k: int, required: int) -> list[int]:
    """Return the optimal partition that upstream would meet first, as masks."""
    partition: list[int] = []
    left = free
    while left:
        # Required GPUs that are not left are in one of the groups taken, all of them.
        must = required & left
        wanted = _best_sum(table, left, k, must)
        groups = _first_groups(table.n, left, k)
        # Without required GPUs this is the sum itself; with them it is at least the sum.
        bound = table.w[groups] + table.partition(k)[left & ~groups]
        promising = groups[bound >= wanted].tolist()
        taken = next(g for g in promising if _sum_with(table, left, g, k, must) == wanted)
        partition.append(taken)
        left &= ~taken
    return partition


def _first_groups(n: int, left: int, k: int) -> Ints:
    """Return the groups that may hold the lowest GPU left, in upstream's order, as masks.

    A group is a k-set, or all that is left over beside k-sets. Upstream's padding comes after every
    GPU, so that a group of leftovers comes behind the whole sets that begin alike.
    """
    masks = in_index_order(n)
    size = popcounts(n)[masks]
    inside = ((masks & ~left) == 0) & ((masks & (left & -left)) != 0)
    groups: Ints = masks[inside & ((size == k) | (size == left.bit_count() % k))]
    return groups


def _best_sum(table: Table, left: int, k: int, required: int) -> int:
    """Return the best sum of W over partitions with all required GPUs in one whole set.

    -1 where no whole set has room for them.
    """
    if not required:
        return int(table.partition(k)[left])
    sets = sets_within(left, table.n, k, required)
    return int((table.w[sets] + table.partition(k)[left & ~sets]).max(initial=-1))


def _sum_with(table: Table, left: int, group: int, k: int, required: int) -> int:
    """Return the best such sum over partitions that hold the group; -1 or less where none does."""
    if group & required:
        if group & required != required or group.bit_count() < k:
            return -1
        required = 0
    rest = _best_sum(table, left & ~group, k, required)
    return rest if rest < 0 else int(table.w[group]) + rest
