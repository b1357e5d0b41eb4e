"""Compare the volumes of a group with all nodes together.

A column is computed only for labels, drivers and classes that the volumes of a waiting pod name.
"""

from collections import Counter
from collections.abc import Callable, Hashable, Iterator, Mapping

import numpy as np
from numpy.typing import NDArray

from linkwise.cluster.account.node_ledger import NodeLedger
from linkwise.cluster.objects.affinity import NodeSelectorTerm, Requirement
from linkwise.cluster.volumes.free_volumes import Candidates
from linkwise.cluster.volumes.node_choice import NodeChoice
from linkwise.cluster.volumes.pod_volumes import Binding, PodVolumes
from linkwise.cluster.volumes.volume import Attachment
from linkwise.planning.placement.filtering.reasons import Reason
from linkwise.planning.placement.pods.group import Group
from linkwise.planning.placement.state.node_cache import Value
from linkwise.planning.placement.state.node_columns import Ints, labels
from linkwise.planning.placement.state.snapshot import Snapshot

_UNLIMITED = 1 << 32
"""More volumes than any node has."""
_BY_LABEL = frozenset({"In", "NotIn", "Exists", "DoesNotExist"})

_Bools = NDArray[np.bool_]


def choices_of(group: Group) -> Iterator[tuple[NodeChoice, Reason]]:
    """Yield each choice of nodes of the claims and volumes of a group once, with its reason."""
    claimed = (place for member in group.representatives for place in member.claim_places)
    yield from ((choice, Reason.CLAIMED) for choice in dict.fromkeys(claimed))
    placed = (choice for volumes in group.volumes for choice in volumes.choices)
    yield from ((choice, Reason.VOLUME) for choice in dict.fromkeys(placed))


def satisfying(snapshot: Snapshot, choice: NodeChoice) -> _Bools:
    """Return whether each node satisfies a choice. Cost: a look at the nodes for each label."""
    if all(map(_reads_labels, choice.terms)):
        matching = [_term(snapshot, term) for term in choice.terms]
        found: _Bools = np.any(matching, axis=0) if matching else _nowhere(snapshot)
        return found

    def compute(node: NodeLedger) -> Value:
        return (choice.matches(node.node.name, node.node.labels),)

    key = "choice", choice
    return _column(snapshot, key, compute) > 0


def volumes_fit(snapshot: Snapshot, group: Group) -> Iterator[tuple[Reason, _Bools]]:
    """Yield whether each node has the volumes of all members together, by the reason if not."""
    if not group.volumes:
        return
    bindings = _by_class(group.volumes)
    for binding in dict.fromkeys(one for volumes in group.volumes for one in volumes.bindings):
        wanted = bindings[binding.storage_class]
        yield Reason.FREE_VOLUMES, _available(snapshot, binding) >= wanted
    for driver, attached in _by_driver(group.volumes).items():
        yield Reason.ATTACHED, _room(snapshot, driver, attached) >= 0


def volume_capacities(snapshot: Snapshot, group: Group) -> list[tuple[Ints, Reason]]:
    """Return how many members each node fits by their volumes, and the reason where none.

    All count as the one that takes the most.
    """
    if not group.volumes:
        return []
    found: list[tuple[Ints, Reason]] = []
    for binding in dict.fromkeys(one for volumes in group.volumes for one in volumes.bindings):
        each = max(_by_class([volumes])[binding.storage_class] for volumes in group.volumes)
        found.append((_available(snapshot, binding) // each, Reason.FREE_VOLUMES))
    users = Counter(one for volumes in group.volumes for one in volumes.attached)
    for driver, attached in _by_driver(group.volumes).items():
        if group.size == 1:
            shared, own = attached, 0
        else:
            shared = frozenset(one for one in attached if users[one] > 1)
            own = max(
                sum(one.driver == driver and users[one] == 1 for one in volumes.attached)
                for volumes in group.volumes
            )
        room = _room(snapshot, driver, shared)
        found.append((np.where(room < 0, 0, room // own if own else group.size), Reason.ATTACHED))
    return found


def _by_class(every: tuple[PodVolumes, ...] | list[PodVolumes]) -> Counter[str]:
    """Return how many free volumes of each class some pods want."""
    return Counter(one.storage_class for volumes in every for one in volumes.bindings)


def _by_driver(every: tuple[PodVolumes, ...]) -> dict[str, frozenset[Attachment]]:
    """Return the volumes that some pods attach, by driver."""
    found: dict[str, set[Attachment]] = {}
    for volumes in every:
        for attachment in volumes.attached:
            found.setdefault(attachment.driver, set()).add(attachment)
    return {driver: frozenset(attached) for driver, attached in sorted(found.items())}


def _room(snapshot: Snapshot, driver: str, attached: frozenset[Attachment]) -> Ints:
    """Return how many volumes of a driver each node can attach beside these.

    A volume that is attached already needs no room. Negative: not even these.
    """

    def limit(node: NodeLedger) -> Value:
        return (dict(node.node.attach_limits).get(driver, _UNLIMITED),)

    limits = _column(snapshot, ("attach limit", driver), limit)
    if not (limits < _UNLIMITED).any():
        return limits

    def compute(node: NodeLedger) -> Value:
        held = (one for holding in node.holdings.values() for one in holding.volumes.attached)
        return (len(attached.union(one for one in held if one.driver == driver)),)

    return limits - _column(snapshot, ("attached", driver, attached), compute)


def _available(snapshot: Snapshot, binding: Binding) -> Ints:
    """Return how many volumes each node has for a claim; very many where they can be made."""
    binds = binding.storage_class

    def compute(node: NodeLedger) -> Value:
        return (sum(one.volumes.binds.count(binds) for one in node.holdings.values()),)

    there = _candidates(snapshot, binding.candidates)
    found: Ints = np.maximum(there - _column(snapshot, ("binding", binds), compute), 0)
    if binding.provision is None:
        return found
    every: Ints = np.where(satisfying(snapshot, binding.provision), _UNLIMITED, found)
    return every


def _candidates(snapshot: Snapshot, candidates: Candidates) -> Ints:
    found = np.full(len(snapshot.nodes), candidates.anywhere, dtype=np.int64)
    for label, counts in candidates.by_label.items():

        def compute(
            node: NodeLedger, label: str = label, counts: Mapping[str, int] = counts
        ) -> Value:
            return (counts.get(node.node.labels.get(label, ""), 0),)

        found = found + _column(snapshot, ("volumes", label, candidates), compute)
    for choice, count in candidates.others:
        found = found + satisfying(snapshot, choice) * count
    return found


def _reads_labels(term: NodeSelectorTerm) -> bool:
    """Return whether a term compares labels alone, as equal or not."""
    requirements = term.match_expressions or ()
    return not term.match_fields and all(one.operator in _BY_LABEL for one in requirements)


def _term(snapshot: Snapshot, term: NodeSelectorTerm) -> _Bools:
    # A term without requirements matches nothing.
    requirements = term.match_expressions or ()
    found = np.full(len(snapshot.nodes), bool(requirements))
    for one in requirements:
        found &= _holds(snapshot, one)
    return found


def _holds(snapshot: Snapshot, one: Requirement) -> _Bools:
    column = labels(snapshot, one.key)
    if one.operator in ("Exists", "DoesNotExist"):
        has_label: _Bools = column > 0
        return has_label if one.operator == "Exists" else ~has_label
    number = snapshot.cache.number
    values = [number(("label", value)) for value in one.values or ()]
    is_in: _Bools = np.isin(column, values)
    return is_in if one.operator == "In" else ~is_in


def _column(snapshot: Snapshot, key: Hashable, compute: Callable[[NodeLedger], Value]) -> Ints:
    found: Ints = snapshot.cache.get_or_compute(key, snapshot.nodes, compute, np.int64)[0]
    return found


def _nowhere(snapshot: Snapshot) -> _Bools:
    return np.zeros(len(snapshot.nodes), dtype=np.bool_)
