"""The nodes that are not used for a unit for a while, since a member could not be bound there.

An exclusion ends early once its cause may be gone: the node has changed, pods of others have left
it or ask for something else there, or the unit asks for something else or has other volumes. If a
member is refused there again, the next one lasts for some time in any case, and longer each time:
on a busy node, pods come and go for other reasons.
"""

from collections.abc import Callable, Hashable, Mapping
from dataclasses import dataclass, replace
from itertools import islice
from types import MappingProxyType

from linkwise.cluster.account.node_ledger import NodeLedger
from linkwise.cluster.gang import GangKey
from linkwise.planning.gang.exclusion import Exclusion, exclusion_id, exclusion_key
from linkwise.planning.gang.unit import Unit
from linkwise.planning.state.cluster_state import ClusterState
from scorer.commit.binding.node_cause import NodeCause, cause_at
from scorer.commit.binding.unit_nodes import KEPT, forget_most, latest

SECONDS = 180.0
"""Time for which a node is excluded for a unit at most [s]."""
_LEAST = 10.0
"""The least time of the second exclusion of a node; doubled with each further one [s]."""
_REMEMBERED = 900.0
"""For how long an earlier exclusion counts after its end [s]."""
PUBLISHED = 12 * 1024
"""The longest text in the Lease [characters]."""


@dataclass(frozen=True, slots=True)
class _Entry:
    exclusion: Exclusion
    cause: NodeCause
    asked: frozenset[Hashable]
    """The signatures of the members of the unit; empty: not known."""
    not_before: float
    """Before this time it does not end early [s since 1970]."""
    times: int
    """How often in a row the node did not take a pod of the unit."""
    ended: float | None = None
    """When it ended early [s since 1970]; None: it did not."""
    checked: NodeLedger | None = None
    """The account of the node with which the cause was compared last; None: with none."""

    @property
    def end(self) -> float:
        return self.exclusion.until if self.ended is None else self.ended

    def is_over(self, now: float) -> bool:
        return now >= self.end

    def may_end_early(self, now: float) -> bool:
        return now >= self.not_before and not self.is_over(now)


class ExcludedNodes:
    """The excluded nodes of one term of the Lease."""

    def __init__(self, state: ClusterState, clock: Callable[[], float]) -> None:
        """Exclude none.

        Args:
            state: The nodes and their pods.
            clock: The wall clock [s since 1970].
        """
        self._state, self._clock = state, clock
        self._entries: dict[str, dict[str, _Entry]] = {}
        """By id of a unit (`exclusion_id`) and node, the ids of the oldest first."""

    def __bool__(self) -> bool:
        """Return whether there may be any."""
        return bool(self._entries)

    def of(self, unit: Unit) -> dict[str, Exclusion]:
        """Return the exclusions of a unit now, by node.

        None hold that were for other requests or volumes, once they may end early.
        """
        now, nodes = self._clock(), self._entries.get(exclusion_id(exclusion_key(unit)), {})
        asked = frozenset(member.signature for member in unit.members) if nodes else frozenset()
        return {
            node: each.exclusion
            for node, each in nodes.items()
            if not each.is_over(now)
            if not each.asked or asked <= each.asked or now < each.not_before
        }

    def published(self) -> dict[str, dict[str, float]]:
        """Return the latest exclusions, by id of the unit and node: until when [s since 1970]."""
        now = self._clock()
        entries = (
            (unit, node, each.exclusion.until)
            for unit in reversed(self._entries)
            for node, each in self._entries[unit].items()
            if not each.is_over(now)
        )
        return latest(entries, PUBLISHED)

    def restore(self, published: Mapping[str, Mapping[str, float]]) -> None:
        """Take the exclusions that the last leader has published.

        What changed before is not seen, and how often a node was refused is not known: so they last
        for a while in any case, like those of a node that is refused again.
        """
        now = self._clock()
        for unit, nodes in reversed(list(published.items())):
            entries = {
                node: _Entry(
                    Exclusion(min(until, now + SECONDS)),
                    cause_at(self._state, node),
                    frozenset(),
                    min(until, now + _LEAST),
                    times=2,
                )
                for node, until in islice(nodes.items(), KEPT)
                if until > now
            }
            if entries:
                self._entries[unit] = entries
                forget_most(self._entries)

    def exclude(
        self,
        key: GangKey,
        nodes: frozenset[str],
        why: str,
        *,
        causes: Mapping[str, NodeCause] = MappingProxyType({}),
        asked: frozenset[Hashable] = frozenset(),
        at_least: float = 0.0,
    ) -> None:
        """Exclude nodes for a unit for a while.

        Args:
            key: Of the unit (`exclusion_key`).
            nodes: The nodes.
            why: In the words of kube-scheduler; empty: it said nothing.
            causes: The nodes as they were when they did not take it; others are taken as now.
            asked: The signatures of its members; empty: not known.
            at_least: For how long, whatever changes [s].
        """
        now, unit = self._clock(), exclusion_id(key)
        entries = self._entries.pop(unit, {})
        for node in sorted(nodes):
            before = entries.pop(node, None)
            times = 1 + (before.times if before and now < before.end + _REMEMBERED else 0)
            again = 0.0 if times == 1 else min(_LEAST * 2.0 ** min(times - 2, 10), SECONDS)
            least = max(again, at_least)
            exclusion = Exclusion(now + SECONDS, why)
            cause = causes.get(node) or cause_at(self._state, node)
            entries[node] = _Entry(exclusion, cause, asked, now + least, times)
        if entries:
            self._entries[unit] = dict(islice(entries.items(), max(0, len(entries) - KEPT), None))
        forget_most(self._entries)

    def update(self) -> None:
        """End exclusions whose cause may be gone. Cost: the pods of nodes that have changed."""
        now = self._clock()
        for entries in self._entries.values():
            for node, entry in entries.items():
                ledger = self._state.ledger(node)
                if entry.may_end_early(now) and (ledger is None or ledger is not entry.checked):
                    is_gone = entry.cause.may_be_gone(cause_at(self._state, node))
                    entries[node] = replace(entry, checked=ledger, ended=now if is_gone else None)

    def include(self, key: GangKey) -> None:
        """Exclude nothing for a unit: all of it is bound."""
        self._entries.pop(exclusion_id(key), None)

    def is_said_elsewhere(self, key: GangKey, why: str, nodes: frozenset[str]) -> bool:
        """Return whether another node did not take a pod of a unit lately, in the same words."""
        entries = self._entries.get(exclusion_id(key), {}).items()
        return any(node not in nodes and each.exclusion.why == why for node, each in entries)

    def ends(self) -> list[float]:
        """Return when nodes are included again, or may be [s since 1970]."""
        now = self._clock()
        entries = (each for nodes in self._entries.values() for each in nodes.values())
        current = (each for each in entries if not each.is_over(now))
        times = (time for each in current for time in (each.exclusion.until, each.not_before))
        return [time for time in times if time > now]
