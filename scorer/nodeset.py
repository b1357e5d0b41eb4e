"""Which set of nodes takes a gang that no single node can.

In this order: fewest nodes; the nearest common network domain; the most even split, counted in
workers; the best worst node; the same GPU positions on every node (rails), and GPUs near a NIC; the
least damage to what stays free; names. A worker is never split over nodes.

Few enough combinations of nodes are all tried. Beyond `EXACT`, the same rules pick nodes one after
another, and the answer says so.
"""

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import combinations
from math import comb

from scorer.seat import Candidate, Seat, Wish, take

EXACT = 2_000
"""Combinations of nodes that are all tried: about 20 ms."""

Worth = tuple[object, ...]


@dataclass(frozen=True, slots=True)
class Seating:
    """A gang over several nodes."""

    seats: tuple[Seat, ...]
    """By node name."""
    domain: str | None
    """`label=value` of the nearest network domain that all nodes share, or None."""
    exact: bool
    """No other set of nodes is better; else only the rules were followed greedily."""


def best_seating(
    candidates: Sequence[Candidate], workers: int, wish: Wish, domains: Sequence[str]
) -> Seating | None:
    """Return the best set of nodes for a gang, or None where all together are too small.

    Args:
        candidates: Nodes that can take at least one worker.
        workers: How many workers, at least 2.
        wish: What is asked of the GPUs.
        domains: Labels of network domains, nearest first.

    Cost: 50 ms for 256 workers on 1 000 nodes.
    """
    count = _fewest(candidates, workers)
    if count is None:
        return None
    for label in (*domains, None):
        seatings = [
            found
            for domain, nodes in _domains(candidates, label)
            if _fewest(nodes, workers) == count
            and (found := _seating(nodes, workers, count, wish, domain)) is not None
        ]
        if seatings:
            return min(seatings, key=lambda seating: _worth(seating.seats))
    return None


def _fewest(candidates: Iterable[Candidate], workers: int) -> int | None:
    """Return how many nodes are needed at least, or None where all are too few."""
    for count, room in enumerate(sorted((c.room for c in candidates), reverse=True), start=1):
        workers -= room
        if workers <= 0:
            return count
    return None


def _domains(
    candidates: Sequence[Candidate], label: str | None
) -> Iterator[tuple[str | None, list[Candidate]]]:
    """Yield the candidates of each network domain; all of them for no label."""
    if label is None:
        yield None, list(candidates)
        return
    by_value: dict[str, list[Candidate]] = {}
    for candidate in candidates:
        value = candidate.node.node.labels.get(label)
        if value is not None:
            by_value.setdefault(value, []).append(candidate)
    for value in sorted(by_value):
        yield f"{label}={value}", by_value[value]


def _seating(
    nodes: Sequence[Candidate], workers: int, count: int, wish: Wish, domain: str | None
) -> Seating | None:
    """Return the best seating on `count` of these nodes, or None where links forbid every one."""
    nodes = sorted(nodes, key=lambda c: c.name)
    exact = comb(len(nodes), count) <= EXACT
    sets = combinations(nodes, count) if exact else [_greedy(nodes, workers, count, wish)]
    seated = [
        seats
        for chosen in sets
        if sum(c.room for c in chosen) >= workers
        and (seats := _seat(chosen, workers, wish)) is not None
    ]
    if not seated:
        return None
    return Seating(min(seated, key=_worth), domain, exact)


def _even(rooms: Sequence[int], workers: int) -> list[int]:
    """Return the most even counts of workers that these rooms allow, largest first."""
    counts: list[int] = []
    ascending = sorted(rooms)
    for index, room in enumerate(ascending):
        share = workers // (len(ascending) - index)
        counts.append(min(room, share))
        workers -= counts[-1]
    return sorted(counts, reverse=True)


def _seat(chosen: Sequence[Candidate], workers: int, wish: Wish) -> tuple[Seat, ...] | None:
    """Seat the workers on these nodes, the larger counts where they are fastest."""
    left = list(chosen)
    seats: list[Seat] = []
    for number, times in Counter(_even([c.room for c in chosen], workers)).items():
        able = [take(c, number, wish) for c in left if c.room >= number]
        fast = sorted((s for s in able if s is not None), key=lambda s: (-s.bandwidth, s.name))
        if len(fast) < times:
            return None
        seats += fast[:times]
        taken = {seat.name for seat in fast[:times]}
        left = [c for c in left if c.name not in taken]
    return tuple(sorted(seats, key=lambda seat: seat.name))


def _worth(seats: Sequence[Seat]) -> Worth:
    """Return what is compared between seatings on equally many nodes; the least is best."""
    worst = min((s.bandwidth for s in seats if s.mask.bit_count() > 1), default=0.0)
    near = sum(int(s.candidate.table.near[s.mask]) for s in seats)
    return (
        sorted((s.workers for s in seats), reverse=True),
        -worst,
        len({s.mask for s in seats}),
        -near,
        round(sum(s.damage for s in seats), 6),
        [s.name for s in seats],
    )


def _greedy(nodes: Sequence[Candidate], workers: int, count: int, wish: Wish) -> list[Candidate]:
    """Return nodes for the most even counts, the fastest and then the most alike first."""
    rooms = sorted((c.room for c in nodes), reverse=True)[:count]
    left = list(nodes)
    chosen: list[Candidate] = []
    for number, times in Counter(_even(rooms, workers)).items():
        able = [s for c in left if c.room >= number and (s := take(c, number, wish)) is not None]
        picked = _alike(able, times)
        chosen += [seat.candidate for seat in picked]
        taken = {seat.name for seat in picked}
        left = [c for c in left if c.name not in taken]
    return chosen


def _alike(seats: list[Seat], times: int) -> list[Seat]:
    """Return so many seats with the best worst A, on the same GPU positions where possible."""
    if len(seats) < times:
        return seats
    enough = sorted((s.bandwidth for s in seats), reverse=True)[times - 1]
    fast = [s for s in seats if s.bandwidth >= enough]
    common = Counter(s.mask for s in fast)

    def order(seat: Seat) -> Worth:
        near = int(seat.candidate.table.near[seat.mask])
        return (-common[seat.mask], seat.mask, -near, seat.damage, seat.name)

    return sorted(fast, key=order)[:times]
