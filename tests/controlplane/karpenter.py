"""Karpenter beside a control plane: it adds nodes of kwok, each with 8 GPUs."""

import json
from collections.abc import Iterator
from contextlib import contextmanager, suppress

from controlplane.api import ApiError, Object
from controlplane.binaries import Binaries
from controlplane.other_programs import AUTOSCALER_CRDS, KARPENTER
from controlplane.plane import ControlPlane
from controlplane.process import Process, answers, free_ports

from linkwise.cluster import keys

POOL = "gpu"
TAINT = {"key": "nvidia.com/gpu", "value": "present", "effect": "NoSchedule"}
TOLERATION = {"key": "nvidia.com/gpu", "operator": "Exists", "effect": "NoSchedule"}
_API = "karpenter.sh/v1"
_POOLS = f"/apis/{_API}/nodepools"
_CLASSES = "/apis/karpenter.kwok.sh/v1alpha1/kwoknodeclasses"
_NODE_CLASS = {"apiVersion": "karpenter.kwok.sh/v1alpha1", "kind": "KWOKNodeClass"}
_CLAIMS = f"/apis/{_API}/nodeclaims"


def install_crds(plane: ControlPlane, binaries: Binaries) -> None:
    """Install the definitions of ProvisioningRequests and of Karpenter's kinds.

    Raises:
        ValueError: They cannot be applied.
    """
    for path in binaries.files(AUTOSCALER_CRDS):
        made = plane.kubectl("apply", "--server-side", f"-f{path}")
        if made.returncode:
            raise ValueError(made.stderr)


@contextmanager
def run_karpenter(plane: ControlPlane, binaries: Binaries, nodes: int) -> Iterator[None]:
    """Run it with one pool of at most so many nodes; at the end its nodes are deleted.

    Raises:
        NotReadyError: It did not become ready.
    """
    install_crds(plane, binaries)
    process = _process(plane, binaries)
    plane.api.create(_CLASSES, {**_NODE_CLASS, "metadata": {"name": POOL}})
    plane.api.create(_POOLS, _pool(nodes))
    plane.processes.start(process)
    process.wait_ready(lambda: answers(f"{process.urls[0]}/readyz"))
    try:
        yield
    finally:
        plane.processes.stop(process)
        _remove(plane)


def _remove(plane: ControlPlane) -> None:
    for path in (_CLAIMS, "/api/v1/nodes"):
        for one in plane.api.get(path)["items"]:
            # Nothing removes Karpenter's finalizers any more; an object may be gone meanwhile.
            name, free = one["metadata"]["name"], {"metadata": {"finalizers": []}}
            with suppress(ApiError):
                plane.api.patch(f"{path}/{name}", free)
                plane.api.delete(f"{path}/{name}")
    plane.api.delete(f"{_POOLS}/{POOL}")
    plane.api.delete(f"{_CLASSES}/{POOL}")


def _pool(nodes: int) -> Object:
    requirement = {"key": "karpenter.sh/capacity-type", "operator": "In", "values": ["on-demand"]}
    return {
        "apiVersion": _API,
        "kind": "NodePool",
        "metadata": {"name": POOL},
        "spec": {
            "limits": {keys.GPU_WHOLE: 8 * nodes},
            "disruption": {"consolidateAfter": "Never"},
            "template": {
                "metadata": {"labels": {keys.NODE_MODE: "topology"}},
                "spec": {
                    "nodeClassRef": {
                        "group": "karpenter.kwok.sh",
                        "kind": "KWOKNodeClass",
                        "name": POOL,
                    },
                    "requirements": [requirement],
                    "taints": [TAINT],
                },
            },
        },
    }


def _process(plane: ControlPlane, binaries: Binaries) -> Process:
    metrics, probes = free_ports(2)
    types = plane.site.folder / "instance-types.json"
    requirements = [
        {"key": key, "operator": "In", "values": [value]}
        for key, value in (
            ("karpenter.sh/capacity-type", "on-demand"),
            ("topology.kubernetes.io/zone", "zone-a"),
        )
    ]
    offering = {"Price": 1, "Available": True, "Requirements": requirements}
    resources = {"cpu": "96", "memory": "768Gi", "pods": "110", keys.GPU_WHOLE: "8"}
    machine = {
        "name": "gpu-8x",
        "offerings": [offering],
        "architecture": "amd64",
        "operatingSystems": ["linux"],
        "resources": {**resources, "ephemeral-storage": "1Ti"},
    }
    types.write_text(json.dumps([machine]))
    return Process(
        KARPENTER,
        (
            binaries[KARPENTER],
            f"--metrics-port={metrics}",
            f"--health-probe-port={probes}",
            "--disable-leader-election=true",
            f"--instance-types-file-path={types}",
            "--batch-idle-duration=1s",
        ),
        plane.site.folder / f"{KARPENTER}.log",
        (f"http://127.0.0.1:{probes}",),
        env={"KUBECONFIG": str(plane.kubeconfig)},
    )
