"""training-operator beside a control plane: it makes the pods of MPIJobs and PyTorchJobs."""

import base64
import fcntl
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from controlplane.api import Object
from controlplane.binaries import CRDS, TRAINING_OPERATOR
from controlplane.definitions import define
from controlplane.node.image import IMAGE
from controlplane.plane import ControlPlane
from controlplane.process import Process, answers, free_ports, wait_until

_NAMESPACE = "kubeflow"
_SECRET = f"/api/v1/namespaces/{_NAMESPACE}/secrets/training-operator-webhook-cert"
_WEBHOOKS = "/apis/admissionregistration.k8s.io/v1/validatingwebhookconfigurations"
# The program has no option for this folder, so all its processes on one machine share it. Each
# reads it when it starts; nothing calls its webhooks, so any certificate will do afterwards.
_CERTIFICATES = Path("/tmp/k8s-webhook-server/serving-certs")  # noqa: S108


@contextmanager
def run_training_operator(plane: ControlPlane) -> Iterator[None]:
    """Run it, for MPIJobs and PyTorchJobs, without its own checks of them.

    Raises:
        NotReadyError: It did not become ready.
    """
    _prepare(plane)
    process = _process(plane)
    with _only_one_starts():
        plane.processes.start(process)
        wait_until(lambda: bool(_secret(plane)), "training-operator makes its certificate")
        # In a pod the kubelet would mount the Secret here, and the program waits for that.
        _CERTIFICATES.mkdir()
        for name, text in _secret(plane).items():
            (_CERTIFICATES / name).write_bytes(base64.b64decode(text))
        process.wait_ready(lambda: answers(f"{process.urls[0]}/readyz"))
    try:
        yield
    finally:
        plane.processes.stop(process)


@contextmanager
def _only_one_starts() -> Iterator[None]:
    """Wait until no other process of the machine uses the folder of certificates; empty it."""
    _CERTIFICATES.parent.mkdir(parents=True, exist_ok=True)
    with (_CERTIFICATES.parent / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        shutil.rmtree(_CERTIFICATES, ignore_errors=True)
        yield
        shutil.rmtree(_CERTIFICATES, ignore_errors=True)


def _prepare(plane: ControlPlane) -> None:
    """Create what its installation would: definition, namespace, Secret, webhooks (none)."""
    for path in plane.site.binaries.files(CRDS):
        made = plane.kubectl("apply", "--server-side", f"-f{path}")
        if made.returncode:
            raise ValueError(made.stderr)
    define(plane.api, "kubeflow.org", "PyTorchJob", "v1")
    namespaces, secrets = "/api/v1/namespaces", _SECRET.rpartition("/")[0]
    validator: Object = {"metadata": {"name": "validator.training-operator.kubeflow.org"}}
    for path, body in (
        (namespaces, {"metadata": {"name": _NAMESPACE}}),
        (secrets, {"metadata": {"name": _SECRET.rpartition("/")[2]}}),
        (_WEBHOOKS, validator),
    ):
        plane.api.create(path, body)


def _process(plane: ControlPlane) -> Process:
    metrics, probes, webhooks = free_ports(3)
    return Process(
        TRAINING_OPERATOR,
        (
            plane.site.binaries[TRAINING_OPERATOR],
            f"-kubeconfig={plane.kubeconfig}",
            "-enable-scheme=mpijob",
            "-enable-scheme=pytorchjob",
            f"-mpi-kubectl-delivery-image={IMAGE}",
            f"-metrics-bind-address=127.0.0.1:{metrics}",
            f"-health-probe-bind-address=127.0.0.1:{probes}",
            f"-webhook-server-port={webhooks}",
        ),
        plane.site.folder / f"{TRAINING_OPERATOR}.log",
        (f"http://127.0.0.1:{probes}",),
    )


def _secret(plane: ControlPlane) -> dict[str, str]:
    data: dict[str, str] = plane.api.get(_SECRET).get("data") or {}
    return data
