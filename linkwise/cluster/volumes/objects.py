"""The claims, volumes and classes of a cluster, as far as they may be read."""

from collections.abc import Mapping, Set

from linkwise.cluster.volumes.claim import Claim
from linkwise.cluster.volumes.free_volumes import FreeVolumes
from linkwise.cluster.volumes.storage_class import StorageClass
from linkwise.cluster.volumes.volume import PersistentVolume

Key = tuple[str, str]
"""Namespace and name; the namespace of volumes and classes is empty."""


class VolumeObjects:
    """What is known of the volumes of a cluster."""

    def __init__(
        self,
        claims: Mapping[Key, Claim],
        volumes: Mapping[Key, PersistentVolume],
        classes: Mapping[Key, StorageClass],
    ) -> None:
        """Take the objects."""
        self.claims, self.classes = claims, classes
        """To be replaced where they change; volumes by `update`."""
        self._volumes = volumes
        self._by_class: dict[str, dict[str, PersistentVolume]] = {}
        """By class: the volumes that claims may bind, by name."""
        self._class_of: dict[str, str] = {}
        """By name of such a volume: its class."""
        self._free: dict[str, FreeVolumes] = {}
        """By class."""
        self.update(volumes, volumes.keys())

    def update(self, volumes: Mapping[Key, PersistentVolume], changed: Set[Key]) -> set[str]:
        """Take changed volumes; return the classes of which claims may find others now."""
        self._volumes = volumes
        touched: set[str] = set()
        for key in changed:
            name, volume = key[1], volumes.get(key)
            before = self._class_of.get(name)
            known = self._by_class[before].get(name) if before is not None else None
            after = volume if volume and volume.free else None
            if known == after:
                continue
            if before is not None:
                touched.add(before)
                self._remove(before, name)
            if after is not None:
                touched.add(after.storage_class)
                self._class_of[name] = after.storage_class
                self._by_class.setdefault(after.storage_class, {})[name] = after
        for name in touched:
            self._free.pop(name, None)
        return touched

    def _remove(self, storage_class: str, name: str) -> None:
        del self._class_of[name], self._by_class[storage_class][name]
        if not self._by_class[storage_class]:
            del self._by_class[storage_class]

    def claim(self, key: Key) -> Claim | None:
        """Return a claim; None: it does not exist."""
        return self.claims.get(key)

    def volume(self, name: str) -> PersistentVolume | None:
        """Return a volume; None: it does not exist."""
        return self._volumes.get(("", name))

    def storage_class(self, name: str) -> StorageClass | None:
        """Return a class; None: it does not exist."""
        return self.classes.get(("", name))

    def free(self, storage_class: str) -> FreeVolumes:
        """Return the volumes of a class that claims may bind. Cost: linear after a change."""
        found = self._free.get(storage_class)
        if found is None:
            found = FreeVolumes(self._by_class.get(storage_class, {}))
            if storage_class in self._by_class:
                self._free[storage_class] = found
        return found
