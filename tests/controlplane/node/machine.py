"""A real node on this machine: containerd and kubelet, registered with the tests' API server."""

import json
import os
import shutil
import subprocess
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from ipaddress import ip_address
from pathlib import Path
from signal import SIGKILL

from controlplane import credentials
from controlplane.api import ApiError, Object
from controlplane.binaries import Binaries
from controlplane.node.image import BUSYBOX, IMAGE, write_image
from controlplane.node.place import Place, a_place
from controlplane.plane import ControlPlane
from controlplane.process import Process, answers, free_ports

NODES = "/api/v1/nodes"
_CNI = tuple(Path(name) for name in ("/usr/lib/cni", "/opt/cni/bin"))
_CRI = "plugins.'io.containerd.cri.v1"


def unavailable() -> str:
    """Return why no node can run on this machine, in one line; empty where one can."""
    if os.geteuid() != 0:
        return "a node needs root"
    missing = [name for name in ("runc", "nsenter", "unshare", "ip") if shutil.which(name) is None]
    if not _plugins():
        missing.append("containernetworking-plugins")
    # A program that is linked dynamically names its loader.
    if not BUSYBOX.exists() or b"/ld-linux" in BUSYBOX.read_bytes():
        missing.append("busybox-static")
    return f"a node needs {', '.join(missing)}" if missing else ""


@dataclass(slots=True)
class RealNode:
    """The node while it runs."""

    name: str
    plane: ControlPlane
    binaries: Binaries
    place: Place
    labels: Mapping[str, str]
    services: str = ""
    """Addresses that pods reach by way of the node; empty where they reach only each other."""
    containerd: Process = field(init=False)
    kubelet: Process = field(init=False)
    _port: int = field(default_factory=lambda: free_ports(1)[0])

    @property
    def kubelet_folder(self) -> Path:
        """The kubelet's folder, with the sockets of device plugins and of PodResources."""
        return self.place.folder / "lib/kubelet"

    @property
    def cdi_folders(self) -> tuple[Path, Path]:
        """Where containerd looks for CDI specs: a folder that stays, and one that is volatile."""
        return self.root / "etc/cdi", self.root / "var/run/cdi"

    @property
    def root(self) -> Path:
        """The root of the file system of the node, as far as its agent uses it."""
        return self.place.folder / "root"

    @property
    def path(self) -> str:
        """The path of the Node."""
        return f"{NODES}/{self.name}"

    def start(self) -> None:
        """Start all of it, and wait until pods can be scheduled to it."""
        self.place.start()
        for folder in self.cdi_folders:
            folder.mkdir(parents=True, exist_ok=True)
        self.start_containerd()
        self.start_kubelet()

    def start_containerd(self) -> None:
        """Start containerd, and wait until it has the image."""
        config, archive = self.place.folder / "containerd.toml", self.place.folder / "image.tar"
        config.write_text(self._containerd_config())
        self.containerd = self.place.process(
            "containerd", (self.binaries["containerd"], f"--config={config}")
        )
        # It finds the shim beside itself.
        self.containerd.env = {"PATH": f"{Path(self.binaries['ctr']).parent}:{os.environ['PATH']}"}
        self.plane.processes.start(self.containerd)
        self.containerd.wait_ready(lambda: self._ctr("version").returncode == 0)
        if not archive.exists():
            write_image(archive)
        done = self._ctr("-n", "k8s.io", "images", "import", str(archive))
        if done.returncode:
            raise ValueError(done.stderr)

    def start_kubelet(self) -> None:
        """Start the kubelet, and wait until pods can be scheduled to the node."""
        config = self.place.folder / "kubelet.json"
        config.write_text(json.dumps(self._kubelet_config()))
        labels = ",".join(f"{key}={value}" for key, value in self.labels.items())
        self.kubelet = self.place.process(
            "kubelet",
            (
                self.binaries["kubelet"],
                f"--config={config}",
                f"--kubeconfig={self.plane.site.kubeconfig(credentials.NODES)}",
                f"--hostname-override={self.name}",
                f"--node-ip={self.place.address}",
                f"--node-labels={labels}",
            ),
        )
        self.plane.processes.start(self.kubelet)
        self.kubelet.wait_ready(lambda: answers(f"http://127.0.0.1:{self._port}/healthz"))
        self.kubelet.wait_ready(self._is_ready)

    def kill_kubelet(self) -> None:
        """End the kubelet as a fault does; containers run on."""
        self.kubelet.signal(SIGKILL)
        self.plane.processes.stop(self.kubelet)

    def kill_container(self, pod: Object, container: str) -> None:
        """Kill the process of a container; the kubelet starts it again."""
        [status] = (
            each for each in pod["status"]["containerStatuses"] if each["name"] == container
        )
        name = status["containerID"].removeprefix("containerd://")
        killed = self._ctr("-n", "k8s.io", "tasks", "kill", "--signal=SIGKILL", name)
        if killed.returncode:
            raise ValueError(killed.stderr)

    def reboot(self) -> None:
        """End all that runs on the node, empty what a reboot empties, and start it again."""
        self.stop()
        shutil.rmtree(self.root / "var/run")
        self.start()

    def stop(self) -> None:
        """Kill all that runs on the node; its files stay."""
        for process in (self.kubelet, self.containerd):
            if process in self.plane.processes.running:
                self.plane.processes.stop(process)
        self.place.stop()

    def log(self, pod: Object, container: str, restart: int = 0) -> str:
        """Return what a container of a pod has written; empty before its start."""
        metadata = pod["metadata"]
        name = f"{metadata['namespace']}_{metadata['name']}_{metadata['uid']}"
        file = self.place.folder / "log/pods" / name / container / f"{restart}.log"
        if not file.exists():
            return ""
        # Each line begins with its time, its stream and whether it is complete.
        return "".join(line.split(" ", 3)[3] for line in file.read_text().splitlines(True))

    def import_image(self, archive: Path, name: str) -> None:
        """Give containerd the image of an OCI archive, by a name and the tag in the archive."""
        options = ("images", "import", f"--base-name={name}", str(archive))
        done = self._ctr("-n", "k8s.io", *options, seconds=300)
        if done.returncode:
            raise ValueError(done.stderr)

    def _ctr(self, *arguments: str, seconds: float = 60) -> subprocess.CompletedProcess[str]:
        argv = (*self.place.enter, self.binaries["ctr"], *arguments)
        return subprocess.run(argv, capture_output=True, text=True, check=False, timeout=seconds)

    def _is_ready(self) -> bool:
        node = self.plane.api.get(self.path)
        conditions = {one["type"]: one["status"] for one in node["status"]["conditions"]}
        return conditions.get("Ready") == "True" and not node["spec"].get("taints")

    def _kubelet_config(self) -> Object:
        client = self.plane.site.folder.resolve() / credentials.KUBELET_CLIENT
        return {
            "apiVersion": "kubelet.config.k8s.io/v1beta1",
            "kind": "KubeletConfiguration",
            # Pods of the node reach it, too, so it asks for the API server's certificate.
            "address": self.place.address,
            "port": free_ports(1)[0],
            "readOnlyPort": 0,
            "healthzBindAddress": "127.0.0.1",
            "healthzPort": self._port,
            "authentication": {
                "anonymous": {"enabled": False},
                "webhook": {"enabled": False},
                "x509": {"clientCAFile": str(client)},
            },
            "authorization": {"mode": "AlwaysAllow"},
            "containerRuntimeEndpoint": "unix:///run/containerd/containerd.sock",
            "cgroupDriver": "cgroupfs",
            "cgroupRoot": f"/{self.place.name}",
            "failCgroupV1": False,
            "failSwapOn": False,
            "makeIPTablesUtilChains": False,
            "resolvConf": "",
            "clusterDNS": [self.place.address],
            # A full disk of this machine is no matter of a test.
            "evictionHard": {"memory.available": "0%"},
            "imageGCHighThresholdPercent": 100,
            # Tests wait for these.
            "nodeStatusUpdateFrequency": "1s",
            "nodeStatusReportFrequency": "1m",
            "syncFrequency": "5s",
            "crashLoopBackOff": {"maxContainerRestartPeriod": "1s"},
        }

    def _containerd_config(self) -> str:
        """Return the configuration; TOML reads strings and lists of JSON."""
        folder = self.place.folder
        registries = folder / "registries/_default"
        registries.mkdir(parents=True, exist_ok=True)
        (registries / "hosts.toml").write_text('server = "https://127.0.0.1:1"\n')
        (folder / "cni").mkdir(exist_ok=True)
        (folder / "cni/bridge.conflist").write_text(json.dumps(self._network()))
        plugins = json.dumps([str(path) for path in _plugins()])
        return f"""
version = 3
[{_CRI}.images'.pinned_images]
sandbox = "{IMAGE}"
# Pods with other images, such as those of Linkwise's Deployments, ask no registry for them.
[{_CRI}.images'.registry]
config_path = "{folder / "registries"}"
[{_CRI}.runtime']
# Without it runc may not set the scores of containers on some virtual machines.
restrict_oom_score_adj = true
cdi_spec_dirs = {json.dumps([str(path) for path in self.cdi_folders])}
[{_CRI}.runtime'.cni]
bin_dirs = {plugins}
conf_dir = "{folder / "cni"}"
[plugins.'io.containerd.nri.v1.nri']
disable = true
"""

    def _network(self) -> Object:
        # The machine itself may have one of the first addresses of the network.
        first = str(ip_address(self.place.address) + 8)
        ranges = [[{"subnet": self.place.subnet, "rangeStart": first}]]
        ipam: Object = {"type": "host-local", "ranges": ranges}
        if self.services:
            ipam["routes"] = [{"dst": self.services, "gw": self.place.address}]
        bridge = {"type": "bridge", "bridge": self.place.name, "isGateway": False, "ipam": ipam}
        return {"cniVersion": "1.0.0", "name": self.place.name, "plugins": [bridge]}


@contextmanager
def real_node(
    plane: ControlPlane,
    binaries: Binaries,
    name: str,
    labels: Mapping[str, str],
    services: str = "",
) -> Iterator[RealNode]:
    """Run a node whose pods are real; afterwards nothing of it is on this machine.

    A node whose place is kept runs on.

    The control plane's kwok must leave the node alone. Logs are kept in the control plane's folder.

    Args:
        plane: The control plane.
        binaries: The kubelet and the programs of containerd.
        name: The name of the node.
        labels: The labels with which the kubelet registers it.
        services: As in `RealNode`.

    Raises:
        NotReadyError: Something did not become ready.
    """
    with a_place(plane.processes) as place:
        node = RealNode(name, plane, binaries, place, labels, services)
        try:
            node.start()
            yield node
        finally:
            if not place.kept:
                _end(node)


def _end(node: RealNode) -> None:
    with suppress(AttributeError):
        node.stop()
    logs = node.plane.site.folder / node.name
    shutil.copytree(node.place.folder / "log", logs, symlinks=True, dirs_exist_ok=True)
    remove(node.plane, node.name)


def remove(plane: ControlPlane, name: str) -> None:
    """Delete a Node that has no kubelet any more, and its pods."""
    for pod in plane.api.get("/api/v1/pods", fieldSelector=f"spec.nodeName={name}")["items"]:
        metadata = pod["metadata"]
        path = f"/api/v1/namespaces/{metadata['namespace']}/pods/{metadata['name']}"
        with suppress(ApiError):
            plane.api.delete(path, gracePeriodSeconds="0")
    with suppress(ApiError):
        plane.api.delete(f"{NODES}/{name}")


def _plugins() -> list[Path]:
    return [path for path in _CNI if (path / "bridge").exists()]
