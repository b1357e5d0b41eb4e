"""Split a set of GPUs among several workers, in the order of a ring."""

from collections.abc import Iterator
from functools import cache
from itertools import combinations, permutations

import numpy as np
from numpy.typing import NDArray

from linkwise.topology.choice import ChoiceMode, ChoiceRequest, candidates, choose, ranked
from linkwise.topology.disjoint import best_disjoint
from linkwise.topology.machine import gpus_of, mask_of
from linkwise.topology.per_table import per_table
from linkwise.topology.table import Table

UNEQUAL_EXACT = 8
"""Most GPUs for which every split among unequal workers is tried: 10 ms; 16 GPUs take 10 s."""
RING_EXACT = 8
"""Most parts for which every ring is tried (2 520 rings of 8); of more, the nearest is next."""


@per_table(4096)
def split(
    table: Table, mask: int, sizes: tuple[int, ...], *, linked: bool = False
) -> tuple[int, ...] | None:
    """Split a set of GPUs among workers.

    The worst worker set is as good as it can be, then the sum of A is the largest; a worker with
    one GPU counts for neither. Where all ask for the same, neighbours in rank are neighbours on the
    ring that the whole set forms. Unequal workers that share many GPUs choose one after another,
    the largest first.

    Args:
        table: The machine.
        mask: The GPUs.
        sizes: How many of them each worker gets, in the order of ranks; together all.
        linked: Every worker set must be connected by NVLink alone.

    Returns:
        One mask for each worker, or None where no split has suitable sets alone.

    Cost: milliseconds for 8 GPUs; 0.05 s for 16 GPUs in pairs; remembered.
    """
    most_first = tuple(sorted(sizes, reverse=True))
    equal = most_first[0] == most_first[-1]
    search = _best_parts if equal or mask.bit_count() <= UNEQUAL_EXACT else _largest_first
    parts = _lowest_parts(table, mask, most_first, linked=linked)
    parts = parts or search(table, mask, most_first, linked=linked)
    if parts is None:
        return None
    if equal:
        return _ring(table, parts)
    left = {size: [part for part in parts if part.bit_count() == size] for size in sizes}
    return tuple(left[size].pop(0) for size in sizes)


@per_table(4096)
def choose_linked(table: Table, request: ChoiceRequest, sizes: tuple[int, ...]) -> int | None:
    """Return the best set that splits into worker sets which NVLink alone connects, or None.

    The required GPUs are those of other workers.
    """
    fitting = (
        s
        for s in ranked(table, request)
        if split(table, s & ~request.required, sizes, linked=True) is not None
    )
    return next(fitting, None)


def set_capacity(table: Table, free: int, each: int, *, linked: bool) -> int:
    """Return the most disjoint sets of free GPUs that are suitable, one for a worker.

    Args:
        table: The machine.
        free: Mask of the free GPUs.
        each: GPUs of a worker.
        linked: A suitable set is one that NVLink alone connects.
    """
    return _most_suitable(table, each, linked=linked)[free]


@per_table(64)
def _most_suitable(table: Table, each: int, *, linked: bool) -> list[int]:
    sets = _suitable(table, linked=linked).astype(float)
    most: list[int] = best_disjoint(sets, table.n, each).astype(int).tolist()
    return most


def _suitable(table: Table, *, linked: bool) -> NDArray[np.bool_]:
    """Return by mask whether a worker may have a set."""
    return table.allowed & table.linked if linked else table.allowed


def _lowest_parts(
    table: Table, mask: int, sizes: tuple[int, ...], *, linked: bool
) -> tuple[int, ...] | None:
    """Return the parts of lowest indices if no part can be faster, as behind an NVSwitch."""
    gpus, suitable = list(gpus_of(mask)), _suitable(table, linked=linked)
    parts: list[int] = []
    for size in sizes:
        part = mask_of(gpus[:size])
        del gpus[:size]
        # No part is faster than the fastest set of its size in `mask`, so a split whose parts are
        # all as fast is a best one.
        best = table.a[candidates(table, ChoiceRequest(mask, size))].max()
        is_best = table.bandwidth(part) >= round(float(best), 6)
        if not is_best or not suitable[part]:
            return None
        parts.append(part)
    return tuple(parts)


def _largest_first(
    table: Table, mask: int, sizes: tuple[int, ...], *, linked: bool
) -> tuple[int, ...] | None:
    """Return the fastest part for the largest worker, then of what it leaves for the next."""
    parts: list[int] = []
    for size in sizes:
        part = choose(table, ChoiceRequest(mask, size, mode=ChoiceMode.FAST, linked=linked))
        if part is None:
            return None
        parts.append(part)
        mask &= ~part
    return tuple(parts)


def _best_parts(
    table: Table, mask: int, sizes: tuple[int, ...], *, linked: bool
) -> tuple[int, ...] | None:
    """Return the parts, ascending by lowest GPU."""
    suitable = _suitable(table, linked=linked)

    # Two passes: the best worst A of all splits, then the best sum among those that keep it. One
    # pass for both would be wrong: beside a slow part the rest may have a larger sum with a worse
    # worst A of its own, so the best rest depends on the part before it.
    def firsts(left: int, sizes: tuple[int, ...]) -> Iterator[tuple[int, tuple[int, ...]]]:
        found = _parts_with_lowest(left, sizes)
        return ((p, rest) for p, rest in found if suitable[p])

    def speed(part: int) -> float:
        return table.bandwidth(part) if part.bit_count() > 1 else float("inf")

    @cache
    def worst(left: int, sizes: tuple[int, ...]) -> float:
        """Return the best worst A of any split of what is left; -1 where there is none."""
        if not left:
            return float("inf")
        ways = (min(speed(part), worst(left ^ part, rest)) for part, rest in firsts(left, sizes))
        return max(ways, default=-1.0)

    floor = worst(mask, sizes)
    if floor < 0:
        return None

    @cache
    def total(left: int, sizes: tuple[int, ...]) -> tuple[float, tuple[int, ...]]:
        """Return the best sum of A with no part below the floor, and that split."""
        best: tuple[float, tuple[int, ...]] = (-1.0, ()) if left else (0.0, ())
        for part, rest in firsts(left, sizes) if left else ():
            if speed(part) >= floor:
                found, parts = total(left ^ part, rest)
                together = round(table.bandwidth(part) + found, 6)
                if found >= 0 and together > best[0]:
                    best = (together, (part, *parts))
        return best

    return total(mask, sizes)[1]


def _parts_with_lowest(left: int, sizes: tuple[int, ...]) -> Iterator[tuple[int, tuple[int, ...]]]:
    """Yield the sets that may hold the lowest GPU left, each with the sizes of the others."""
    # Just one part of each split holds the lowest GPU, so every split is visited once, not once for
    # every order of its parts.
    lowest = left & -left
    others = [1 << i for i in gpus_of(left ^ lowest)]
    for size in dict.fromkeys(sizes):
        first = sizes.index(size)
        rest = sizes[:first] + sizes[first + 1 :]
        for chosen in combinations(others, size - 1):
            yield lowest + sum(chosen), rest


def _ring(table: Table, parts: tuple[int, ...]) -> tuple[int, ...]:
    """Return the parts in the order of the ring over them whose worst step is best, then its sum.

    A step is as fast as the best pair of GPUs across it.
    """
    count = len(parts)
    # Up to three parts form one ring only, and where all steps are equal, all rings are.
    step = [[_across(table, a, b) for b in parts] for a in parts]
    if count < 4 or len({step[i][j] for i in range(count) for j in range(i)}) == 1:
        return parts
    if count > RING_EXACT:
        order = [0]
        while len(order) < count:
            last = order[-1]
            order.append(min(set(range(count)) - set(order), key=lambda j: (-step[last][j], j)))
        return tuple(parts[i] for i in order)

    def worth(order: tuple[int, ...]) -> tuple[float, float]:
        steps = [step[a][b] for a, b in zip(order, (*order[1:], order[0]), strict=True)]
        return min(steps), sum(steps)

    # A ring and its reverse are equal, and so are all its rotations: the lowest GPU comes first.
    rings = ((0, *rest) for rest in permutations(range(1, count)) if rest[0] < rest[-1])
    return tuple(parts[i] for i in max(rings, key=worth))


def _across(table: Table, one: int, other: int) -> float:
    return max(table.bandwidth(1 << i | 1 << j) for i in gpus_of(one) for j in gpus_of(other))
