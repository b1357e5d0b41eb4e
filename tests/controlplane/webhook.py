"""Admission beside a control plane: what is shipped, with the process on this machine."""

import base64
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from certificates import Pair, a_ca, a_leaf
from controlplane.api import ApiError, Object
from controlplane.plane import ControlPlane
from controlplane.process import Process, answers, free_ports, wait_until

from cluster import keys

ROOT = Path(__file__).parents[2]
BASE = ROOT / "manifests/base"
NAMESPACE = keys.POLICY_NAMESPACE
ACCOUNT = "linkwise-webhook"
REGISTRATIONS = "/apis/admissionregistration.k8s.io/v1"
MUTATING = f"{REGISTRATIONS}/mutatingwebhookconfigurations/linkwise"
VALIDATING = f"{REGISTRATIONS}/validatingwebhookconfigurations/linkwise"


@dataclass(frozen=True, slots=True)
class Webhook:
    """What runs, and how it is reached."""

    plane: ControlPlane
    process: Process
    ports: tuple[int, int, int]
    """Of admission, of dry-run, of probes."""
    ca: Pair

    @property
    def probes(self) -> str:
        """Where probes and metrics are."""
        return f"http://127.0.0.1:{self.ports[2]}"

    @property
    def dry_run(self) -> str:
        """Where dry-run is."""
        return f"https://127.0.0.1:{self.ports[1]}"


@contextmanager
def run_webhook(plane: ControlPlane) -> Iterator[Webhook]:
    """Install what is shipped, and run the webhook here; only addresses differ.

    Raises:
        NotReadyError: It did not become ready.
    """
    _apply(plane)
    folder = plane.site.folder / "webhook"
    folder.mkdir()
    ca = a_ca()
    cert, key = a_leaf(ca).write(folder)
    token = folder / "token"
    token.write_text(plane.token(NAMESPACE, ACCOUNT))
    port, dry_run_port, probe_port = free_ports(3)
    process = Process(
        "webhook",
        (sys.executable, "-m", "webhook"),
        folder / "log",
        env={
            "PYTHONPATH": os.fspath(ROOT),
            "LINKWISE_HOST": "127.0.0.1",
            "LINKWISE_PORT": str(port),
            "LINKWISE_DRY_RUN_PORT": str(dry_run_port),
            "LINKWISE_PROBE_PORT": str(probe_port),
            "LINKWISE_CERTIFICATE": str(cert),
            "LINKWISE_KEY": str(key),
            "LINKWISE_API_SERVER": plane.server,
            "LINKWISE_API_TOKEN_FILE": str(token),
            "LINKWISE_API_CA_FILE": str(plane.ca_file),
            "LINKWISE_DRAIN_SECONDS": "0",
        },
    )
    webhook = Webhook(plane, process, (port, dry_run_port, probe_port), ca)
    plane.processes.start(process)
    try:
        process.wait_ready(lambda: answers(f"{webhook.probes}/readyz"))
        _register(webhook)
        yield webhook
    finally:
        plane.processes.stop(process)
        _delete(plane)


def _apply(plane: ControlPlane) -> None:
    applied = plane.kubectl("apply", "-k", str(BASE))
    if applied.returncode:
        raise ValueError(applied.stderr)


def _delete(plane: ControlPlane) -> None:
    plane.kubectl("delete", "--ignore-not-found", "-k", str(BASE))
    namespaces = "/api/v1/namespaces"
    wait_until(
        lambda: (
            NAMESPACE not in {one["metadata"]["name"] for one in plane.api.get(namespaces)["items"]}
        ),
        f"{NAMESPACE} is gone",
    )


def _register(webhook: Webhook) -> None:
    """Name this process in the registrations, as certs and a Service would."""
    bundle = base64.b64encode(webhook.ca.cert_pem).decode()
    for path, route in ((MUTATING, "/mutate"), (VALIDATING, "/validate")):
        client = {"url": f"https://127.0.0.1:{webhook.ports[0]}{route}", "caBundle": bundle}
        change = {"op": "replace", "path": "/webhooks/0/clientConfig", "value": client}
        webhook.plane.api.patch(path, [change], "json")
    wait_until(lambda: _is_in_force(webhook.plane), "the registrations are in force")


def _is_in_force(plane: ControlPlane) -> bool:
    """Say whether both are called: each refuses something that it alone minds."""
    limits = {"limits": {keys.GPU_CORE: "22"}}
    container = {"name": "main", "image": "registry.example/none", "resources": limits}
    pod = {"metadata": {"name": "probe"}, "spec": {"containers": [container]}}
    broken = {"metadata": {"name": keys.PROFILE_NAME}, "data": {keys.PROFILE_KEY: "["}}
    maps = f"/api/v1/namespaces/{keys.PROFILE_NAMESPACE}/configmaps"
    return all(
        _is_refused(plane, path, body)
        for path, body in (("/api/v1/namespaces/default/pods", pod), (maps, broken))
    )


def _is_refused(plane: ControlPlane, path: str, body: Object) -> bool:
    try:
        plane.api.create(path, body, dryRun="All")
    except ApiError as error:
        return "linkwise.dev" in error.message
    return False
