"""Watched objects by the nodes that they are about."""

from collections.abc import Callable, Iterable, Mapping, Set
from typing import Generic, TypeVar

from linkwise.runtime.kube.objects import Key

T = TypeVar("T")


class NodeIndex(Generic[T]):
    """The objects of one watch; an update costs the objects that changed."""

    def __init__(self, nodes_of: Callable[[T], Iterable[str]]) -> None:
        """Start without objects.

        Args:
            nodes_of: Returns the nodes that an object is about.
        """
        self._nodes_of = nodes_of
        self._items: dict[Key, T] = {}
        self._by_node: dict[str, dict[Key, T]] = {}

    def of(self, node: str) -> Iterable[T]:
        """Return the objects about a node."""
        return self._by_node.get(node, {}).values()

    def update(self, items: Mapping[Key, T], changed: Set[Key]) -> set[str]:
        """Take changed objects; return the nodes about which something differs.

        Args:
            items: All objects.
            changed: Keys of those that were added, changed or deleted.
        """
        touched: set[str] = set()
        for key in changed:
            before, after = self._items.pop(key, None), items.get(key)
            if after is not None:
                self._items[key] = after
            if before != after:
                touched |= self._remove(key, before) | self._add(key, after)
        return touched

    def _remove(self, key: Key, item: T | None) -> set[str]:
        if item is None:
            return set()
        nodes = set(self._nodes_of(item))
        for node in nodes:
            of_node = self._by_node[node]
            del of_node[key]
            if not of_node:
                del self._by_node[node]
        return nodes

    def _add(self, key: Key, item: T | None) -> set[str]:
        if item is None:
            return set()
        nodes = set(self._nodes_of(item))
        for node in nodes:
            self._by_node.setdefault(node, {})[key] = item
        return nodes

    @property
    def nodes(self) -> Set[str]:
        """The nodes about which there are objects."""
        return self._by_node.keys()
