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
        self._names: dict[str, set[str]] = {}
        """By node."""
        self._exceeded: set[str] = set()
        """Nodes of which a slice was not kept."""

    def take(self, node: str, name: str) -> bool:
        """Return whether a new version of a slice is kept; log the first of a node that is not."""
        names = self._names.setdefault(node, set())
        if name in names or len(names) < SLICES_MAX:
            names.add(name)
            return True
        if node not in self._exceeded:
            self._exceeded.add(node)
            _log.warning("Too many resource slices", node=node, kept=SLICES_MAX)
        return False

    def confirm(self, slices: Iterable[tuple[str, str]]) -> None:
        """Take the slices that the watch keeps, since a list may fail after some were read.

        Args:
            slices: Node and name of each.
        """
        self._names.clear()
        for node, name in slices:
            self._names.setdefault(node, set()).add(name)
        full = (node for node, names in self._names.items() if len(names) == SLICES_MAX)
        self._exceeded.intersection_update(full)
