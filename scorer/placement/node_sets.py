"""Choices of nodes for the parts of a gang: all of them where they are few, else one by rule.

Nodes alike differ by name only, so that of each kind it matters how many are taken.
"""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import groupby
from math import inf
from operator import itemgetter
from typing import NamedTuple

from scorer.placement.candidates import NodeClass
from scorer.placement.node_assignment import Offer


class Option(NamedTuple):
    """Nodes alike that can take a number of workers, and what each would give."""

    at: int
    """Which kind of the domain's it is."""
    kind: NodeClass
    workers: int
    offer: Offer

    @property
    def speed(self) -> float:
        """A as far as it counts [GB/s]: one GPU is not slow."""
        return self.offer.bandwidth if self.offer.mask.bit_count() > 1 else inf


class NodeSet(NamedTuple):
    """Some of the nodes of an option."""

    option: Option
    rows: list[int]
    """Places in `snapshot.nodes`."""


NodeSets = tuple[NodeSet, ...]
Ways = list[tuple[int, list[Option]]]
"""How many nodes take a number of workers, and the nodes that can; larger numbers first."""


def enumerate_sets(
    options: Sequence[tuple[str | None, Ways]], most: int
) -> list[tuple[NodeSets, str | None]] | None:
    """Return the seatings among which the best one is; None where there are more than `most`.

    Of all that differ in more than names, some that are known to be slower are left out.
    """
    found: list[tuple[NodeSets, str | None]] = []
    for domain, ways in options:
        here = _all(ways, {}, inf, most)
        if here is None:
            return None
        found += ((picks, domain) for picks in here[0])
        most -= here[1]
    return found


def _all(
    ways: Ways, taken: Mapping[int, int], worst: float, most: int
) -> tuple[list[NodeSets], int] | None:
    """Return the seatings of one domain and how many there are; None where there are more.

    Larger parts on first names come first. Where the others are seated, only the nodes for the last
    part that keep the worst A as good as it can be are tried.

    Args:
        ways: What is still to be seated.
        taken: How many nodes of each kind are taken.
        worst: The worst A of those [GB/s].
        most: How many seatings at most.
    """
    (times, options), *rest = ways
    options = sorted(
        (one for one in options if len(one.kind.rows) > taken.get(one.at, 0)),
        key=lambda one: one.kind.rows[taken.get(one.at, 0)],
    )
    left = [len(one.kind.rows) - taken.get(one.at, 0) for one in options]
    # Each of them can be gone on with: the nodes for larger numbers take smaller ones, too.
    number = _number(left, times, most)
    if number > most:
        return None
    if not rest:
        pairs = zip(options, left, strict=True)
        speeds = sorted(one.speed for one, n in pairs for _ in range(min(n, times)))
        enough = min(worst, speeds[-times])
        options = [one for one in options if one.speed >= enough]
        left = [len(one.kind.rows) - taken.get(one.at, 0) for one in options]
        return [_picks(options, taken, chosen) for chosen in _distinct(left, times)], number
    found: list[NodeSets] = []
    number = 0
    for chosen in _distinct(left, times):
        picks = _picks(options, taken, chosen)
        slowest = min(worst, *(pick.option.speed for pick in picks))
        others = _all(rest, _more(taken, picks), slowest, most - number)
        if others is None:
            return None
        found += ((*picks, *other) for other in others[0])
        number += others[1]
    return found, number


def _picks(
    options: Sequence[Option], taken: Mapping[int, int], chosen: Iterable[tuple[int, int]]
) -> NodeSets:
    """Return the next nodes by name of each option, so many as are chosen."""
    found: list[NodeSet] = []
    for i, number in chosen:
        option = options[i]
        start = taken.get(option.at, 0)
        found.append(NodeSet(option, option.kind.rows[start : start + number]))
    return tuple(found)


def _more(taken: Mapping[int, int], picks: NodeSets) -> dict[int, int]:
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


def greedy_set(ways: Ways) -> NodeSets:
    """Return nodes, larger numbers of workers first: the fastest, then the most alike."""
    chosen: NodeSets = ()
    taken: dict[int, int] = {}
    for times, options in ways:
        picks = _alike(options, taken, times)
        taken = _more(taken, picks)
        chosen += picks
    return chosen


def _alike(options: Sequence[Option], taken: Mapping[int, int], times: int) -> NodeSets:
    """Return so many nodes with the best worst A, on the same GPU positions where possible."""
    left = [(one, one.kind.rows[taken.get(one.at, 0) :]) for one in options]
    speeds = sorted(one.offer.bandwidth for one, rows in left for _ in rows[:times])
    fast = [(one, rows) for one, rows in left if rows and one.offer.bandwidth >= speeds[-times]]
    common: Counter[int] = Counter()
    for one, rows in fast:
        common[one.offer.mask] += len(rows)

    def order(of: tuple[Option, list[int]]) -> tuple[int, int, int, float]:
        given = of[0].offer
        return -common[given.mask], given.mask, -given.near, given.damage

    chosen: list[tuple[int, Option]] = []
    for _, equal in groupby(sorted(fast, key=order), key=order):
        missing = times - len(chosen)
        chosen += sorted(
            ((row, one) for one, rows in equal for row in rows[:missing]), key=itemgetter(0)
        )[:missing]
        if len(chosen) == times:
            break
    return tuple(NodeSet(one, [row]) for row, one in chosen)
