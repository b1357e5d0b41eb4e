"""Which set of nodes takes a gang that no single node can.

In this order: fewest nodes; the nearest common network domain; the most even split, counted in
workers; the best worst node; the same GPU positions on every node (rails), and GPUs near a NIC; the
least damage to what stays free; names. A worker is never split over nodes.

Few enough sets of nodes are all tried; nodes alike in machine and free GPUs differ by name only.
Beyond `EXACT`, the same rules pick nodes one after another, and the answer says so.
"""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from math import inf
from operator import itemgetter

from scorer.placement.candidates import CandidateNodes, candidate
from scorer.placement.node_assignment import NodeAssignment, SelectionOptions, offer
from scorer.placement.node_sets import NodeSets, Option, Ways, enumerate_sets, greedy_set
from scorer.placement.snapshot import Snapshot

EXACT = 10_000
"""Nodes in all sets of nodes that are tried, as in 4 950 pairs of 100 nodes: about 50 ms."""

Worth = tuple[object, ...]


@dataclass(frozen=True, slots=True)
class MultiNodeAssignment:
    """A gang over several nodes."""

    seats: tuple[NodeAssignment, ...]
    """By node name."""
    domain: str | None
    """`label=value` of the nearest network domain that all nodes share, or None."""
    exact: bool
    """No other set of nodes is better; else only the rules were followed greedily."""


def best_assignment(
    stock: CandidateNodes, workers: int, each: int, wish: SelectionOptions, domains: Sequence[str]
) -> MultiNodeAssignment | None:
    """Return the best set of nodes for a gang, or None where all together are too small.

    Args:
        stock: Nodes that can take at least one worker, and any number up to their room.
        workers: How many workers, at least 2.
        each: GPUs of each worker.
        wish: What is asked of the GPUs.
        domains: Labels of network domains, nearest first.

    Cost: a few ms for 8 workers on 5 000 nodes or 256 on 1 000; 50 ms where `EXACT` is reached.
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
    tried = enumerate_sets(options, EXACT // count)
    exact = tried is not None
    if tried is None:
        tried = [(greedy_set(ways), domain) for domain, ways in options]
    worth = [_worth(picks) for picks, _ in tried]
    least = min(worth)
    ties = (one for one, found in zip(tried, worth, strict=True) if found == least)
    picks, domain = min(ties, key=_rows)
    return MultiNodeAssignment(_seats(stock.snapshot, picks), domain, exact)


def _rows(found: tuple[NodeSets, str | None]) -> list[int]:
    """Return the nodes of a seating, by name."""
    return sorted(row for pick in found[0] for row in pick.rows)


def _seats(snapshot: Snapshot, picks: NodeSets) -> tuple[NodeAssignment, ...]:
    """Return the seats of what was picked, by node name."""
    found = sorted(((row, pick.option) for pick in picks for row in pick.rows), key=itemgetter(0))
    return tuple(
        NodeAssignment(candidate(snapshot, row, one.kind.room), one.workers, one.offer.mask)
        for row, one in found
    )


def _ways(
    nodes: CandidateNodes, workers: int, count: int, each: int, wish: SelectionOptions
) -> Ways:
    """Return which nodes can take which part of the most even split over `count` of them.

    The roomiest nodes allow the most even split that any do, so every set of nodes that allows it
    is made of nodes for its numbers.
    """
    numbers = _even(sorted(nodes.room.tolist())[-count:], workers)
    kinds = nodes.roomy(numbers[-1]).classes()
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


def _worth(picks: NodeSets) -> Worth:
    """Return what is compared between seatings on equally many nodes, but names; least is best."""
    workers: list[int] = []
    masks: set[int] = set()
    worst, near, damage = inf, 0, 0.0
    for option, rows in picks:
        given, times = option.offer, len(rows)
        # Larger numbers come first in the ways, and so in the picks.
        workers += [option.workers] * times
        masks.add(given.mask)
        near += given.near * times
        damage += given.damage * times
        worst = min(worst, option.speed)
    # Each damage is rounded to a millionth, so that sums that are equal differ by some of them.
    return workers, -worst if worst < inf else 0.0, len(masks), -near, round(damage, 5)
