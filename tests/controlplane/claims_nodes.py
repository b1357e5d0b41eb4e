"""Claims nodes: their GPUs are in ResourceSlices, as NVIDIA's driver for claims (DRA) writes them.

No kubelet runs on them: kube-scheduler allocates devices to claims, kwok lets the pods run, and
nothing prepares a device.
"""

import json
import random
import uuid
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace

from controlplane.api import Api, Object
from controlplane.binaries import KUBERNETES
from controlplane.dra import SLICES, claims_of
from controlplane.nodes import NODES, add_nodes, read_nodes, remove_nodes
from controlplane.pods import Pods, container, gates
from controlplane.process import wait_until

from linkwise.cluster import keys
from linkwise.cluster.scorer_lease import LEASE
from linkwise.topology import catalogue
from linkwise.topology.machine import Level, Machine

CLASSES = "/apis/resource.k8s.io/v1/deviceclasses"
_GATED = ("kube-apiserver", "kube-controller-manager", "kube-scheduler")
RULES_API = "v1" if KUBERNETES == "1.37" else "v1beta2"
"""Version in which DeviceTaintRules are served."""
RULES = f"/apis/resource.k8s.io/{RULES_API}/devicetaintrules"


def _flags(*, on: bool) -> Mapping[str, Sequence[str]]:
    """Return flags with which DeviceTaintRules are served and applied, or neither."""
    value = str(on).lower()
    flags = dict.fromkeys(_GATED, (f"--feature-gates=DRADeviceTaintRules={value}",))
    served = f"--runtime-config=resource.k8s.io/{RULES_API}/devicetaintrules={value}"
    return {**flags, "kube-apiserver": (*flags["kube-apiserver"], served)}


FENCED: Mapping[str, Sequence[str]] = {} if KUBERNETES == "1.37" else _flags(on=True)
"""Flags with which DeviceTaintRules are served and applied: 1.37 does so by default."""
SERVING_RULES = _flags(on=True)["kube-apiserver"]
"""Flags with which an API server serves them."""
UNFENCED = _flags(on=False)
"""Flags with which they are neither served nor applied."""


@dataclass(frozen=True, slots=True)
class GPU:
    """One GPU as the driver sees it."""

    uuid: str
    bus_id: str
    minor: int
    pcie_root: str
    numa: int
    product: str
    memory: int
    """[GiB]"""

    @property
    def device(self) -> Object:
        """The device; its name has the minor, which may change with a reboot."""
        prefix = "resource.kubernetes.io"
        is_volta = "V100" in self.product
        return {
            "name": f"gpu-{self.minor}",
            "attributes": {
                "type": {"string": "gpu"},
                "uuid": {"string": self.uuid},
                "productName": {"string": self.product},
                "brand": {"string": "Nvidia"},
                "architecture": {"string": "Volta" if is_volta else "Hopper"},
                "cudaComputeCapability": {"version": "7.0.0" if is_volta else "9.0.0"},
                "driverVersion": {"version": "570.133.20"},
                "cudaDriverVersion": {"version": "12.8.0"},
                f"{prefix}/pciBusID": {"string": self.bus_id},
                f"{prefix}/pcieRoot": {"string": self.pcie_root},
                f"{prefix}/numaNode": {"int": self.numa},
            },
            "capacity": {"memory": {"value": f"{self.memory}Gi"}},
        }


def gpus_of_node(node: str, machine: Machine) -> tuple[GPU, ...]:
    """Return the GPUs of a node with a machine of the catalogue, by index: by their bus ids."""
    return tuple(
        GPU(
            uuid=f"GPU-{uuid.uuid5(uuid.NAMESPACE_OID, f'{node}/{i}')}",
            bus_id=f"0000:{7 + 8 * i:02x}:00.0",
            minor=i,
            pcie_root=f"pci0000:{7 + 8 * _first_below_switch(machine, i):02x}",
            numa=machine.gpus[i].numa,
            product=str(machine.model),
            memory=machine.memory[i],
        )
        for i in range(machine.n)
    )


def _first_below_switch(machine: Machine, i: int) -> int:
    """Return the first GPU below the PCIe switch of a GPU; they have one root port."""
    near = (Level.PIX, Level.PXB, Level.PSB)
    return next(j for j in range(i + 1) if j == i or machine.levels[i][j] in near)


def slice_of(node: Object, gpus: Sequence[GPU], *, generation: int = 1, count: int = 1) -> Object:
    """Return the ResourceSlice that the driver of a node writes; the order of devices is random."""
    name = node["metadata"]["name"]
    owner = {"apiVersion": "v1", "kind": "Node", "name": name, "uid": node["metadata"]["uid"]}
    devices = [gpu.device for gpu in gpus]
    random.shuffle(devices)
    return {
        "apiVersion": "resource.k8s.io/v1",
        "kind": "ResourceSlice",
        "metadata": {
            "generateName": f"{name}-{keys.DRA_GPU_DRIVER}-",
            "ownerReferences": [{**owner, "controller": True}],
        },
        "spec": {
            "driver": keys.DRA_GPU_DRIVER,
            "nodeName": name,
            "pool": {"name": name, "generation": generation, "resourceSliceCount": count},
            "devices": devices,
        },
    }


def device_class() -> Object:
    """Return the class of the driver's chart; pods may ask for its devices by `nvidia.com/gpu`."""
    attributes = f"device.attributes['{keys.DRA_GPU_DRIVER}']"
    expression = f"device.driver == '{keys.DRA_GPU_DRIVER}' && {attributes}.type == 'gpu'"
    spec = {
        "selectors": [{"cel": {"expression": expression}}],
        "extendedResourceName": keys.NVIDIA_GPU,
    }
    return {"metadata": {"name": keys.DRA_GPU_DRIVER}, "spec": spec}


@dataclass(slots=True)
class ClaimsNodes:
    """Claims nodes of a control plane, of one kind of machine."""

    api: Api
    gpus: dict[str, tuple[GPU, ...]]
    """The GPUs of each node, by index."""

    def add(
        self, count: int, machine: str = "dgx1-v100", mode: str = "topology", name: str = "claims"
    ) -> list[str]:
        """Add nodes, and wait until pods can run on them; return their names.

        Args:
            count: The number of nodes.
            machine: Its name in the catalogue.
            mode: The label of the mode; empty: without, so that they are not Linkwise's.
            name: With which their names begin.
        """
        labels = {keys.NODE_MODE: mode} if mode else {}
        line = {"name": name, "count": count, "labels": labels, "cpu": 96, "memory": "768Gi"}
        nodes = read_nodes([line])
        add_nodes(self.api, nodes)
        for node in nodes:
            self.offer(node.name, machine)
        return [node.name for node in nodes]

    def offer(self, name: str, machine: str) -> None:
        """Publish the GPUs of a node that exists, those of a machine of the catalogue."""
        self.gpus[name] = gpus_of_node(name, catalogue.entry(machine).machine)
        self.publish(name)

    def publish(self, name: str) -> None:
        """Write the slice of a node, as its driver does."""
        self.api.create(SLICES, slice_of(self.api.get(f"{NODES}/{name}"), self.gpus[name]))

    def withdraw(self, name: str) -> None:
        """Delete the slices of a node, as its kubelet does when it starts."""
        self.api.delete(SLICES, fieldSelector=f"spec.nodeName={name}")

    def renumber(self, name: str, shift: int | None = None) -> None:
        """Give other minors to the GPUs of a node, and so other names to its devices.

        Args:
            name: Of the node.
            shift: What is added to each minor; None: their order is reversed.
        """
        n = len(self.gpus[name])
        self.gpus[name] = tuple(
            replace(gpu, minor=n - 1 - gpu.minor if shift is None else (gpu.minor + shift) % n)
            for gpu in self.gpus[name]
        )
        self.withdraw(name)
        self.publish(name)

    def lose(self, name: str, uuid: str, *, renumbers: bool) -> None:
        """Start a node without one of its GPUs; those behind it may have other minors then."""
        left = tuple(gpu for gpu in self.gpus[name] if gpu.uuid != uuid)
        if renumbers:
            left = tuple(replace(gpu, minor=minor) for minor, gpu in enumerate(left))
        self.gpus[name] = left
        self.withdraw(name)
        self.publish(name)

    def remove(self) -> None:
        """Remove all nodes, with their slices and pods."""
        for name in self.gpus:
            self.withdraw(name)
        remove_nodes(self.api, read_nodes([{"name": name} for name in self.gpus]))
        self.gpus.clear()

    def allocated(self, namespace: str) -> dict[str, frozenset[str]]:
        """Return the UUIDs of the GPUs that claims of a namespace hold, by pod, else by claim.

        The pod is that for which the claim is reserved; GPUs have the names of the slices as they
        are now, and `lost` is one that these lack.
        """
        found: dict[str, frozenset[str]] = {}
        for claim in self.api.get(claims_of(namespace))["items"]:
            status = claim.get("status", {})
            results = status.get("allocation", {}).get("devices", {}).get("results", ())
            names = [one["name"] for one in status.get("reservedFor", ())]
            for name in names or [claim["metadata"]["name"]]:
                uuids = {self._uuid(result) for result in results}
                if uuids:
                    found[name] = found.get(name, frozenset()) | uuids
        return found

    def _uuid(self, result: Object) -> str:
        gpus = self.gpus[result["pool"]]
        uuids = (gpu.uuid for gpu in gpus if f"gpu-{gpu.minor}" == result["device"])
        return next(uuids, "lost")


@contextmanager
def claims_nodes(api: Api) -> Iterator[ClaimsNodes]:
    """Create the class of the driver's devices; at the end remove it and all nodes."""
    api.create(CLASSES, device_class())
    nodes = ClaimsNodes(api, {})
    try:
        yield nodes
    finally:
        nodes.remove()
        api.delete(f"{CLASSES}/{keys.DRA_GPU_DRIVER}")


def recorded(pods: Pods) -> dict[str, frozenset[str]]:
    """Return the UUIDs of the GPUs in the record of each pod that has one."""
    texts = {
        name: pod["metadata"].get("annotations", {}).get(keys.ALLOCATION)
        for name, pod in pods.all().items()
    }
    return {
        name: frozenset(gpu["uuid"] for gpu in json.loads(text)["gpus"])
        for name, text in texts.items()
        if text
    }


def are_announced(api: Api) -> bool:
    """Return whether the leader has said in its Lease that there are claims nodes."""
    annotations = api.get(LEASE)["metadata"].get("annotations", {})
    return bool(annotations.get(keys.CLAIMS_NODES))


def wait_until_claims_are_made(pods: Pods) -> None:
    """Wait until admission gives all new pods their GPUs by claims.

    Admission reads the Lease now and then, and the number in it falls only with a new leader.
    """
    wait_until(lambda: are_announced(pods.api), "the leader announces claims nodes", 120)
    wait_until(lambda: gets_claim(pods), "admission knows the claims nodes")


def gets_claim(pods: Pods) -> bool:
    """Return whether admission gives a new pod its GPUs by a claim of Linkwise."""
    made = pods.create({keys.NVIDIA_GPU: 1}, name="probe", dryRun="All")
    return bool(made["spec"].get("resourceClaims"))


def wait_until_templates_are_placed(pods: Pods) -> None:
    """Wait until admission gates pods that bring templates; it reads policy and rights late."""
    request = {"name": "gpu", "exactly": {"deviceClassName": keys.DRA_GPU_DRIVER}}
    spec = {"spec": {"devices": {"requests": [request]}}}
    templates = f"/apis/resource.k8s.io/v1/namespaces/{pods.namespace}/resourceclaimtemplates"
    pods.api.create(templates, {"metadata": {"name": "probe"}, "spec": spec})
    claim = {"name": "gpu", "resourceClaimTemplateName": "probe"}
    resources = {"claims": [{"name": "gpu"}]}
    given = {
        "resourceClaims": [claim],
        "containers": [{**container(), "resources": resources}],
    }

    def is_gated() -> bool:
        return gates(pods.create(name="probe", spec=given, dryRun="All")) == [keys.GANG]

    wait_until(is_gated, "admission places claims of templates")
    pods.api.delete(f"{templates}/probe")
