"""Choose the set of nodes for a gang.

In this order: fewest nodes; the nearest common network domain; then a ranking. A worker is never
split over nodes.

`most_even` ranks nodes where Linkwise chooses the GPUs: the most even split, counted in workers;
the best worst node; the same GPU positions on every node (rails), and GPUs near a NIC; the least
damage to what stays free; names. The other ranking is `by_count.tightest`.

All sets of nodes are tried where there are few enough; nodes with the same machine and free GPUs
differ by name only. Beyond `EXACT`, the same rules choose nodes one after another, and the result
is marked as not exact.
"""

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from math import inf
from operator import itemgetter

from linkwise.planning.placement.assignment.candidates import CandidateNodes, Domain
from linkwise.planning.placement.assignment.node_assignment import (
    CountedAssignment,
    NodeAssignment,
    SelectionOptions,
    select_gpus,
)
from linkwise.planning.placement.assignment.node_sets import (
    NodeSet,
    Option,
    Parts,
    enumerate_sets,
    greedy_set,
)
from linkwise.planning.placement.state.snapshot import Snapshot

EXACT = 10_000
"""Nodes in all sets of nodes that are tried, as in 4 950 pairs of 100 nodes: about 50 ms."""

Rank = tuple[object, ...]


@dataclass(frozen=True, slots=True)
class MultiNodeAssignment:
    """A gang over several nodes, or on one."""

    assignments: tuple[NodeAssignment | CountedAssignment, ...]
    """By node name."""
    domain: str | None
    """`label=value` of the nearest network domain that all nodes share, or None."""
    exact: bool
    """No other set of nodes is better, and A itself is exact; else the rules were followed
    greedily."""


Ranking = Callable[[list[Domain], int, int], MultiNodeAssignment]
"""Returns the best set of so many nodes for so many workers in one of some domains, in each of
which such a set exists. Its arguments: the domains, the workers, the nodes."""


def best_assignment(
    nodes: CandidateNodes, workers: int, ranking: Ranking, together: Sequence[str] = ()
) -> MultiNodeAssignment | None:
    """Return the best set of nodes for a gang, or None where all together are too small.

    Args:
        nodes: Nodes that fit at least one worker, and any number up to their capacity.
        workers: How many workers.
        ranking: How to choose among sets of equally many nodes in equally near domains.
        together: Labels of which all nodes of a set must have the same value.
    """
    parts = list(nodes.same(together, workers)) if together and len(nodes.rows) else [nodes]
    counts = [part.min_nodes(workers) for part in parts]
    count = min((each for each in counts if each is not None), default=None)
    if count is None:
        return None
    fewest = [part for part, each in zip(parts, counts, strict=True) if each == count]
    domains = [domain for part in fewest for domain in part.nearest_domains(workers, count)]
    near = [domain for domain in domains if domain[0] is not None]
    return ranking(near or domains, workers, count)


def most_even(
    domains: list[Domain], workers: int, count: int, *, each: int, options: SelectionOptions
) -> MultiNodeAssignment:
    """Return the best set of nodes where Linkwise chooses the GPUs; a `Ranking`.

    Args:
        domains: As in `Ranking`.
        workers: As in `Ranking`.
        count: As in `Ranking`.
        each: GPUs of each worker.
        options: How to select GPUs.

    Cost: a few ms for 8 workers on 5 000 nodes or 256 on 1 000; 50 ms where `EXACT` is reached.
    """
    parts_of = [(_parts(nodes, workers, count, each, options), domain) for domain, nodes in domains]
    tried = enumerate_sets(parts_of, EXACT // count)
    exact = tried is not None
    if tried is None:
        tried = [(greedy_set(parts), domain) for parts, domain in parts_of]
    ranks = [_rank(found) for found, _ in tried]
    best = min(ranks)
    ties = (pair for pair, rank in zip(tried, ranks, strict=True) if rank == best)
    chosen, domain = min(ties, key=_rows)
    assignments = _assignments(domains[0][1].snapshot, chosen)
    exact = exact and all(assignment.table.exact for assignment in assignments)
    return MultiNodeAssignment(assignments, domain, exact)


def _rows(pair: tuple[NodeSet, str | None]) -> list[int]:
    """Return the nodes of a set, by name."""
    return sorted(row for part in pair[0] for row in part.rows)


def _assignments(snapshot: Snapshot, chosen: NodeSet) -> tuple[NodeAssignment, ...]:
    """Return the assignments of a set of nodes, by node name."""
    rows = sorted(((row, part.option) for part in chosen for row in part.rows), key=itemgetter(0))
    return tuple(
        NodeAssignment(
            snapshot.nodes[row], option.nodes.table, option.selection.mask, option.workers
        )
        for row, option in rows
    )


def _parts(
    nodes: CandidateNodes, workers: int, count: int, each: int, options: SelectionOptions
) -> Parts:
    """Return the parts of the most even split over `count` nodes, and the options for each part.

    The nodes with the largest capacity allow the most even split of all, so every set of nodes that
    allows it consists of nodes for its parts.
    """
    sizes = _even(sorted(nodes.capacity.tolist())[-count:], workers)
    classes = nodes.where(nodes.capacity >= sizes[-1]).classes()
    parts: Parts = []
    for size, times in Counter(sizes).items():
        found = [
            Option(number, node_class, size, selection)
            for number, node_class in enumerate(classes)
            if node_class.capacity >= size
            and (
                selection := select_gpus(node_class.table, node_class.free, (each,) * size, options)
            )
        ]
        parts.append((times, found))
    return parts


def _even(capacities: Sequence[int], workers: int) -> list[int]:
    """Return the most even split of workers over ascending capacities, largest part first."""
    counts: list[int] = []
    for index, capacity in enumerate(capacities):
        share = workers // (len(capacities) - index)
        counts.append(min(capacity, share))
        workers -= counts[-1]
    return sorted(counts, reverse=True)


def _rank(nodes: NodeSet) -> Rank:
    """Return the key that orders sets of equally many nodes, without names; the least is best."""
    workers: list[int] = []
    masks: set[int] = set()
    worst, near, damage = inf, 0, 0.0
    for option, rows in nodes:
        selection, times = option.selection, len(rows)
        # Larger parts come first.
        workers += [option.workers] * times
        masks.add(selection.mask)
        near += selection.near * times
        damage += selection.damage * times
        worst = min(worst, option.speed)
    # Each damage is rounded to a millionth, so equal sums may differ by some millionths.
    return workers, -worst if worst < inf else 0.0, len(masks), -near, round(damage, 5)
