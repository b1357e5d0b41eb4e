"""The nodes that are not used for a gang for a while, since a member could not be bound there."""

from collections.abc import Callable, Mapping

from linkwise.cluster.gang import GangKey

_SECONDS = 180.0
"""Time for which a node is excluded for a gang [s]."""


class ExcludedNodes:
    """The excluded nodes of one term of the Lease."""

    def __init__(self, clock: Callable[[], float]) -> None:
        """Exclude none; the clock is the wall clock [s since 1970]."""
        self._clock = clock
        self._nodes: dict[GangKey, tuple[frozenset[str], float]] = {}
        """By gang, with the time until which they are excluded."""

    @property
    def now(self) -> Mapping[GangKey, frozenset[str]]:
        """The nodes that are excluded now, by gang."""
        time = self._clock()
        self._nodes = {key: entry for key, entry in self._nodes.items() if entry[1] > time}
        return {key: nodes for key, (nodes, _) in self._nodes.items()}

    def exclude(self, key: GangKey, nodes: frozenset[str]) -> None:
        """Exclude nodes for a gang for a while, beside those that are excluded already."""
        if nodes := self.now.get(key, frozenset()) | nodes:
            self._nodes[key] = nodes, self._clock() + _SECONDS

    def include(self, key: GangKey) -> None:
        """Exclude nothing for a gang: all of it is bound."""
        self._nodes.pop(key, None)

    def ends(self) -> list[float]:
        """Return when nodes are included again [s since 1970]."""
        time = self._clock()
        return [until for _, until in self._nodes.values() if until > time]
