"""Draw the volumes of a small cluster: of nodes, of zones, of a driver with a limit, not bound."""

from collections.abc import Iterator
from contextlib import contextmanager
from itertools import count
from random import Random

from controlplane.api import Object
from controlplane.pods import Pods, requirement

from linkwise.cluster.volume_keys import BIND_COMPLETED

_VOLUMES, _STORAGE = "/api/v1/persistentvolumes", "/apis/storage.k8s.io/v1"
_DRIVER = "disk.example"
_DISKS = 4
_HOST, _ZONE = "kubernetes.io/hostname", "topology.kubernetes.io/zone"


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
        self._number, self._random, self._pods, self._nodes = number, random, pods, nodes
        self._api, self._names = pods.api, list[str]()
        self._claims = f"/api/v1/namespaces/{pods.namespace}/persistentvolumeclaims"
        self._fresh = count()

    @contextmanager
    def present(self) -> Iterator[None]:
        """Make all of them, and delete them afterwards."""
        made = [self._made(path, body) for path, body in self._objects()]
        for name in ("host", "zone", "alone", *(f"disk-{i}" for i in range(_DISKS))):
            self._bind(name)
        self._claim("pending", storageClassName=f"now-{self._number}")
        try:
            yield
        finally:
            claims = [f"{self._claims}/{name}" for name in self._names]
            for path in (*claims, *made):
                # No controller is there that would remove them.
                self._api.patch(path, {"metadata": {"finalizers": None}})
                self._api.delete(path)

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
            self._claim(chosen[0], storageClassName=f"{zoned}-{self._number}")
        return self._volumes(*chosen)

    def _objects(self) -> Iterator[tuple[str, Object]]:
        """Yield the objects that are in no namespace, with their collections."""
        n, east = self._number, f"east-{self._number}"
        zone = {"matchLabelExpressions": [{"key": _ZONE, "values": [east]}]}
        yield f"{_STORAGE}/storageclasses", _class(f"now-{n}", "Immediate")
        yield f"{_STORAGE}/storageclasses", _class(f"anywhere-{n}", "WaitForFirstConsumer")
        yield (
            f"{_STORAGE}/storageclasses",
            {**_class(f"zoned-{n}", "WaitForFirstConsumer"), "allowedTopologies": [zone]},
        )
        hosts = [{"matchExpressions": [requirement(_HOST, "In", *self._nodes[:2])]}]
        affinity = {"nodeAffinity": {"required": {"nodeSelectorTerms": hosts}}}
        yield _VOLUMES, self._volume("host", **affinity)
        yield (
            _VOLUMES,
            {**self._volume("zone"), "metadata": {"name": f"zone-{n}", "labels": {_ZONE: east}}},
        )
        yield _VOLUMES, self._volume("alone", accessModes=["ReadWriteOncePod"])
        for i in range(_DISKS):
            yield (
                _VOLUMES,
                self._volume(f"disk-{i}", csi={"driver": _DRIVER, "volumeHandle": f"{n}-{i}"}),
            )
        for node in self._nodes:
            most = {"count": self._random.choice((1, 2, 4))}
            driver = {"name": _DRIVER, "nodeID": node, "allocatable": most}
            yield (
                f"{_STORAGE}/csinodes",
                {"metadata": {"name": node}, "spec": {"drivers": [driver]}},
            )

    def _volume(self, name: str, **spec: object) -> Object:
        claim = {"namespace": self._pods.namespace, "name": name}
        source = {} if "csi" in spec else {"nfs": {"server": "nfs.example", "path": "/"}}
        return {
            "metadata": {"name": f"{name}-{self._number}"},
            "spec": {
                "capacity": {"storage": "1Gi"},
                "accessModes": ["ReadWriteOnce"],
                "claimRef": claim,
                "persistentVolumeReclaimPolicy": "Retain",
                **source,
                **spec,
            },
        }

    def _bind(self, name: str) -> None:
        """Make a claim that has the volume of its name, as the controller leaves both."""
        volume = f"{name}-{self._number}"
        uid = self._claim(name, volumeName=volume, storageClassName="")
        self._api.patch(f"{_VOLUMES}/{volume}", {"spec": {"claimRef": {"uid": uid}}})
        for path in (f"{_VOLUMES}/{volume}", f"{self._claims}/{name}"):
            self._api.patch(f"{path}/status", {"status": {"phase": "Bound"}})

    def _claim(self, name: str, **spec: object) -> str:
        """Make a claim, and return its uid."""
        modes = ["ReadWriteOncePod" if name == "alone" else "ReadWriteOnce"]
        resources = {"requests": {"storage": "1Gi"}}
        annotations = {BIND_COMPLETED: "yes"} if "volumeName" in spec else {}
        metadata = {"name": name, "annotations": annotations}
        body = {"accessModes": modes, "resources": resources, **spec}
        made = self._api.create(self._claims, {"metadata": metadata, "spec": body})
        self._names.append(name)
        return str(made["metadata"]["uid"])

    @staticmethod
    def is_fresh(pod: Object) -> bool:
        """Return whether kube-scheduler ties a claim of a pod to the node that it chooses."""
        return any(name.startswith(("zoned", "anywhere")) for name in _names(pod))

    @staticmethod
    def is_for_one(pod: Object) -> bool:
        """Return whether only one pod may use a claim of a pod."""
        return "alone" in _names(pod)

    def _made(self, path: str, body: Object) -> str:
        self._api.create(path, body)
        return f"{path}/{body['metadata']['name']}"

    def _volumes(self, *claims: str) -> list[Object]:
        return [{"name": c, "persistentVolumeClaim": {"claimName": c}} for c in claims]


def _names(pod: Object) -> list[str]:
    return [one["name"] for one in pod["spec"].get("volumes", ())]


def _class(name: str, mode: str) -> Object:
    # No such provisioner runs, so the claims of the class are never bound.
    return {"metadata": {"name": name}, "provisioner": "made.example", "volumeBindingMode": mode}
