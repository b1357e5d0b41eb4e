"""Sets of nodes for the parts of a gang: every set where there are few, else one by rule.

Nodes of a class differ by name only, so only the number of nodes taken of each class matters.
"""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import groupby
from math import inf
from operator import itemgetter
from typing import NamedTuple

from linkwise.planning.placement.assignment.candidates import NodeClass
from linkwise.planning.placement.assignment.node_assignment import Selection


class Option(NamedTuple):
    """Nodes of one class that fit a number of workers, and the GPUs selected on each of them."""

    number: int
    """The place of the class in its domain."""
    nodes: NodeClass
    workers: int
    selection: Selection

    @property
    def speed(self) -> float:
        """A [GB/s]; infinite for one GPU, which limits nothing."""
        return self.selection.bandwidth if self.selection.mask.bit_count() > 1 else inf


class OptionNodes(NamedTuple):
    """Some of the nodes of an option."""

    option: Option
    rows: list[int]
    """Indices in `snapshot.nodes`."""


NodeSet = tuple[OptionNodes, ...]
"""Nodes for all parts of a gang."""
Parts = list[tuple[int, list[Option]]]
"""The number of nodes for parts of equal size, and the options for them; larger parts first."""


def enumerate_sets(
    domains: Sequence[tuple[Parts, str | None]], most: int
) -> list[tuple[NodeSet, str | None]] | None:
    """Return node sets that include the best one; None where there are more than `most`.

    Of all sets that differ in more than names, some that are known to be slower are left out.
    """
    found: list[tuple[NodeSet, str | None]] = []
    for parts, domain in domains:
        here = _enumerate(parts, {}, inf, most)
        if here is None:
            return None
        found += ((nodes, domain) for nodes in here[0])
        most -= here[1]
    return found


def _enumerate(
    parts: Parts, taken: Mapping[int, int], worst: float, most: int
) -> tuple[list[NodeSet], int] | None:
    """Return the node sets of one domain and their number; None where there are more than `most`.

    Larger parts take first names. For the last part only those nodes are tried that keep the worst
    A as good as possible.

    Args:
        parts: The parts that have no nodes yet.
        taken: How many nodes of each class are taken.
        worst: The worst A of those [GB/s].
        most: The limit.
    """
    (times, options), *rest = parts
    # Nodes of a class for larger parts are not free for smaller ones. Those that are left are equal
    # but for their names, so they are taken by name, and an option is named by the next one.
    options = sorted(
        (option for option in options if _left(option, taken)),
        key=lambda option: option.nodes.rows[taken.get(option.number, 0)],
    )
    left = [_left(option, taken) for option in options]
    # Each choice can be completed: the nodes for larger parts fit smaller ones, too.
    number = _count(left, times, most)
    if number > most:
        return None
    if not rest:
        # All sets split the workers alike, so the worst A ranks them first. No nodes for this part
        # have a better worst A than the fastest ones, and none raise that of the larger parts.
        pairs = zip(options, left, strict=True)
        speeds = sorted(option.speed for option, n in pairs for _ in range(min(n, times)))
        enough = min(worst, speeds[-times])
        options = [option for option in options if option.speed >= enough]
        left = [_left(option, taken) for option in options]
        return [_nodes(options, taken, chosen) for chosen in _choices(left, times)], number
    found: list[NodeSet] = []
    number = 0
    for chosen in _choices(left, times):
        nodes = _nodes(options, taken, chosen)
        slowest = min(worst, *(part.option.speed for part in nodes))
        others = _enumerate(rest, _more(taken, nodes), slowest, most - number)
        if others is None:
            return None
        found += ((*nodes, *other) for other in others[0])
        number += others[1]
    return found, number


def _left(option: Option, taken: Mapping[int, int]) -> int:
    return len(option.nodes.rows) - taken.get(option.number, 0)


def _nodes(
    options: Sequence[Option], taken: Mapping[int, int], chosen: Iterable[tuple[int, int]]
) -> NodeSet:
    """Return the next nodes by name of each option, as many as are chosen."""
    found: list[OptionNodes] = []
    for i, number in chosen:
        option = options[i]
        start = taken.get(option.number, 0)
        found.append(OptionNodes(option, option.nodes.rows[start : start + number]))
    return tuple(found)


def _more(taken: Mapping[int, int], nodes: NodeSet) -> dict[int, int]:
    more = dict(taken)
    for part in nodes:
        more[part.option.number] = more.get(part.option.number, 0) + len(part.rows)
    return more


def _count(left: Sequence[int], times: int, most: int) -> int:
    """Return in how many ways so many nodes can be chosen; any number above `most` if in more."""
    # ways[t]: the choices of t nodes among the options so far. Another option only adds choices.
    ways = [1] + [0] * times
    for number in left:
        ways = [sum(ways[max(0, t - number) : t + 1]) for t in range(times + 1)]
        if ways[times] > most:
            break
    return ways[times]


def _choices(
    left: Sequence[int], times: int, start: int = 0
) -> Iterator[tuple[tuple[int, int], ...]]:
    """Yield every choice of so many nodes, as the number of nodes of each option."""
    if not times:
        yield ()
        return
    others = sum(left[start:])
    for i in range(start, len(left)):
        others -= left[i]
        # The options after this one have `others` nodes: it gives at least what these lack, so that
        # no branch ends without a choice.
        for number in range(min(left[i], times), max(times - others, 1) - 1, -1):
            for rest in _choices(left, times - number, i + 1):
                yield ((i, number), *rest)


def greedy_set(parts: Parts) -> NodeSet:
    """Return nodes for larger parts first: the fastest, then the most alike."""
    chosen: NodeSet = ()
    taken: dict[int, int] = {}
    for times, options in parts:
        nodes = _alike(options, taken, times)
        taken = _more(taken, nodes)
        chosen += nodes
    return chosen


def _alike(options: Sequence[Option], taken: Mapping[int, int], times: int) -> NodeSet:
    """Return so many nodes with the best worst A, on the same GPU positions where possible."""
    left = [(option, option.nodes.rows[taken.get(option.number, 0) :]) for option in options]
    # The best worst A of so many nodes is that of the last among the fastest.
    speeds = sorted(option.selection.bandwidth for option, rows in left for _ in rows[:times])
    fast = [
        (option, rows)
        for option, rows in left
        if rows and option.selection.bandwidth >= speeds[-times]
    ]
    common: Counter[int] = Counter()
    for option, rows in fast:
        common[option.selection.mask] += len(rows)

    def order(pair: tuple[Option, list[int]]) -> tuple[int, int, int, float]:
        selection = pair[0].selection
        return -common[selection.mask], selection.mask, -selection.near, selection.damage

    chosen: list[tuple[int, Option]] = []
    for _, equal in groupby(sorted(fast, key=order), key=order):
        missing = times - len(chosen)
        chosen += sorted(
            ((row, option) for option, rows in equal for row in rows[:missing]), key=itemgetter(0)
        )[:missing]
        if len(chosen) == times:
            break
    return tuple(OptionNodes(option, [row]) for row, option in chosen)
