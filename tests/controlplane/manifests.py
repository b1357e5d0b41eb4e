"""Linkwise's manifests on a control plane; one test module after the other shares them."""

from contextlib import suppress
from pathlib import Path

from controlplane.api import ApiError
from controlplane.plane import ControlPlane
from controlplane.process import wait_until

from linkwise.cluster import keys

ROOT = Path(__file__).parents[2]
BASE = ROOT / "manifests/base"
WITH_SCHEDULER = ROOT / "manifests/scheduler"
NAMESPACE = keys.POLICY_NAMESPACE
NAMESPACES = "/api/v1/namespaces"
DEFINITIONS = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
GANGS = "gangs.linkwise.dev"
REGISTRATIONS = "/apis/admissionregistration.k8s.io/v1"
MUTATING = f"{REGISTRATIONS}/mutatingwebhookconfigurations/linkwise"
VALIDATING = f"{REGISTRATIONS}/validatingwebhookconfigurations/linkwise"
NOT_FENCE = "app.kubernetes.io/component!=fence"
_WRITTEN_BY_COMPONENTS = (
    f"/apis/coordination.k8s.io/v1/namespaces/{NAMESPACE}/leases",
    f"{NAMESPACES}/{NAMESPACE}/secrets",
)


def complaints(stderr: str) -> str:
    """Return what a script with kubectl complains about.

    1.36 serves DeviceTaintRules only in a version that ends with 1.42, of which kubectl warns.
    """
    lines = stderr.splitlines(keepends=True)
    return "".join(line for line in lines if "DeviceTaintRule is deprecated" not in line)


def install(plane: ControlPlane, manifests: Path = BASE) -> None:
    """Apply the manifests of a folder, and undo what tests changed in them.

    Manifests of the same folder that are there are kept: to delete them takes several seconds.
    Manifests of another folder are deleted.

    Raises:
        ValueError: They cannot be applied.
    """
    if plane.manifests == manifests:
        # `kubectl apply` keeps the addresses and certificates that tests write into registrations.
        options = ("--ignore-not-found", f"--filename={BASE / 'webhook-configurations.yaml'}")
        plane.kubectl("delete", *options)
        for path in _WRITTEN_BY_COMPONENTS:
            plane.api.delete(path)
    else:
        uninstall(plane)
    _delete_remaining_pods(plane)
    plane.manifests = manifests
    applied = plane.kubectl("apply", "-k", str(manifests))
    if applied.returncode:
        raise ValueError(applied.stderr)


def uninstall(plane: ControlPlane) -> None:
    """Delete the manifests as the documentation says, and wait until they are gone."""
    if plane.manifests is None:
        return
    options = ("--ignore-not-found", "--wait=false", f"--selector={NOT_FENCE}")
    plane.kubectl("delete", *options, "-k", str(plane.manifests))
    wait_until(lambda: NAMESPACE not in names(plane, NAMESPACES), f"{NAMESPACE} is gone", 300)
    wait_until(lambda: GANGS not in names(plane, DEFINITIONS), f"{GANGS} is gone", 300)
    plane.manifests = None


def _delete_remaining_pods(plane: ControlPlane) -> None:
    """Delete the pods of terminating namespaces, which would take GPUs of the next test's nodes."""

    def are_gone() -> bool:
        namespaces = [
            item["metadata"]["name"]
            for item in plane.api.get(NAMESPACES)["items"]
            if "deletionTimestamp" in item["metadata"]
        ]
        collections = [f"{NAMESPACES}/{name}/pods" for name in namespaces]
        for path in collections:
            # One request may not delete thousands in its time.
            with suppress(ApiError, OSError):
                plane.api.delete(path, gracePeriodSeconds="0")
        return not any(plane.api.get(path, limit="1")["items"] for path in collections)

    wait_until(are_gone, "the pods of terminating namespaces are gone", 300)


def names(plane: ControlPlane, path: str) -> set[str]:
    """Return the names of the objects in a collection."""
    return {item["metadata"]["name"] for item in plane.api.get(path)["items"]}
