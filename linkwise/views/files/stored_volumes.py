"""Objects about volumes in a file or of a live cluster, for the pods beside them."""

from collections.abc import Iterable
from dataclasses import dataclass, field, replace

from linkwise.cluster.nodes.node import Node
from linkwise.cluster.volumes.claim import Claim, ClaimObject
from linkwise.cluster.volumes.csi_node import AttachLimits, CSINodeObject
from linkwise.cluster.volumes.objects import Key, VolumeObjects
from linkwise.cluster.volumes.storage_class import StorageClass, StorageClassObject
from linkwise.cluster.volumes.volume import PersistentVolume, VolumeObject
from linkwise.planning.gang.pod_info import PodInfo
from linkwise.planning.gang.pod_volumes import with_volumes

StoredVolume = ClaimObject | VolumeObject | StorageClassObject | CSINodeObject

KINDS: dict[str, type[StoredVolume]] = {
    "PersistentVolumeClaim": ClaimObject,
    "PersistentVolume": VolumeObject,
    "StorageClass": StorageClassObject,
    "CSINode": CSINodeObject,
}
"""What is read of each kind."""


@dataclass(slots=True)
class StoredVolumes:
    """What is known of the volumes of a cluster."""

    is_known: bool = False
    """The objects are there, as far as they exist; else volumes are left to kube-scheduler."""
    claims: dict[Key, Claim] = field(default_factory=dict)
    volumes: dict[Key, PersistentVolume] = field(default_factory=dict)
    classes: dict[Key, StorageClass] = field(default_factory=dict)
    limits: dict[str, AttachLimits] = field(default_factory=dict)
    """By node."""

    def put(self, stored: object) -> bool:
        """Add an object, if it is about volumes; return whether it is."""
        match stored:
            case ClaimObject(metadata=metadata):
                self.claims[metadata.namespace or "default", metadata.name] = stored.content
            case VolumeObject(metadata=metadata):
                self.volumes["", metadata.name] = stored.content
            case StorageClassObject(metadata=metadata):
                self.classes["", metadata.name] = stored.content
            case CSINodeObject(metadata=metadata):
                self.limits[metadata.name] = stored.content
            case _:
                return False
        self.is_known = True
        return True

    @property
    def objects(self) -> VolumeObjects | None:
        """The objects; None: they are not known. Cost: linear in the volumes."""
        if not self.is_known:
            return None
        return VolumeObjects(self.claims, self.volumes, self.classes)

    def limited(self, node: Node) -> Node:
        """Return a node with the number of volumes that it attaches."""
        limits = self.limits.get(node.name)
        return replace(node, attach_limits=limits) if limits else node


def with_all_volumes(pods: Iterable[PodInfo], objects: VolumeObjects | None) -> list[PodInfo]:
    """Return the pods of a cluster with their volumes."""
    kept = list(pods)
    users: dict[Key, list[PodInfo]] = {}
    for pod in kept:
        for claim in pod.volume_claims:
            users.setdefault((pod.namespace, claim), []).append(pod)
    return [with_volumes(pod, objects, lambda claim: users.get(claim, ())) for pod in kept]
