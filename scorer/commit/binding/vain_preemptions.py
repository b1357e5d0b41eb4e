"""Nodes on which nobody is evicted for a unit again: it was not bound there the last time.

Whatever kube-scheduler found wrong, the GPUs of others did not help. So nobody is evicted there
before the node has changed, or the unit asks for something else. The next leader knows it, too.
"""

from collections.abc import Hashable, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from itertools import islice

from linkwise.cluster.gang import GangKey
from linkwise.planning.gang.exclusion import exclusion_id, exclusion_key, lasting_digest
from linkwise.planning.gang.unit import Unit
from linkwise.planning.state.cluster_state import ClusterState
from scorer.commit.binding.unit_nodes import KEPT, forget_most, latest

PUBLISHED = 8 * 1024
"""The longest text in the Lease [characters]."""
_NOT_KNOWN = ""
"""In place of the digest of a node on which a unit is placed and not bound yet."""


@dataclass(frozen=True, slots=True)
class _Vain:
    asked: frozenset[Hashable] | None
    """What the members of the unit asked for; None: it is not known, since another leader led."""
    nodes: dict[str, str]
    """The digests of the nodes as they were."""

    def __len__(self) -> int:
        return len(self.nodes)


class VainPreemptions:
    """The preemptions of which one term of the Lease knows that the unit was not bound."""

    def __init__(self, state: ClusterState) -> None:
        """Keep none; `state` has the nodes."""
        self._state = state
        self._placed: dict[str, frozenset[str]] = {}
        """By id of a unit that was placed after a preemption and is not bound yet: its nodes."""
        self._vain: dict[str, _Vain] = {}
        """By id (`exclusion_id`) of the key `exclusion_key`."""

    def placed(self, key: GangKey, nodes: Iterable[str]) -> None:
        """Take the nodes on which a unit is placed after others were evicted there for it."""
        unit = exclusion_id(key)
        self._placed.pop(unit, None)
        self._placed[unit] = frozenset(islice(nodes, KEPT))
        forget_most(self._placed)

    def bound(self, unit: Unit) -> None:
        """Forget a unit: all of it is bound."""
        self._placed.pop(exclusion_id(unit.key), None)
        self._vain.pop(exclusion_id(exclusion_key(unit)), None)

    def not_bound(self, unit: Unit, nodes: frozenset[str]) -> None:
        """Take the nodes that did not take pods of a unit; only those count where it preempted."""
        vain = self._placed.pop(exclusion_id(unit.key), frozenset()) & nodes
        if not vain:
            return
        key, asked = exclusion_id(exclusion_key(unit)), _asked(unit)
        before = self._vain.pop(key, None)
        known = dict(before.nodes) if before and before.asked in {None, asked} else {}
        known |= {node: lasting_digest(self._state.node(node)) for node in sorted(vain)}
        known = dict(islice(known.items(), max(0, len(known) - KEPT), None))
        self._vain[key] = _Vain(asked, known)
        forget_most(self._vain)

    def nodes(self, unit: Unit) -> frozenset[str]:
        """Return the nodes on which nobody is evicted for a unit now. Cost: those of the unit."""
        key = exclusion_id(exclusion_key(unit)) if self._vain else ""
        vain = self._vain.get(key)
        if vain is None:
            return frozenset()
        if vain.asked is None:
            # It asks for what it asked for, as far as this leader can see.
            self._vain[key] = vain = replace(vain, asked=_asked(unit))
        if not _asked(unit) <= (vain.asked or frozenset()):
            return frozenset()
        node = self._state.node
        return frozenset(
            name for name, digest in vain.nodes.items() if lasting_digest(node(name)) == digest
        )

    def published(self) -> dict[str, dict[str, str]]:
        """Return the latest ones, by id of the unit and node: the digest of the node then."""
        return latest(self._entries(), PUBLISHED)

    def _entries(self) -> Iterator[tuple[str, str, str]]:
        """Yield unit, node and digest, the latest first."""
        for unit in reversed(self._placed):
            for node in sorted(self._placed[unit]):
                yield unit, node, _NOT_KNOWN
        for unit in reversed(self._vain):
            for node, digest in reversed(self._vain[unit].nodes.items()):
                yield unit, node, digest

    def restore(self, published: Mapping[str, Mapping[str, str]]) -> None:
        """Take what the last leader has published."""
        for unit, nodes in reversed(list(published.items())):
            known = {node: digest for node, digest in nodes.items() if digest != _NOT_KNOWN}
            if placed := nodes.keys() - known.keys():
                self._placed[unit] = frozenset(placed)
            if known:
                self._vain[unit] = _Vain(None, known)
            forget_most(self._placed)
            forget_most(self._vain)


def _asked(unit: Unit) -> frozenset[Hashable]:
    return frozenset(member.signature for member in unit.members)
