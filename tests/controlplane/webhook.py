"""Admission beside a control plane: as its own account, and registered for pods and ConfigMaps."""

import base64
import os
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

from certificates import Pair, a_ca, a_leaf
from controlplane.api import ApiError, Object
from controlplane.plane import ControlPlane
from controlplane.process import Process, answers, free_ports, wait_until

from cluster import keys

ROOT = Path(__file__).parents[2]
NAMESPACE = keys.POLICY_NAMESPACE
ACCOUNT = "linkwise-webhook"
_RBAC = "/apis/rbac.authorization.k8s.io/v1"
_REGISTRATION = "/apis/admissionregistration.k8s.io/v1"
MUTATING = f"{_REGISTRATION}/mutatingwebhookconfigurations"
VALIDATING = f"{_REGISTRATION}/validatingwebhookconfigurations"


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

    def client(self, path: str) -> Object:
        """Return how a registration names it."""
        bundle = base64.b64encode(self.ca.cert_pem).decode()
        return {"url": f"https://127.0.0.1:{self.ports[0]}{path}", "caBundle": bundle}


@contextmanager
def run_webhook(plane: ControlPlane) -> Iterator[Webhook]:
    """Run it and register it; what is registered fails closed, so that no test passes without it.

    Raises:
        NotReadyError: It did not become ready.
    """
    _prepare(plane)
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
        with _registered(webhook):
            yield webhook
    finally:
        plane.processes.stop(process)


def _prepare(plane: ControlPlane) -> None:
    watch = ["list", "watch"]
    subject = {"kind": "ServiceAccount", "name": ACCOUNT, "namespace": NAMESPACE}
    rules = [
        _rule("", ["namespaces", "nodes"], watch),
        _rule("authentication.k8s.io", ["tokenreviews"], ["create"]),
        _rule("authorization.k8s.io", ["subjectaccessreviews"], ["create"]),
    ]
    _create(plane, "/api/v1/namespaces", {"metadata": {"name": NAMESPACE}})
    _create(plane, f"/api/v1/namespaces/{NAMESPACE}/serviceaccounts", _named())
    _create(plane, f"{_RBAC}/clusterroles", _named(rules=rules))
    binding = _named(roleRef=_role_ref("ClusterRole"), subjects=[subject])
    _create(plane, f"{_RBAC}/clusterrolebindings", binding)
    homes = ((NAMESPACE, keys.POLICY_NAME), (keys.PROFILE_NAMESPACE, keys.PROFILE_NAME))
    for namespace, name in homes:
        maps = {**_rule("", ["configmaps"], watch), "resourceNames": [name]}
        role = _named(rules=[maps, _rule("", ["events"], ["create"])])
        path = f"{_RBAC}/namespaces/{namespace}"
        _create(plane, f"{path}/roles", role)
        binding = _named(roleRef=_role_ref("Role"), subjects=[subject])
        _create(plane, f"{path}/rolebindings", binding)


def _create(plane: ControlPlane, path: str, body: Object) -> None:
    try:
        plane.api.create(path, body)
    except ApiError as error:
        if error.reason != "AlreadyExists":
            raise


def _named(**fields: object) -> Object:
    return {"metadata": {"name": ACCOUNT}, **fields}


def _rule(group: str, resources: list[str], verbs: list[str]) -> dict[str, list[str]]:
    return {"apiGroups": [group], "resources": resources, "verbs": verbs}


def _role_ref(kind: str) -> Mapping[str, str]:
    return {"apiGroup": "rbac.authorization.k8s.io", "kind": kind, "name": ACCOUNT}


@contextmanager
def _registered(webhook: Webhook) -> Iterator[None]:
    api = webhook.plane.api
    home_names = ["kube-system", NAMESPACE, "kubeflow"]
    ours = {"key": keys.NAMESPACE_NAME, "operator": "NotIn", "values": home_names}
    homes = [keys.POLICY_NAMESPACE, keys.PROFILE_NAMESPACE]
    guarded = {"key": keys.NAMESPACE_NAME, "operator": "In", "values": homes}
    pods = {
        **_webhook("mutate.linkwise.dev", webhook.client("/mutate"), "pods", ["CREATE"]),
        "namespaceSelector": {"matchExpressions": [ours]},
        "reinvocationPolicy": "Never",
    }
    maps = {
        **_webhook(
            "validate.linkwise.dev", webhook.client("/validate"), "configmaps", ["CREATE", "UPDATE"]
        ),
        "namespaceSelector": {"matchExpressions": [guarded]},
    }
    api.create(MUTATING, _named(webhooks=[pods]))
    api.create(VALIDATING, _named(webhooks=[maps]))
    try:
        wait_until(lambda: _is_in_force(webhook.plane), "the registration is in force")
        yield
    finally:
        for path in (MUTATING, VALIDATING):
            with suppress(ApiError):
                api.delete(f"{path}/{ACCOUNT}")


def _webhook(name: str, client: Object, resource: str, operations: list[str]) -> Object:
    rule = {
        "apiGroups": [""],
        "apiVersions": ["v1"],
        "operations": operations,
        "resources": [resource],
    }
    return {
        "name": name,
        "clientConfig": client,
        "rules": [rule],
        "admissionReviewVersions": ["v1"],
        "sideEffects": "None",
        "failurePolicy": "Fail",
        "timeoutSeconds": 3,
    }


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
