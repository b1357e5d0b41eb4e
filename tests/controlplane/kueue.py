"""Kueue beside a control plane: its own manifests and controller; only addresses differ."""

import json
from base64 import b64encode
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import yaml
from controlplane import credentials
from controlplane.api import Object
from controlplane.binaries import Binaries
from controlplane.other_programs import KUEUE, KUEUE_CONFIG
from controlplane.plane import ControlPlane
from controlplane.process import Process, answers, free_ports, wait_until
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat
from support.certificates import a_ca, a_leaf

QUEUE_LABEL = "kueue.x-k8s.io/queue-name"
ADMISSION_GATE = "kueue.x-k8s.io/admission"
_API = "kueue.x-k8s.io/v1beta2"
CLUSTER_QUEUES = f"/apis/{_API}/clusterqueues"
_FLAVORS = f"/apis/{_API}/resourceflavors"
_ADMISSION = "/apis/admissionregistration.k8s.io/v1"
_SUFFIX = "-webhook-configuration"
_NAMESPACE, _ACCOUNT = "kueue-system", "kueue-controller-manager"
_SERVER_NAME = "kueue-webhook-service.kueue-system.svc"
_CA_NAME = "kueue-ca"
_NOT_APPLIED = {"APIService", "Deployment", "Service"}
_DAYS = 1000
"""Kueue replaces certificates that expire within 90 days."""


@contextmanager
def run_kueue(plane: ControlPlane, binaries: Binaries, folder: Path) -> Iterator[Process]:
    """Install Kueue and run its controller, under its own ServiceAccount.

    Afterwards only its webhooks are gone, since the objects have its finalizer.

    Args:
        plane: The control plane.
        binaries: The program and its manifests.
        folder: Empty.

    Raises:
        NotReadyError: It did not become ready.
    """
    port, probes, metrics = free_ports(3)
    certificates = _write_certificates(folder)
    objects = _manifests(plane, binaries)
    config = next(one for one in objects if one["kind"] == "ConfigMap")
    applied = [_at_address(one, port, certificates) for one in objects]
    done = plane.kubectl(
        "apply",
        "--server-side",
        "-f-",
        stdin=json.dumps({"apiVersion": "v1", "kind": "List", "items": applied}),
    )
    if done.returncode:
        raise ValueError(done.stderr)
    process = Process(
        KUEUE,
        (
            binaries[KUEUE],
            f"--config={_write_config(config, folder, port, probes, metrics)}",
            f"--kubeconfig={_write_kubeconfig(plane, folder)}",
            # Its server has a fixed port.
            "--feature-gates=VisibilityOnDemand=false",
        ),
        folder / "kueue.log",
        (f"http://127.0.0.1:{probes}",),
    )
    plane.processes.start(process)
    try:
        process.wait_ready(lambda: answers(f"{process.urls[0]}/readyz"))
        yield process
    finally:
        for kind in ("mutating", "validating"):
            plane.api.delete(f"{_ADMISSION}/{kind}webhookconfigurations/kueue-{kind}{_SUFFIX}")
        plane.processes.stop(process)


def make_queue(plane: ControlPlane, name: str, namespace: str, quota: dict[str, int]) -> None:
    """Create a LocalQueue and its ClusterQueue, and wait until it admits.

    Args:
        plane: The control plane.
        name: Of both, and of the ResourceFlavor.
        namespace: Of the LocalQueue.
        quota: The amount of each resource.
    """
    plane.api.create(_FLAVORS, _object("ResourceFlavor", name))
    resources = [{"name": key, "nominalQuota": str(amount)} for key, amount in quota.items()]
    flavors = [{"name": name, "resources": resources}]
    groups = [{"coveredResources": list(quota), "flavors": flavors}]
    queue = _object("ClusterQueue", name, namespaceSelector={}, resourceGroups=groups)
    plane.api.create(CLUSTER_QUEUES, queue)
    queues = f"/apis/{_API}/namespaces/{namespace}/localqueues"
    plane.api.create(queues, _object("LocalQueue", name, clusterQueue=name))

    def is_active() -> bool:
        conditions = plane.api.get(f"{queues}/{name}").get("status", {}).get("conditions", [])
        return any(one["type"] == "Active" and one["status"] == "True" for one in conditions)

    wait_until(is_active, f"queue {name} admits")


def set_stop_policy(plane: ControlPlane, name: str, policy: str) -> None:
    """Stop or start the admission of a ClusterQueue: `Hold`, `HoldAndDrain` or `None`."""
    plane.api.patch(f"{CLUSTER_QUEUES}/{name}", {"spec": {"stopPolicy": policy}})


def _object(kind: str, name: str, **spec: object) -> Object:
    return {"apiVersion": _API, "kind": kind, "metadata": {"name": name}, "spec": spec}


def _manifests(plane: ControlPlane, binaries: Binaries) -> list[Object]:
    rendered = plane.kubectl("kustomize", f"{binaries[KUEUE_CONFIG]}/default")
    if rendered.returncode:
        raise ValueError(rendered.stderr)
    objects: list[Object] = list(yaml.safe_load_all(rendered.stdout))
    return [one for one in objects if one["kind"] not in _NOT_APPLIED]


def _write_certificates(folder: Path) -> dict[str, str]:
    """Write what a kubelet would mount, and return the data of the Secret.

    Kueue keeps a Secret whose certificates are valid for its names, with a CA as it makes one.
    """
    ca = a_ca(days=_DAYS, elliptic=False, names=[_CA_NAME])
    traditional = PrivateFormat.TraditionalOpenSSL
    leaf = a_leaf(ca, days=_DAYS, names=[_SERVER_NAME])
    data = {
        "ca.crt": ca.cert_pem,
        "ca.key": ca.key.private_bytes(Encoding.PEM, traditional, NoEncryption()),
        "tls.crt": leaf.cert_pem,
        "tls.key": leaf.key_pem,
    }
    for name, content in data.items():
        (folder / name).write_bytes(content)
    return {name: b64encode(content).decode() for name, content in data.items()}


def _at_address(one: Object, port: int, certificates: dict[str, str]) -> Object:
    """Return an object with addresses on this machine instead of a Service's."""
    clients: list[Any] = [hook["clientConfig"] for hook in one.get("webhooks", ())]
    if conversion := one.get("spec", {}).get("conversion", {}).get("webhook"):
        clients.append(conversion["clientConfig"])
    for client in clients:
        path = client.pop("service")["path"]
        client.update(url=f"https://127.0.0.1:{port}{path}", caBundle=certificates["ca.crt"])
    if one["kind"] == "Secret":
        one["data"] = certificates
    return one


def _write_config(config: Object, folder: Path, port: int, probes: int, metrics: int) -> Path:
    """Write the configuration that is shipped, with other addresses."""
    shipped = yaml.safe_load(config["data"]["controller_manager_config.yaml"])
    shipped["health"] = {"healthProbeBindAddress": f"127.0.0.1:{probes}"}
    shipped["metrics"] = {"bindAddress": f"127.0.0.1:{metrics}"}
    shipped["webhook"] = {"port": port, "host": "127.0.0.1", "certDir": str(folder)}
    shipped["leaderElection"] = {"leaderElect": False}
    path = folder / "config.yaml"
    path.write_text(yaml.safe_dump(shipped))
    return path


def _write_kubeconfig(plane: ControlPlane, folder: Path) -> Path:
    token = plane.token(_NAMESPACE, _ACCOUNT)
    path = folder / "kubeconfig"
    path.write_text(credentials.kubeconfig(plane.server, plane.ca_file, token))
    return path
