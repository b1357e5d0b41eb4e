"""The chart and the image on a real node: pods of Linkwise, reached through their Services.

There is no kube-proxy. The API server goes to the endpoints of a Service itself, and pods reach the
API server at the address of its Service, which the bridge of the node has.
"""

import base64
import os
import shutil
import stat
import subprocess
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from ipaddress import ip_network
from pathlib import Path

from controlplane.api import Api, Object
from controlplane.chart import CHART, RELEASE
from controlplane.manifests import MUTATING, NAMESPACE, NAMESPACES
from controlplane.node.gpus import StandInGPUs
from controlplane.node.machine import RealNode
from controlplane.plane import ControlPlane
from controlplane.process import free_ports, wait_until
from controlplane.relay import Relay
from controlplane.webhook import PATIENT
from cryptography.hazmat.primitives.serialization import Encoding
from cryptography.x509 import load_pem_x509_certificates
from nvml.standin import MACHINE

IMAGE = "registry.example/linkwise"
DEPLOYMENTS = ("certs", "scorer", "webhook", "webhook-standby")
PATIENCE = 300
"""How long to wait for a Deployment [s]: kubelets mount a late Secret after up to two minutes."""
PROPAGATION = 30
"""Each wait of a rotation of the CA [s]; kubelets of the tests look for new Secrets every 5 s."""
_HOST_PATHS = {path: path for path in ("/", "/dev", "/run/linkwise")}
_HOST_PATHS["{{ $cdi }}"] = "/var/run/cdi"
"""What the agent uses of its node, and the tests have in a folder: as its template writes it."""
_DEVICES = {"null": (1, 3), "zero": (1, 5), "random": (1, 8), "urandom": (1, 9)}


def a_service_range() -> str:
    """Return a range of Service addresses; most runs at the same time use different ones."""
    (port,) = free_ports(1)
    return f"198.51.100.{32 * (port // 250 % 8)}/27"


def api_server_flags(services: str) -> Sequence[str]:
    """Return the flags of an API server that reaches Services without kube-proxy."""
    return ["--enable-aggregator-routing=true", f"--service-cluster-ip-range={services}"]


@dataclass(frozen=True, slots=True)
class Deployment:
    """The release of the chart."""

    plane: ControlPlane
    node: RealNode
    helm: str
    chart: Path

    @property
    def api(self) -> Api:
        """The API server."""
        return self.plane.api

    def install(self, *options: str) -> None:
        """Install the chart, and wait until all its pods are ready."""
        image = f"--set=image.repository={IMAGE},image.pullPolicy=Never"
        self._helm("install", str(self.chart), image, *options)
        self.wait()

    def upgrade(self, *options: str) -> None:
        """Upgrade the release with the values it has and others, and wait."""
        self._helm("upgrade", str(self.chart), "--reset-then-reuse-values", *options)
        self.wait()

    def test(self) -> None:
        """Run the test of the release.

        Raises:
            ValueError: It fails.
        """
        self._helm("test")

    def uninstall(self) -> None:
        """Uninstall the release."""
        self._helm("uninstall")

    def restart(self, *names: str) -> None:
        """Replace all pods of Deployments as `kubectl rollout restart` does, and wait."""
        for name in names:
            words = ("rollout", "restart", f"deployment/linkwise-{name}")
            done = self.plane.kubectl("--namespace", NAMESPACE, *words)
            if done.returncode:
                raise ValueError(done.stderr)
        self.wait()

    def wait(self) -> None:
        """Wait until each Deployment has only pods of its present template, all ready."""
        for name in DEPLOYMENTS:
            wait_until(lambda name=name: self._is_rolled_out(name), f"{name} is there", PATIENCE)

    def trusted(self) -> set[bytes]:
        """Return the CAs by which the API server verifies the webhook: DER."""
        registration = self.api.get(MUTATING)
        bundles = {
            base64.b64decode(one["clientConfig"]["caBundle"]) for one in registration["webhooks"]
        }
        (bundle,) = bundles
        return {each.public_bytes(Encoding.DER) for each in load_pem_x509_certificates(bundle)}

    def pods(self) -> list[Object]:
        """Return the pods of the release that have not ended."""
        found = self.api.get(f"{NAMESPACES}/{NAMESPACE}/pods")["items"]
        return [pod for pod in found if "deletionTimestamp" not in pod["metadata"]]

    def _is_rolled_out(self, name: str) -> bool:
        path = f"/apis/apps/v1/namespaces/{NAMESPACE}/deployments/linkwise-{name}"
        found = self.api.get(path)
        status, wanted = found["status"], found["spec"]["replicas"]
        counts = (status.get(key, 0) for key in ("replicas", "updatedReplicas", "readyReplicas"))
        is_seen = status.get("observedGeneration") == found["metadata"]["generation"]
        return is_seen and set(counts) == {wanted}

    def _helm(self, command: str, *options: str) -> None:
        argv = (
            self.helm, command, RELEASE, f"--namespace={NAMESPACE}",
            f"--kubeconfig={self.plane.kubeconfig}", *options,
        )  # fmt: skip
        done = subprocess.run(argv, capture_output=True, text=True, check=False, timeout=PATIENCE)
        if done.returncode:
            raise ValueError(done.stderr)


@contextmanager
def reachable(plane: ControlPlane, node: RealNode) -> Iterator[None]:
    """Let pods of a node reach the API server at the address of its Service."""
    address = str(next(ip_network(node.services).hosts()))
    argv = ("ip", "address", "add", f"{address}/32", "dev", node.place.name)
    subprocess.run(argv, check=True, timeout=60)
    with Relay(lambda: [plane.site.ports["kube-apiserver"]], (address, 443)):
        yield


def chart_for(gpus: StandInGPUs, folder: Path) -> Path:
    """Copy the chart, with the folders of stand-in GPUs where its agent uses those of a node.

    Times differ, too: a busy machine may stand still for longer than the shipped 3 s, and a test
    does not wait for as long as a cluster may need to read a new CA.
    """
    chart = shutil.copytree(CHART, folder / "linkwise")
    described = f"/host/{gpus.nvml.path.relative_to(gpus.root)}"
    folders = {
        f"hostPath: {{path: {written},": f"hostPath: {{path: {gpus.root}{path.rstrip('/')},"
        for written, path in _HOST_PATHS.items()
    }
    _edit(chart / "templates/agent/agent.yaml", folders)
    times = {"timeoutSeconds: 3\n": f"timeoutSeconds: {PATIENT}\n"}
    _edit(chart / "templates/base/webhook-configurations.yaml", times)
    settings = "  mode: self\n  replicas: 2\n  # As webhook.settings.\n  settings: {"
    values = {
        settings: f"{settings}LINKWISE_PROPAGATION_SECONDS: {PROPAGATION}",
        "extraEnv: [": f"extraEnv: [{{name: {MACHINE}, value: {described}}}",
    }
    _edit(chart / "values.yaml", values)
    return chart


def _edit(file: Path, changes: Mapping[str, str]) -> None:
    text = file.read_text(encoding="utf-8")
    for old, new in changes.items():
        if old not in text:
            raise ValueError(f"{file}: no {old}")
        text = text.replace(old, new)
    file.write_text(text, encoding="utf-8")


def prepare(node: RealNode, gpus: StandInGPUs) -> None:
    """Make the folder of stand-in GPUs what the agent expects of a node.

    It has the devices that each program needs, and its mounts are seen in containers.
    """
    for name, (major, minor) in _DEVICES.items():
        os.mknod(gpus.root / "dev" / name, stat.S_IFCHR | 0o666, os.makedev(major, minor))
    share = 'mount --bind "$1" "$1" && mount --make-shared "$1"'
    argv = (*node.place.enter, "sh", "-c", share, "sh", str(gpus.root))
    subprocess.run(argv, check=True, timeout=60)


def create_namespace(api: Api) -> None:
    """Create the namespace of the release; Pod Security enforces the level `restricted` there."""
    labels = {"pod-security.kubernetes.io/enforce": "restricted"}
    api.create(NAMESPACES, {"metadata": {"name": NAMESPACE, "labels": labels}})
