"""Which set of nodes takes a gang that no single node can.

In this order: fewest nodes; the nearest common network domain; the most even split, counted in
workers; the best worst node; the same GPU positions on every node (rails), and GPUs near a NIC; the
least damage to what stays free; names. A worker is never split over nodes.

Few enough sets of nodes are all tried; nodes alike in machine and free GPUs differ by name only.
Beyond `EXACT`, the same rules pick nodes one after another, and the answer says so.
"""

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import islice

from scorer.seat import Candidate, Seat, Wish, take

EXACT = 10_000
"""Nodes in all sets of nodes that are tried, as in 4 950 pairs of 100 nodes: about 50 ms."""

Worth = tuple[object, ...]
Ways = list[tuple[int, list[Seat]]]
"""How many nodes take a number of workers, and the nodes that can; larger numbers first."""


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
    candidates: Sequence[Candidate],
    workers: int,
    each: int,
    wish: Wish,
    domains: Sequence[str],
) -> Seating | None:
    """Return the best set of nodes for a gang, or None where all together are too small.

    Args:
        candidates: Nodes that can take at least one worker, and any number up to their room.
        workers: How many workers, at least 2.
        each: GPUs of each worker.
        wish: What is asked of the GPUs.
        domains: Labels of network domains, nearest first.

    Cost: 50 ms for 256 workers on 1 000 nodes.
    """
    count = _fewest(candidates, workers)
    if count is None:
        return None
    candidates = sorted(candidates, key=lambda c: c.name)
    # Without a label all candidates are one domain, so that there is an option at last.
    options = next(
        options
        for label in (*domains, None)
        if (
            options := [
                (domain, _ways(nodes, workers, count, each, wish))
                for domain, nodes in _domains(candidates, label)
                if _fewest(nodes, workers) == count
            ]
        )
    )
    every = ((seats, domain) for domain, ways in options for seats in _every(ways))
    seatings = list(islice(every, EXACT // count + 1))
    exact = len(seatings) * count <= EXACT
    if not exact:
        seatings = [(_greedy(ways), domain) for domain, ways in options]
    seats, domain = min(seatings, key=lambda one: _worth(one[0]))
    return Seating(tuple(sorted(seats, key=lambda seat: seat.name)), domain, exact)


def _fewest(candidates: Iterable[Candidate], workers: int) -> int | None:
    """Return how many nodes are needed at least, or None where all are too few."""
    for count, room in enumerate(sorted((c.room for c in candidates), reverse=True), start=1):
        workers -= room
        if workers <= 0:
            return count
    return None


def _domains(
    candidates: Sequence[Candidate], label: str | None
) -> Iterator[tuple[str | None, Sequence[Candidate]]]:
    """Yield the candidates of each network domain; all of them for no label."""
    if label is None:
        yield None, candidates
        return
    by_value: dict[str, list[Candidate]] = {}
    for candidate in candidates:
        value = candidate.node.node.labels.get(label)
        if value is not None:
            by_value.setdefault(value, []).append(candidate)
    for value in sorted(by_value):
        yield f"{label}={value}", by_value[value]


def _ways(nodes: Sequence[Candidate], workers: int, count: int, each: int, wish: Wish) -> Ways:
    """Return which nodes can take which part of the most even split over `count` of them.

    The roomiest nodes allow the most even split that any do, so every set of nodes that allows it
    is made of nodes for its numbers.
    """
    rooms = sorted((c.room for c in nodes), reverse=True)[:count]
    ways: Ways = []
    for number, times in Counter(_even(rooms, workers)).items():
        seats = (take(c, (each,) * number, wish) for c in nodes if c.room >= number)
        ways.append((times, [seat for seat in seats if seat is not None]))
    return ways


def _even(rooms: Sequence[int], workers: int) -> list[int]:
    """Return the most even counts of workers that these rooms allow, largest first."""
    counts: list[int] = []
    ascending = sorted(rooms)
    for index, room in enumerate(ascending):
        share = workers // (len(ascending) - index)
        counts.append(min(room, share))
        workers -= counts[-1]
    return sorted(counts, reverse=True)


def _every(ways: Ways, taken: frozenset[str] = frozenset()) -> Iterator[tuple[Seat, ...]]:
    """Yield every seating that differs in more than names."""
    if not ways:
        yield ()
        return
    (times, seats), *rest = ways
    kinds: dict[object, list[Seat]] = {}
    for seat in seats:
        if seat.name not in taken:
            of = seat.candidate
            kinds.setdefault((of.table, of.node.free_mask, of.room), []).append(seat)
    spare = sum(map(len, kinds.values())) - times
    for chosen in _distinct(list(kinds.values()), times, spare):
        for others in _every(rest, taken | {seat.name for seat in chosen}):
            yield (*chosen, *others)


def _distinct(
    kinds: Sequence[Sequence[Seat]], times: int, spare: int
) -> Iterator[tuple[Seat, ...]]:
    """Yield every choice of so many seats, of alike ones the first; `spare` of all stay out."""
    if not times:
        yield ()
        return
    first, *rest = kinds
    for number in range(min(len(first), times), max(len(first) - spare, 0) - 1, -1):
        for others in _distinct(rest, times - number, spare - len(first) + number):
            yield (*first[:number], *others)


def _worth(seats: Sequence[Seat]) -> Worth:
    """Return what is compared between seatings on equally many nodes; the least is best."""
    worst = min((s.bandwidth for s in seats if s.mask.bit_count() > 1), default=0.0)
    return (
        sorted((s.workers for s in seats), reverse=True),
        -worst,
        len({s.mask for s in seats}),
        -sum(s.near for s in seats),
        # Each is rounded to a millionth, so that sums that are equal differ by some of them.
        round(sum(s.damage for s in seats), 5),
        sorted(s.name for s in seats),
    )


def _greedy(ways: Ways) -> tuple[Seat, ...]:
    """Return seats, larger numbers of workers first: the fastest, then the most alike."""
    chosen: list[Seat] = []
    for times, seats in ways:
        taken = {seat.name for seat in chosen}
        chosen += _alike([seat for seat in seats if seat.name not in taken], times)
    return tuple(chosen)


def _alike(seats: Sequence[Seat], times: int) -> list[Seat]:
    """Return so many seats with the best worst A, on the same GPU positions where possible."""
    enough = sorted((s.bandwidth for s in seats), reverse=True)[times - 1]
    fast = [s for s in seats if s.bandwidth >= enough]
    common = Counter(s.mask for s in fast)

    def order(seat: Seat) -> Worth:
        return (-common[seat.mask], seat.mask, -seat.near, seat.damage, seat.name)

    return sorted(fast, key=order)[:times]
