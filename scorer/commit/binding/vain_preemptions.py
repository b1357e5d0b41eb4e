"""Nodes on which nobody is evicted for a unit again: it was not bound there the last time.

Whatever kube-scheduler found wrong, the GPUs of others did not help. So nobody is evicted there
before the node has changed, or the unit asks for something else.
"""

from collections.abc import Hashable, Iterable, Mapping
from dataclasses import dataclass
from typing import TypeVar

from linkwise.cluster.gang import GangKey
from linkwise.cluster.nodes.node import Node
from linkwise.planning.gang.exclusion import exclusion_key, lasting
from linkwise.planning.gang.unit import Unit
from linkwise.planning.state.cluster_state import ClusterState

K = TypeVar("K")
V = TypeVar("V")
_KEPT = 1024
"""The most units that are kept, the latest ones, and the most nodes of each."""


@dataclass(frozen=True, slots=True)
class _Vain:
    asked: frozenset[Hashable]
    """What the members of the unit asked for."""
    nodes: Mapping[str, Node | None]
    """The nodes as they were."""


class VainPreemptions:
    """The preemptions of one term of the Lease after which the unit was not bound."""

    def __init__(self, state: ClusterState) -> None:
        """Keep none; `state` has the nodes."""
        self._state = state
        self._placed: dict[GangKey, frozenset[str]] = {}
        """By unit that was placed after a preemption and is not bound yet: its nodes."""
        self._vain: dict[GangKey, _Vain] = {}
        """By key (`exclusion_key`)."""

    def placed(self, key: GangKey, nodes: Iterable[str]) -> None:
        """Take the nodes on which a unit is placed after others were evicted there for it."""
        self._placed.pop(key, None)
        self._placed[key] = frozenset(nodes)
        _shorten(self._placed)

    def bound(self, unit: Unit) -> None:
        """Forget a unit: all of it is bound."""
        self._placed.pop(unit.key, None)
        self._vain.pop(exclusion_key(unit), None)

    def not_bound(self, unit: Unit, nodes: frozenset[str]) -> None:
        """Take the nodes that did not take pods of a unit; only those count where it preempted."""
        vain = self._placed.pop(unit.key, frozenset()) & nodes
        if not vain:
            return
        before = self._vain.pop(exclusion_key(unit), None)
        known = dict(before.nodes) if before and before.asked == _asked(unit) else {}
        known |= {node: lasting(self._state.node(node)) for node in sorted(vain)}
        _shorten(known)
        self._vain[exclusion_key(unit)] = _Vain(_asked(unit), known)
        _shorten(self._vain)

    def nodes(self, unit: Unit) -> frozenset[str]:
        """Return the nodes on which nobody is evicted for a unit now."""
        vain = self._vain.get(exclusion_key(unit)) if self._vain else None
        if vain is None or not _asked(unit) <= vain.asked:
            return frozenset()
        state = self._state
        return frozenset(
            name for name, node in vain.nodes.items() if lasting(state.node(name)) == node
        )


def _asked(unit: Unit) -> frozenset[Hashable]:
    return frozenset(member.signature for member in unit.members)


def _shorten(entries: dict[K, V]) -> None:
    while len(entries) > _KEPT:
        del entries[next(iter(entries))]
