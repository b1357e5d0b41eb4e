"""Limit the ResourceSlices that are kept of each node, since its kubelet can create any number."""

from collections.abc import Iterable

import structlog

SLICES_MAX = 32
"""Of one node, each of at most 128 devices: twice as many as 16 GPUs and their MIG devices need."""

NODE_MAX = 2 << 20
"""All slices of one node [bytes]: a device takes about 2 KiB, so that 16 GPUs with 20 MIG devices
each have room three times. Less than half as much is kept of them."""

_log = structlog.get_logger()


class SliceBudget:
    """The slices that are kept of each node. A pool that lacks one is incomplete, and not used."""

    def __init__(self) -> None:
        """Start without slices."""
        self._kept: dict[str, dict[str, int]] = {}
        """Sizes of the slices that the watch keeps [bytes], by node and name."""
        self._node_of: dict[str, str] = {}
        """Node of each of them, by name."""
        self._taken: dict[str, dict[str, int]] = {}
        """Sizes of those that were taken since the last change [bytes], by node and name."""
        self._exceeded: set[str] = set()
        """Nodes of which a slice was not kept."""

    def take(self, node: str, name: str, size: int) -> bool:
        """Return whether a new version of a slice is kept; log the first of a node that is not.

        Args:
            node: Its node.
            name: Its name.
            size: Of its JSON [bytes]; what is kept of it takes about half as much.
        """
        others = {**self._kept.get(node, {}), **self._taken.get(node, {})}
        before = others.pop(name, 0)
        has_room = len(others) < SLICES_MAX and sum(others.values()) + size <= NODE_MAX
        # A slice that is counted keeps its room, although a list that failed has taken others.
        if has_room or 0 < size <= before:
            self._taken.setdefault(node, {})[name] = size
            return True
        if node not in self._exceeded:
            self._exceeded.add(node)
            _log.warning("Too many resource slices", node=node, kept=len(others))
        return False

    def confirm(self, changed: Iterable[tuple[str, str | None]]) -> None:
        """Follow a change of the slices that the watch keeps.

        Others that were taken are not kept: a list may fail after some were read.

        Args:
            changed: Name of each slice that changed, and its node; None: it is not kept any more.
        """
        taken, self._taken = self._taken, {}
        for name, node in changed:
            before = self._node_of.get(name)
            if before is not None and before != node:
                self._remove(before, name)
            if node is not None:
                kept = self._kept.setdefault(node, {})
                kept[name] = taken.get(node, {}).get(name, kept.get(name, 0))
                self._node_of[name] = node

    def _remove(self, node: str, name: str) -> None:
        del self._node_of[name]
        kept = self._kept[node]
        del kept[name]
        self._exceeded.discard(node)
        if not kept:
            del self._kept[node]
