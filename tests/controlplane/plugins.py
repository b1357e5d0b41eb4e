"""GPU Operator and Linkwise's agent on nodes of kwok: what their plugins offer, by the labels."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from controlplane.api import Api, ApiError, Object
from controlplane.background import Background
from controlplane.nodes import published

from linkwise.cluster import keys
from linkwise.topology import catalogue
from linkwise.topology.machine import Machine

GPUS = 8
MACHINE = catalogue.entry("dgx1-v100").machine
DEPLOY_PLUGIN = "nvidia.com/gpu.deploy.device-plugin"
OPERATOR_LABELS = {
    "feature.node.kubernetes.io/cpu-model.vendor_id": "Intel",
    "feature.node.kubernetes.io/kernel-version.major": "6",
    "feature.node.kubernetes.io/pci-10de.present": "true",
    "feature.node.kubernetes.io/system-os_release.ID": "ubuntu",
    "nvidia.com/cuda.driver-version.full": "570.133.20",
    "nvidia.com/cuda.driver-version.major": "570",
    "nvidia.com/cuda.runtime-version.full": "12.8",
    "nvidia.com/gfd.timestamp": "1767225600",
    "nvidia.com/gpu-driver-upgrade-state": "upgrade-done",
    "nvidia.com/gpu.compute.major": "7",
    "nvidia.com/gpu.compute.minor": "0",
    "nvidia.com/gpu.count": str(GPUS),
    "nvidia.com/gpu.deploy.container-toolkit": "true",
    "nvidia.com/gpu.deploy.dcgm": "true",
    "nvidia.com/gpu.deploy.dcgm-exporter": "true",
    DEPLOY_PLUGIN: "true",
    "nvidia.com/gpu.deploy.driver": "true",
    "nvidia.com/gpu.deploy.gpu-feature-discovery": "true",
    "nvidia.com/gpu.deploy.node-status-exporter": "true",
    "nvidia.com/gpu.deploy.operator-validator": "true",
    "nvidia.com/gpu.family": "volta",
    "nvidia.com/gpu.machine": "DGX-1-with-V100-16",
    "nvidia.com/gpu.memory": "16384",
    "nvidia.com/gpu.mode": "compute",
    "nvidia.com/gpu.present": "true",
    "nvidia.com/gpu.product": "Tesla-V100-SXM2-16GB",
    "nvidia.com/gpu.replicas": "1",
    "nvidia.com/gpu.sharing-strategy": "none",
    "nvidia.com/mig.capable": "false",
    "nvidia.com/mig.strategy": "single",
    "nvidia.com/mps.capable": "false",
    "nvidia.com/vgpu.present": "false",
}
"""As GPU Operator, node feature discovery and GPU feature discovery write them."""
OPERATOR_TAINT = {"key": "nvidia.com/gpu", "value": "present", "effect": "NoSchedule"}
OPERATOR_TOLERATION = {"key": "nvidia.com/gpu", "operator": "Exists", "effect": "NoSchedule"}


def operator_node(name: str, **labels: str) -> Object:
    """Return a node of 8 GPUs under GPU Operator."""
    offer = {"cpu": "96", "memory": "768Gi", "pods": "110", keys.NVIDIA_GPU: str(GPUS)}
    return {
        "metadata": {"name": name, "labels": {keys.HOSTNAME: name, **OPERATOR_LABELS, **labels}},
        "spec": {"taints": [OPERATOR_TAINT]},
        "status": {"allocatable": offer, "capacity": offer},
    }


def plugin_of_operator(container: Object | None = None) -> Object:
    """Return the DaemonSet with which GPU Operator runs NVIDIA's device plugin.

    Args:
        container: That of its pods, where they really run.
    """
    name = "nvidia-device-plugin-daemonset"
    spec = {
        "nodeSelector": {DEPLOY_PLUGIN: "true"},
        "tolerations": [OPERATOR_TOLERATION],
        "containers": [container or {"name": "plugin", "image": "registry.example/none"}],
        "terminationGracePeriodSeconds": 1,
    }
    template = {"metadata": {"labels": {"app": name}}, "spec": spec}
    selector = {"matchLabels": {"app": name}}
    return {"metadata": {"name": name}, "spec": {"selector": selector, "template": template}}


@dataclass(slots=True)
class Plugins(Background):
    """Use it in `with`: it offers GPUs of nodes while a pod of a plugin runs there."""

    api: Api
    nodes: tuple[str, ...]
    machine: Machine = MACHINE
    faults: list[str] = field(default_factory=list)
    """What two plugins did at once."""
    _offered: dict[str, str] = field(default_factory=dict)
    """By node: the plugin whose GPUs it shows."""
    _modes: dict[str, str] = field(default_factory=dict)
    """By node: the mode that the agent has published as in use."""

    def _run(self) -> None:
        while not self._over.wait(0.2):
            pods = self.api.get("/api/v1/pods")["items"]
            for name in self.nodes:
                here = [pod for pod in pods if pod["spec"].get("nodeName") == name]
                labels = [pod["metadata"].get("labels", {}) for pod in here]
                self._update(name, [found for one in labels if (found := _plugin(one))])
                if self._offered.get(name) == "agent":
                    self._publish_mode(name, "topology" if any(map(_has_gpus, here)) else "none")

    def _update(self, name: str, running: list[str]) -> None:
        if len(running) > 1:
            self.faults.append(f"{', '.join(running)} run on {name}")
        plugin = running[0] if running else ""
        if self._offered.get(name, "nvidia") == plugin:
            return
        node = self.api.get(f"/api/v1/nodes/{name}")
        if plugin == "agent":
            topology = published(name, "topology", self.machine, node["metadata"]["uid"])
            self.api.create(f"/api/v1/namespaces/{keys.TOPOLOGY_NAMESPACE}/configmaps", topology)
        # A kubelet shows 0 while no plugin is registered.
        amounts = {keys.NVIDIA_GPU: str(GPUS if plugin else 0)}
        status = {"allocatable": amounts, "capacity": amounts}
        self.api.patch(f"/api/v1/nodes/{name}/status", {"status": status})
        self._offered[name] = plugin

    def _publish_mode(self, name: str, mode: str) -> None:
        if self._modes.get(name) != mode:
            annotations = {keys.MODE_IN_USE: mode}
            self.api.patch(f"/api/v1/nodes/{name}", {"metadata": {"annotations": annotations}})
            self._modes[name] = mode


def _has_gpus(pod: Object) -> bool:
    limits = [
        container.get("resources", {}).get("limits", {}) for container in pod["spec"]["containers"]
    ]
    return any(keys.NVIDIA_GPU in each for each in limits)


def _plugin(labels: Mapping[str, str]) -> str:
    """Return the plugin of a pod with these labels; empty where it is none."""
    if labels.get("app") == "nvidia-device-plugin-daemonset":
        return "nvidia"
    return "agent" if labels.get("app.kubernetes.io/component") == "agent" else ""


def delete_nodes(api: Api, *names: str) -> None:
    """Delete nodes and what was published about them."""
    for name in names:
        maps = f"/api/v1/namespaces/{keys.TOPOLOGY_NAMESPACE}/configmaps"
        for path in (f"/api/v1/nodes/{name}", f"{maps}/{keys.TOPOLOGY_NAME_PREFIX}{name}"):
            try:
                api.delete(path)
            except ApiError as error:
                if error.status != 404:
                    raise
