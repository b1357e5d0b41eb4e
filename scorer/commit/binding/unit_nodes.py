"""Entries by unit and node, for which namespaces share the room. Units are named by their ids.

A tenant makes as many units as it likes that are not bound, so the namespace that has most gives
way, and the Lease gets the latest entries of each namespace in turn.
"""

from collections import Counter, defaultdict, deque
from collections.abc import Iterable, Mapping, MutableMapping, Sized
from typing import TypeVar

from linkwise.planning.gang.exclusion import namespace_of

KEPT = 1024
"""The most entries (a unit on a node) that are kept."""
_UNIT, _VALUE = 26, 24
"""What the id of a unit takes, and a value beside the name of its node, at most [characters]."""

S = TypeVar("S", bound=Sized)
V = TypeVar("V")


def forget_most(units: MutableMapping[str, S]) -> None:
    """Forget the oldest units of the namespace that has most, while there are too many entries.

    Args:
        units: What is kept of each node, by unit, the oldest first.
    """
    counts = Counter[str]()
    for unit, nodes in units.items():
        counts[namespace_of(unit)] += len(nodes)
    while counts.total() > KEPT:
        [(namespace, _)] = counts.most_common(1)
        oldest = next(unit for unit in units if namespace_of(unit) == namespace)
        counts[namespace] -= len(units.pop(oldest))


def latest(entries: Iterable[tuple[str, str, V]], length: int) -> dict[str, dict[str, V]]:
    """Return entries by unit and node that take no more than a length as JSON [characters].

    Namespaces take turns, so that none takes the room of another.

    Args:
        entries: Unit, node and value, the latest first.
        length: The longest text.
    """
    queues: Mapping[str, deque[tuple[str, str, V]]] = defaultdict(deque)
    for entry in entries:
        queues[namespace_of(entry[0])].append(entry)
    turns, found = deque(queues.values()), dict[str, dict[str, V]]()
    while turns:
        queue = turns.popleft()
        unit, node, value = queue.popleft()
        length -= len(node) + _VALUE + (0 if unit in found else _UNIT)
        if length < 0:
            break
        found.setdefault(unit, {})[node] = value
        if queue:
            turns.append(queue)
    return found
