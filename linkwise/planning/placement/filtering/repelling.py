"""The anti-affinity terms of all pods on nodes, which keep other pods away from them.

Their number is bounded, and namespaces share the bounds: a namespace with few terms has all of
them compared, however many another one has. What is beyond is left to kube-scheduler.
"""

from collections.abc import Iterable, Mapping
from functools import partial
from typing import NamedTuple, TypeAlias

import numpy as np

from linkwise.cluster.account.node_ledger import NodeLedger
from linkwise.cluster.requests.neighbors.rules import PodTerm
from linkwise.planning.placement.state.node_cache import Value
from linkwise.planning.placement.state.node_columns import Ints
from linkwise.planning.placement.state.snapshot import Snapshot

NODE_TERMS_MAX = 64
"""Different terms of the pods of one node that are compared with a pod."""
NAMESPACE_TERMS_MAX = 128
"""Different terms of the pods of one namespace."""
TERMS_MAX = 1_024
"""Different terms of all pods."""


class _Owned(NamedTuple):
    """A term of a pod."""

    namespace: str
    """That of the pod."""
    term: PodTerm


_Terms: TypeAlias = Mapping[int, _Owned]
"""By hash. Texts have a random hash in each process, so that nobody can choose equal ones."""


class Repelling(NamedTuple):
    """The anti-affinity terms of all pods."""

    place: Ints
    """By node: the number of its set of terms."""
    sets: dict[PodTerm, list[int]]
    """By term: the numbers of the sets that have it."""
    keys: frozenset[str]
    """The labels of pods that the terms read."""


def repelling_of(snapshot: Snapshot) -> Repelling | None:
    """Return the anti-affinity terms of all pods; None: there are none.

    Raises:
        DeadlineExceeded: The time is over; it is checked before each node, and each set of terms.

    Cost: 0.1 ms for 5,000 nodes that are the same; else 1 µs for each term of a pod on a node that
    changed, and 0.5 µs for each of at most `NODE_TERMS_MAX` terms of each different set.
    """
    known = snapshot.cache.kept

    def compute(node: NodeLedger) -> Value:
        terms = _terms_on(node)
        if not terms:
            return (0,)
        number = hash(frozenset(terms)) or 1
        known[number] = terms
        return (number,)

    values = snapshot.cache.get_or_compute("repelling", snapshot.nodes, compute, np.int64)
    if not values.any():
        return None
    return snapshot.cache.derived("repelling", values, partial(_by_term, snapshot, values[0]))


def _terms_on(node: NodeLedger) -> _Terms:
    """Return the terms of the pods of a node."""
    found: dict[int, _Owned] = {}
    for held in node.holdings.values():
        for term in held.neighbor.repels:
            owned = _Owned(held.neighbor.namespace, term)
            found.setdefault(hash(owned), owned)
    return _shared(found, NODE_TERMS_MAX, NODE_TERMS_MAX)


def _by_term(snapshot: Snapshot, column: Ints) -> Repelling:
    numbers, rows, place = np.unique(column, return_index=True, return_inverse=True)
    sets = _sets(snapshot, numbers, rows)
    every: dict[int, _Owned] = {}
    for terms in sets:
        every.update(terms)
    compared = _shared(every, TERMS_MAX, NAMESPACE_TERMS_MAX)
    found: dict[int, list[int]] = {number: [] for number in compared}
    for index, terms in enumerate(sets):
        snapshot.cache.check_deadline()
        for number in terms.keys() & found.keys():
            found[number].append(index)
    by_term: dict[PodTerm, list[int]] = {}
    for number, indices in found.items():
        by_term.setdefault(compared[number].term, []).extend(indices)
    keys = frozenset[str]().union(*(term.pods.selector.keys for term in by_term))
    return Repelling(place, by_term, keys)


def _sets(snapshot: Snapshot, numbers: Ints, rows: Ints) -> list[_Terms]:
    """Return the terms of each number; those of numbers that no node has any more are dropped.

    Args:
        snapshot: The nodes.
        numbers: Different ones.
        rows: A node with each.
    """
    known, listed = snapshot.cache.kept, numbers.tolist()
    for number in known.keys() - set(listed):
        del known[number]
    sets: list[_Terms] = []
    for number, row in zip(listed, rows.tolist(), strict=True):
        snapshot.cache.check_deadline()
        if number and number not in known:
            known[number] = _terms_on(snapshot.nodes[row])
        sets.append(known[number] if number else {})
    return sets


def _shared(terms: _Terms, most: int, most_of_one: int) -> _Terms:
    """Return as many terms as are compared: namespaces with few of them have all of theirs.

    Args:
        terms: Different ones.
        most: Of all namespaces.
        most_of_one: Of one namespace.
    """
    if len(terms) <= min(most, most_of_one):
        return terms
    of: dict[str, list[int]] = {}
    for number, owned in terms.items():
        own = of.setdefault(owned.namespace, [])
        if len(own) < most_of_one:
            own.append(number)
    taken: list[int] = []
    for left, own in zip(range(len(of), 0, -1), _shortest_first(of.values()), strict=True):
        taken += own[: -(-(most - len(taken)) // left)]
    return {number: terms[number] for number in taken}


def _shortest_first(lists: Iterable[list[int]]) -> list[list[int]]:
    return sorted(lists, key=len)
