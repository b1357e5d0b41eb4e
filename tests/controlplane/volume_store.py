"""Claims, volumes and classes on a control plane that runs no controllers of volumes."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from controlplane.api import Object
from controlplane.pods import Pods
from support.volumes import VOLUMES, a_volume, a_volume_claim

NFS = {"nfs": {"server": "192.0.2.9", "path": "/x"}}
"""The source of a volume that can be used from every node."""


class VolumeStore:
    """Objects about volumes that are deleted at the end."""

    def __init__(self, pods: Pods) -> None:
        """Start without objects; `pods` are those of the claims' namespace."""
        self._api, self._namespace = pods.api, pods.namespace
        self.claims = f"/api/v1/namespaces/{pods.namespace}/persistentvolumeclaims"
        self._made: list[str] = []

    def create(self, collection: str, body: Object) -> Object:
        """Create an object in the collection at a path, and return what was made."""
        metadata = dict(body["metadata"])
        for field in ("namespace", "uid"):
            metadata.pop(field, None)
        self._made.append(f"{collection}/{metadata['name']}")
        return self._api.create(collection, {**body, "metadata": metadata})

    def bound(self, claim: str, volume: str, *, mode: str = "", **of_volume: Any) -> None:
        """Create a volume and the claim that has it, as the controllers leave both.

        Args:
            claim: The name of the claim.
            volume: The name of the volume.
            mode: The access mode of both; empty: ReadWriteOnce.
            of_volume: As for `a_volume`; without a source it is one for every node.
        """
        modes = {"accessModes": [mode]} if mode else {}
        source = {} if "csi" in of_volume else NFS
        reference = {"namespace": self._namespace, "name": claim}
        fields = {**source, **modes, **of_volume}
        self.create(VOLUMES, a_volume(volume, storage_class="any", claimRef=reference, **fields))
        of_claim = a_volume_claim(claim, volume, storage_class="any", **modes)
        uid = self.create(self.claims, of_claim)["metadata"]["uid"]
        self._api.patch(f"{VOLUMES}/{volume}", {"spec": {"claimRef": {"uid": uid}}})
        for path in (f"{VOLUMES}/{volume}", f"{self.claims}/{claim}"):
            self._api.patch(f"{path}/status", {"status": {"phase": "Bound"}})

    def clear(self) -> None:
        """Delete all of them."""
        for path in self._made:
            # No controller is there that would remove them.
            self._api.patch(path, {"metadata": {"finalizers": None}})
            self._api.delete(path)


@contextmanager
def volume_store(pods: Pods) -> Iterator[VolumeStore]:
    """Yield a store, and clear it afterwards."""
    store = VolumeStore(pods)
    try:
        yield store
    finally:
        store.clear()
