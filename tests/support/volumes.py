"""PersistentVolumeClaims, PersistentVolumes, StorageClasses and CSINodes as JSON."""

from typing import Any

import msgspec

from linkwise.cluster import keys, volume_keys
from linkwise.cluster.volumes.claim import ClaimObject
from linkwise.cluster.volumes.objects import VolumeObjects
from linkwise.cluster.volumes.storage_class import StorageClassObject
from linkwise.cluster.volumes.volume import VolumeObject

CLAIMS = "/api/v1/namespaces/team/persistentvolumeclaims"
VOLUMES = "/api/v1/persistentvolumes"
CLASSES = "/apis/storage.k8s.io/v1/storageclasses"
CSI_NODES = "/apis/storage.k8s.io/v1/csinodes"


def a_volume_claim(
    name: str = "data",
    volume: str = "",
    *,
    storage_class: str | None = None,
    size: str = "1Gi",
    metadata: dict[str, Any] | None = None,
    phase: str = "",
    **spec: Any,
) -> dict[str, Any]:
    """Return a claim; it is bound if it has a volume."""
    annotations = {volume_keys.BIND_COMPLETED: "yes"} if volume else {}
    annotations |= (metadata or {}).get("annotations", {})
    known = {"name": name, "namespace": "team", "uid": f"uid-of-{name}", **(metadata or {})}
    return {
        "metadata": {**known, "annotations": annotations},
        "spec": {
            "accessModes": ["ReadWriteOnce"],
            "volumeName": volume,
            "storageClassName": storage_class,
            "resources": {"requests": {"storage": size}},
            **spec,
        },
        "status": {"phase": phase or ("Bound" if volume else "Pending")},
    }


def a_volume(
    name: str = "pv",
    *,
    hosts: list[str] | None = None,
    storage_class: str = "",
    size: str = "1Gi",
    labels: dict[str, str] | None = None,
    phase: str = "Available",
    **spec: Any,
) -> dict[str, Any]:
    """Return a volume; with hosts it can be used there alone."""
    if hosts is not None:
        spec["nodeAffinity"] = {"required": one_of(keys.HOSTNAME, *hosts)}
    return {
        "metadata": {"name": name, "labels": labels or {}},
        "spec": {
            "capacity": {"storage": size},
            "accessModes": ["ReadWriteOnce"],
            "storageClassName": storage_class,
            **spec,
        },
        "status": {"phase": phase},
    }


def one_of(label: str, *values: str) -> dict[str, Any]:
    """Return a node selector of nodes that have one of some values of a label."""
    wanted = {"key": label, "operator": "In", "values": list(values)}
    return {"nodeSelectorTerms": [{"matchExpressions": [wanted]}]}


def a_storage_class(
    name: str = "local",
    provisioner: str = volume_keys.NO_PROVISIONER,
    *,
    immediate: bool = False,
    zones: list[str] | None = None,
) -> dict[str, Any]:
    """Return a class, whose claims wait for the node of their pod unless they are immediate."""
    allowed = [{"matchLabelExpressions": [{"key": volume_keys.ZONE, "values": zones}]}]
    return {
        "metadata": {"name": name},
        "provisioner": provisioner,
        "volumeBindingMode": "Immediate" if immediate else "WaitForFirstConsumer",
        "allowedTopologies": allowed if zones is not None else None,
    }


def a_csi_node(name: str, **limits: int) -> dict[str, Any]:
    """Return the CSINode of a node whose drivers attach so many volumes."""
    drivers = [
        {"name": driver, "nodeID": name, "allocatable": {"count": count}}
        for driver, count in limits.items()
    ]
    return {"metadata": {"name": name}, "spec": {"drivers": drivers}}


def volume_objects(claims: Any = (), volumes: Any = (), classes: Any = ()) -> VolumeObjects:
    """Return what is known of these objects."""

    def read(plain: Any, kind: Any) -> dict[tuple[str, str], Any]:
        made = [msgspec.convert(one, kind) for one in plain]
        return {(one.metadata.namespace, one.metadata.name): one.content for one in made}

    return VolumeObjects(
        read(claims, ClaimObject), read(volumes, VolumeObject), read(classes, StorageClassObject)
    )
