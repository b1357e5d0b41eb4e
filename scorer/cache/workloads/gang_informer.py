"""Watch the Gang objects."""

from collections.abc import Callable, Iterator, Mapping, Set

from linkwise.cluster.gang import GangKey
from linkwise.planning.gang.crd import GANGS, Gang, object_key, placed_size, read_gang
from linkwise.planning.gang.joint import recorded_joint
from linkwise.planning.gang.owners import Joint
from linkwise.runtime.kube.client import Kube
from linkwise.runtime.kube.objects import Key
from linkwise.runtime.kube.reflector import Reflector


class GangInformer:
    """The Gang objects, by name of the object and by name of the gang."""

    def __init__(
        self,
        kube: Kube,
        on_change: Callable[[], None],
        on_delete: Callable[[GangKey], None],
        on_placed: Callable[[GangKey], None],
    ) -> None:
        """Prepare the watch.

        Args:
            kube: The API server.
            on_change: Called after every change.
            on_delete: Called with each gang whose object was deleted.
            on_placed: Called with each gang of which `placed` changed.
        """
        self._on_change, self._on_delete, self._on_placed = on_change, on_delete, on_placed
        self.placed: dict[GangKey, int] = {}
        """By gang that has a plan: how many members it needed then."""
        self.reflector = Reflector(kube, GANGS, read_gang, on_change=self._changed)
        self._keys: dict[Key, GangKey] = {}
        """By namespace and name of the object."""
        self._by_name: dict[Key, set[GangKey]] = {}
        """By namespace and name of the gang."""
        self._dirty: set[GangKey] = set()
        self._deleted: set[GangKey] = set()

    def named(self, group: Key) -> Set[GangKey]:
        """Return the gangs of a namespace and name that have a Gang object."""
        return frozenset(self._by_name.get(group, ()))

    def mark_dirty(self, owner: str) -> None:
        """Let the gangs of an owner be reported again."""
        self._dirty.update(
            key for keys in self._by_name.values() for key in keys if key.owner == owner
        )

    def drain_dirty(self) -> Set[GangKey]:
        """Return gangs whose object or owner changed since the last call; the planner calls it."""
        drained, self._dirty = self._dirty, set()
        return drained

    def drain_deleted(self) -> Set[GangKey]:
        """Return gangs whose object was deleted since the last call; the planner calls it."""
        drained, self._deleted = self._deleted, set()
        return drained

    def joints(self, group: Key) -> Iterator[Joint]:
        """Yield the gangs of several owners among those of a namespace and name."""
        for key in self._by_name.get(group, ()):
            gang = self.reflector.items.get(object_key(key))
            if joint := recorded_joint(gang) if gang else None:
                yield joint

    def _note_placed(self, key: GangKey, gang: Gang | None) -> None:
        before = self.placed.pop(key, None)
        if placed := placed_size(gang) if gang else None:
            self.placed[key] = placed[1]
        if self.placed.get(key) != before:
            self._on_placed(key)

    def _changed(self, items: Mapping[Key, Gang], changed: Set[Key]) -> None:
        for name in changed:
            before, gang = self._keys.pop(name, None), items.get(name)
            if before is not None:
                keys = self._by_name[before[:2]]
                keys.discard(before)
                if not keys:
                    del self._by_name[before[:2]]
                if gang is None:
                    self._note_placed(before, None)
                    self._deleted.add(before)
                    self._on_delete(before)
            if gang is not None:
                key = self._keys[name] = gang.key
                self._by_name.setdefault(key[:2], set()).add(key)
                self._note_placed(key, gang)
                self._dirty.add(key)
        self._on_change()
