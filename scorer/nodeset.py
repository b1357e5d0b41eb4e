"""Which set of nodes takes a gang that no single node can.

In this order: fewest nodes; the nearest common network domain; the most even split, counted in
workers; the best worst node; the same GPU positions on every node (rails), and GPUs near a NIC; the
least damage to what stays free; names. A worker is never split over nodes.

Few enough sets of nodes are all tried; nodes alike in machine and free GPUs differ by name only.
Beyond `EXACT`, the same rules pick nodes one after another, and the answer says so.
"""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby
from math import inf
from typing import NamedTuple

from scorer.seat import Offer, Seat, Wish, offer
from scorer.snapshot import Snapshot
from scorer.stock import Kind, Stock, candidate

EXACT = 10_000
"""Nodes in all sets of nodes that are tried, as in 4 950 pairs of 100 nodes: about 50 ms."""

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


class Option(NamedTuple):
    """Nodes alike that can take a number of workers, and what each would give."""

    at: int
    """Which kind of the domain's it is."""
    kind: Kind
    workers: int
    offer: Offer


class Pick(NamedTuple):
    """Some of the nodes of an option."""

    option: Option
    rows: list[int]
    """Places in `snapshot.nodes`."""


Picks = tuple[Pick, ...]
Ways = list[tuple[int, list[Option]]]
"""How many nodes take a number of workers, and the nodes that can; larger numbers first."""


def best_seating(
    stock: Stock, workers: int, each: int, wish: Wish, domains: Sequence[str]
) -> Seating | None:
    """Return the best set of nodes for a gang, or None where all together are too small.

    Args:
        stock: Nodes that can take at least one worker, and any number up to their room.
        workers: How many workers, at least 2.
        each: GPUs of each worker.
        wish: What is asked of the GPUs.
        domains: Labels of network domains, nearest first.

    Cost: 50 ms for 256 workers on 1 000 nodes.
    """
    count = stock.fewest(workers)
    if count is None:
        return None
    # Without a label all candidates are one domain, so that there is an option at last.
    options = next(
        options
        for label in (*domains, None)
        if (
            options := [
                (domain, _ways(nodes, workers, count, each, wish))
                for domain, nodes in stock.domains(label, workers)
                if nodes.fewest(workers) == count
            ]
        )
    )
    every = _every(options, EXACT // count)
    exact = every is not None
    if every is None:
        every = [(_greedy(ways), domain) for domain, ways in options]
    worth = [_worth(picks) for picks, _ in every]
    least = min(worth)
    ties = (one for one, found in zip(every, worth, strict=True) if found == least)
    picks, domain = min(ties, key=_rows)
    return Seating(_seats(stock.snapshot, picks), domain, exact)


def _rows(found: tuple[Picks, str | None]) -> list[int]:
    """Return the nodes of a seating, by name."""
    return sorted(row for pick in found[0] for row in pick.rows)


def _seats(snapshot: Snapshot, picks: Picks) -> tuple[Seat, ...]:
    """Return the seats of what was picked, by node name."""
    found = sorted(((row, pick.option) for pick in picks for row in pick.rows), key=_row)
    return tuple(
        Seat(candidate(snapshot, row, one.kind.room), one.workers, one.offer.mask)
        for row, one in found
    )


def _ways(nodes: Stock, workers: int, count: int, each: int, wish: Wish) -> Ways:
    """Return which nodes can take which part of the most even split over `count` of them.

    The roomiest nodes allow the most even split that any do, so every set of nodes that allows it
    is made of nodes for its numbers.
    """
    numbers = _even(sorted(nodes.room.tolist())[-count:], workers)
    kinds = nodes.roomy(numbers[-1]).kinds()
    ways: Ways = []
    for number, times in Counter(numbers).items():
        options = [
            Option(at, kind, number, given)
            for at, kind in enumerate(kinds)
            if kind.room >= number
            and (given := offer(kind.table, kind.free, (each,) * number, wish)) is not None
        ]
        ways.append((times, options))
    return ways


def _even(rooms: Sequence[int], workers: int) -> list[int]:
    """Return the most even counts of workers that these ascending rooms allow, largest first."""
    counts: list[int] = []
    for index, room in enumerate(rooms):
        share = workers // (len(rooms) - index)
        counts.append(min(room, share))
        workers -= counts[-1]
    return sorted(counts, reverse=True)


def _every(
    options: Sequence[tuple[str | None, Ways]], most: int
) -> list[tuple[Picks, str | None]] | None:
    """Return every seating that differs in more than names; None where there are more."""
    found: list[tuple[Picks, str | None]] = []
    for domain, ways in options:
        here = _all(ways, {}, most - len(found))
        if here is None:
            return None
        found += ((picks, domain) for picks in here)
    return found


def _all(ways: Ways, taken: Mapping[int, int], most: int) -> list[Picks] | None:
    """Return every seating of one domain, larger parts on first names first; None: there are more.

    Args:
        ways: What is still to be seated.
        taken: How many nodes of each kind are taken.
        most: How many seatings at most.
    """
    if not ways:
        return [()]
    (times, options), *rest = ways
    options = sorted(
        (one for one in options if len(one.kind.rows) > taken.get(one.at, 0)),
        key=lambda one: one.kind.rows[taken.get(one.at, 0)],
    )
    left = [len(one.kind.rows) - taken.get(one.at, 0) for one in options]
    # Each of them can be gone on with: the nodes for larger numbers take smaller ones, too.
    if _number(left, times, most) > most:
        return None
    found: list[Picks] = []
    for chosen in _distinct(left, times):
        picks = _picks(options, taken, chosen)
        others = _all(rest, _more(taken, picks), most - len(found)) if rest else [()]
        if others is None or len(others) > most - len(found):
            return None
        found += ((*picks, *other) for other in others)
    return found


def _picks(
    options: Sequence[Option], taken: Mapping[int, int], chosen: Iterable[tuple[int, int]]
) -> Picks:
    """Return the next nodes by name of each option, so many as are chosen."""
    found: list[Pick] = []
    for i, number in chosen:
        option = options[i]
        start = taken.get(option.at, 0)
        found.append(Pick(option, option.kind.rows[start : start + number]))
    return tuple(found)


def _more(taken: Mapping[int, int], picks: Picks) -> dict[int, int]:
    more = dict(taken)
    for pick in picks:
        more[pick.option.at] = more.get(pick.option.at, 0) + len(pick.rows)
    return more


def _number(left: Sequence[int], times: int, most: int) -> int:
    """Return in how many ways so many nodes can be chosen; any number above `most` if in more."""
    ways = [1] + [0] * times
    for number in left:
        ways = [sum(ways[max(0, t - number) : t + 1]) for t in range(times + 1)]
        if ways[times] > most:
            break
    return ways[times]


def _distinct(
    left: Sequence[int], times: int, start: int = 0
) -> Iterator[tuple[tuple[int, int], ...]]:
    """Yield every choice of so many nodes, as how many of which kinds."""
    if not times:
        yield ()
        return
    others = sum(left[start:])
    for i in range(start, len(left)):
        others -= left[i]
        for number in range(min(left[i], times), max(times - others, 1) - 1, -1):
            for rest in _distinct(left, times - number, i + 1):
                yield ((i, number), *rest)


def _worth(picks: Picks) -> Worth:
    """Return what is compared between seatings on equally many nodes, but names; least is best."""
    workers: list[int] = []
    masks: set[int] = set()
    worst, near, damage = inf, 0, 0.0
    for (_, _, number, given), rows in picks:
        times = len(rows)
        # Larger numbers come first in the ways, and so in the picks.
        workers += [number] * times
        masks.add(given.mask)
        near += given.near * times
        damage += given.damage * times
        if given.mask.bit_count() > 1:
            worst = min(worst, given.bandwidth)
    # Each damage is rounded to a millionth, so that sums that are equal differ by some of them.
    return workers, -worst if worst < inf else 0.0, len(masks), -near, round(damage, 5)


def _greedy(ways: Ways) -> Picks:
    """Return nodes, larger numbers of workers first: the fastest, then the most alike."""
    chosen: Picks = ()
    taken: dict[int, int] = {}
    for times, options in ways:
        picks = _alike(options, taken, times)
        taken = _more(taken, picks)
        chosen += picks
    return chosen


def _alike(options: Sequence[Option], taken: Mapping[int, int], times: int) -> Picks:
    """Return so many nodes with the best worst A, on the same GPU positions where possible."""
    left = [(one, one.kind.rows[taken.get(one.at, 0) :]) for one in options]
    speeds = sorted(one.offer.bandwidth for one, rows in left for _ in rows[:times])
    fast = [(one, rows) for one, rows in left if rows and one.offer.bandwidth >= speeds[-times]]
    common: Counter[int] = Counter()
    for one, rows in fast:
        common[one.offer.mask] += len(rows)

    def order(of: tuple[Option, list[int]]) -> Worth:
        given = of[0].offer
        return -common[given.mask], given.mask, -given.near, given.damage

    chosen: list[tuple[int, Option]] = []
    for _, equal in groupby(sorted(fast, key=order), key=order):
        missing = times - len(chosen)
        chosen += sorted(((row, one) for one, rows in equal for row in rows[:missing]), key=_row)[
            :missing
        ]
        if len(chosen) == times:
            break
    return tuple(Pick(one, [row]) for row, one in chosen)


def _row(of: tuple[int, Option]) -> int:
    return of[0]
