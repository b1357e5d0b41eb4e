"""Limit the ResourceSlices that are kept of each node, since its kubelet can create any number."""

from collections.abc import Iterable

import structlog

SLICES_MAX = 32
"""Of one node, each of at most 128 devices: twice as many as 16 GPUs and their MIG devices need."""

_log = structlog.get_logger()


class SliceBudget:
    """The slices that are kept of each node. A pool that lacks one is incomplete, and not used."""

    def __init__(self) -> None:
        """Start without slices."""
        self._kept: dict[str, set[str]] = {}
        """Names of the slices that the watch keeps, by node."""
        self._node_of: dict[str, str] = {}
        """Node of each of them, by name."""
        self._taken: dict[str, set[str]] = {}
        """Names of those that were taken since the last change, by node."""
        self._exceeded: set[str] = set()
        """Nodes of which a slice was not kept."""

    def take(self, node: str, name: str) -> bool:
        """Return whether a new version of a slice is kept; log the first of a node that is not."""
        kept, taken = self._kept.get(node, set()), self._taken.setdefault(node, set())
        if name in kept or name in taken:
            return True
        if len(kept) + len(taken) < SLICES_MAX:
            taken.add(name)
            return True
        if node not in self._exceeded:
            self._exceeded.add(node)
            _log.warning("Too many resource slices", node=node, kept=SLICES_MAX)
        return False

    def confirm(self, changed: Iterable[tuple[str, str | None]]) -> None:
        """Follow a change of the slices that the watch keeps.

        Others that were taken are not kept: a list may fail after some were read.

        Args:
            changed: Name of each slice that changed, and its node; None: it is not kept any more.
        """
        self._taken.clear()
        for name, node in changed:
            before = self._node_of.get(name)
            if before == node:
                continue
            if before is not None:
                self._remove(before, name)
            if node is not None:
                self._node_of[name] = node
                self._kept.setdefault(node, set()).add(name)

    def _remove(self, node: str, name: str) -> None:
        del self._node_of[name]
        kept = self._kept[node]
        kept.remove(name)
        self._exceeded.discard(node)
        if not kept:
            del self._kept[node]
