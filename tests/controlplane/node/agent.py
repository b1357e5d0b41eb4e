"""Run the agent of a real node as a process of this machine, under its own ServiceAccount."""

import os
import re
import sys
from dataclasses import dataclass
from urllib.request import urlopen

from controlplane.api import Object, refusal
from controlplane.manifests import NAMESPACES, ROOT
from controlplane.node.gpus import StandInGPUs
from controlplane.node.machine import RealNode
from controlplane.plane import ControlPlane
from controlplane.process import Process, answers, free_ports, wait_until
from nvml.standin import MACHINE

from linkwise.cluster.keys import AGENT, TOPOLOGY_NAME_PREFIX, TOPOLOGY_NAMESPACE

_MANIFESTS = ROOT / "manifests/agent"
# Without the DaemonSet, whose pods would need an image of the project.
_FILES = ("namespace.yaml", "access.yaml", "policy.yaml", "node-mode.yaml")
_TOKENS = f"{NAMESPACES}/{AGENT}/serviceaccounts/{AGENT}/token"


@dataclass(slots=True)
class Agent:
    """The agent of a node."""

    node: RealNode
    gpus: StandInGPUs
    process: Process
    probes: str
    """The address of probes and metrics."""

    @property
    def published(self) -> Object | None:
        """The topology ConfigMap of the node, or None."""
        path = f"{NAMESPACES}/{TOPOLOGY_NAMESPACE}/configmaps"
        name = f"{TOPOLOGY_NAME_PREFIX}{self.node.name}"
        items = self.node.plane.api.get(path, fieldSelector=f"metadata.name={name}")["items"]
        return items[0] if items else None

    @property
    def ready(self) -> bool:
        """Whether its readiness probe succeeds."""
        return answers(f"{self.probes}/readyz")

    @property
    def metrics(self) -> str:
        """Its metrics, as text."""
        with urlopen(f"{self.probes}/metrics", timeout=10) as answer:  # noqa: S310
            text: str = answer.read().decode()
        return text

    def holders(self) -> dict[str, set[int]]:
        """Return the GPUs of pods by its metrics, by the UIDs of the pods."""
        found: dict[str, set[int]] = {}
        for labels in re.findall(r"^linkwise_gpu_holder\{(.*)\} 1", self.metrics, re.MULTILINE):
            values = dict(re.findall(r'(\w+)="([^"]*)"', labels))
            found.setdefault(values["uid"], set()).add(int(values["gpu"]))
        return found

    def start(self) -> None:
        """Start it, and wait until it is ready."""
        self.node.plane.processes.start(self.process)
        self.process.wait_ready(lambda: self.ready)

    def stop(self) -> None:
        """End it."""
        if self.process in self.node.plane.processes.running:
            self.node.plane.processes.stop(self.process)

    def kill(self) -> None:
        """End it as a fault does."""
        self.process.signal(9)
        self.stop()


def agent_of(node: RealNode, gpus: StandInGPUs) -> Agent:
    """Return the agent of a node, to be started.

    Only addresses and folders differ from a cluster's.
    """
    (port,) = free_ports(1)
    probes = f"http://127.0.0.1:{port}"
    token = node.place.folder / "agent.token"
    environment = {
        "PYTHONPATH": os.fspath(ROOT),
        "LINKWISE_NODE_NAME": node.name,
        "LINKWISE_HOST": "127.0.0.1",
        "LINKWISE_PROBE_PORT": str(port),
        "LINKWISE_HOST_ROOT": str(gpus.root),
        "LINKWISE_KUBELET_DIR": str(node.kubelet_folder),
        "LINKWISE_CDI_DIR": str(gpus.root / "var/run/cdi"),
        "LINKWISE_SYS_DIR": str(gpus.root / "sys"),
        "LINKWISE_API_SERVER": node.plane.server,
        "LINKWISE_API_TOKEN_FILE": str(token),
        "LINKWISE_API_CA_FILE": str(node.plane.ca_file),
        MACHINE: str(gpus.nvml.path),
    }
    install_rights(node.plane)
    token.write_text(_token(node))
    log = node.place.folder / "log/agent.log"
    argv = (sys.executable, "-m", "agent")
    return Agent(node, gpus, Process("agent", argv, log, (probes,), environment), probes)


def install_rights(plane: ControlPlane) -> None:
    """Install the namespace, the account, its rights and the policies; wait until it may work."""
    for name in _FILES:
        applied = plane.kubectl("apply", f"--filename={_MANIFESTS / name}")
        if applied.returncode:
            raise ValueError(applied.stderr)
    api = plane.api_as(plane.token(AGENT, AGENT))
    wait_until(lambda: refusal(lambda: api.get("/api/v1/nodes")) == "", "the agent may read nodes")


def _token(node: RealNode) -> str:
    """Return a token that names the node, as that of the agent's pod does."""
    uid = node.plane.api.get(node.path)["metadata"]["uid"]
    reference = {"apiVersion": "v1", "kind": "Node", "name": node.name, "uid": uid}
    spec = {"expirationSeconds": 365 * 86_400, "boundObjectRef": reference}
    answer = node.plane.api.create(_TOKENS, {"spec": spec})
    return str(answer["status"]["token"])
