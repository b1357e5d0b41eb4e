"""Draw the volumes of a small cluster: of nodes, of zones, of a driver with a limit, not bound."""

from collections.abc import Iterator
from contextlib import contextmanager
from itertools import count
from random import Random
from typing import Any

from controlplane.api import Object
from controlplane.pods import Pods
from controlplane.volume_store import VolumeStore
from support.volumes import CLASSES, CSI_NODES, a_csi_node, a_storage_class, a_volume_claim

from linkwise.cluster.volume_keys import ZONE

_DRIVER, _MADE = "disk.example", "made.example"
_DISKS = 4


class DrawnVolumes:
    """The claims of one namespace, their volumes and classes, and the drivers of its nodes."""

    def __init__(self, number: int, random: Random, pods: Pods, nodes: list[str]) -> None:
        """Make nothing yet.

        Args:
            number: Of the world; names of volumes and classes end with it.
            random: Draws which claims pods use.
            pods: Of the namespace.
            nodes: The nodes of the world.
        """
        self._number, self._random, self._nodes = number, random, nodes
        self._store = VolumeStore(pods)
        self._fresh = count()

    @contextmanager
    def present(self) -> Iterator[None]:
        """Make all of them, and delete them afterwards."""
        n, east = self._number, f"east-{self._number}"
        try:
            self._make_classes()
            self._bound("host", hosts=self._nodes[:2])
            self._bound("zone", labels={ZONE: east})
            self._bound("alone", mode="ReadWriteOncePod")
            for i in range(_DISKS):
                self._bound(f"disk-{i}", csi={"driver": _DRIVER, "volumeHandle": f"{n}-{i}"})
            for node in self._nodes:
                most = self._random.choice((1, 2, 4))
                self._store.create(CSI_NODES, a_csi_node(node, **{_DRIVER: most}))
            self._claim("pending", "now")
            yield
        finally:
            self._store.clear()

    def of_others(self) -> list[Object]:
        """Draw the volumes of a pod that runs."""
        return self._volumes(*self._random.sample(["alone", "disk-0", "disk-1"], 1))

    def drawn(self) -> list[Object]:
        """Draw the volumes of a pod that waits."""
        disks = [
            f"disk-{i}" for i in self._random.sample(range(_DISKS), self._random.choice((1, 2)))
        ]
        zoned = self._random.choice(("zoned", "anywhere"))
        choices = (["host"], ["zone"], ["host", "zone"], disks, disks, ["pending"], ["missing"])
        chosen = self._random.choice((*choices, ["alone"], [zoned]))
        if chosen == [zoned]:
            # Of its own, since kube-scheduler ties the claim to the node that it chooses.
            chosen = [f"{zoned}-{next(self._fresh)}"]
            self._claim(chosen[0], zoned)
        return self._volumes(*chosen)

    def _make_classes(self) -> None:
        # No such provisioner runs, so the claims of these classes are never bound.
        n, zones = self._number, [f"east-{self._number}"]
        for body in (
            a_storage_class(f"now-{n}", _MADE, immediate=True),
            a_storage_class(f"anywhere-{n}", _MADE),
            a_storage_class(f"zoned-{n}", _MADE, zones=zones),
        ):
            self._store.create(CLASSES, body)

    def _bound(self, name: str, **fields: Any) -> None:
        self._store.bound(name, f"{name}-{self._number}", **fields)

    def _claim(self, name: str, of_class: str) -> None:
        body = a_volume_claim(name, storage_class=f"{of_class}-{self._number}")
        self._store.create(self._store.claims, body)

    @staticmethod
    def is_fresh(pod: Object) -> bool:
        """Return whether kube-scheduler ties a claim of a pod to the node that it chooses."""
        return any(name.startswith(("zoned", "anywhere")) for name in _names(pod))

    @staticmethod
    def is_for_one(pod: Object) -> bool:
        """Return whether only one pod may use a claim of a pod."""
        return "alone" in _names(pod)

    def _volumes(self, *claims: str) -> list[Object]:
        return [{"name": c, "persistentVolumeClaim": {"claimName": c}} for c in claims]


def _names(pod: Object) -> list[str]:
    return [one["name"] for one in pod["spec"].get("volumes", ())]
