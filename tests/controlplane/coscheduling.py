"""The coscheduling plugin of scheduler-plugins, in a second scheduler."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from controlplane import credentials
from controlplane.api import Object
from controlplane.binaries import Binaries
from controlplane.other_programs import COSCHEDULING, POD_GROUPS
from controlplane.plane import ControlPlane
from controlplane.process import wait_until
from controlplane.sidecar import start_scheduler

from linkwise.cluster import keys

SCHEDULER = "scheduler-plugins-scheduler"
"""Its name in the project's own chart."""
_ROLES = "/apis/rbac.authorization.k8s.io/v1"


@contextmanager
def run_coscheduling(plane: ControlPlane, binaries: Binaries, folder: Path) -> Iterator[None]:
    """Define PodGroups and run the scheduler, until the control plane ends.

    Raises:
        NotReadyError: It did not become ready.
    """
    for file in binaries.files(POD_GROUPS):
        done = plane.kubectl("apply", "--server-side", f"-f{file}")
        if done.returncode:
            raise ValueError(done.stderr)
    _grant(plane)
    wait_until(lambda: bool(plane.api.get(groups_of("default"))), "PodGroups are served")
    scheduler = start_scheduler(plane, folder, _configuration(plane), binaries[COSCHEDULING])
    try:
        yield
    finally:
        plane.processes.stop(scheduler)


def groups_of(namespace: str) -> str:
    """Return the path of a namespace's PodGroups."""
    return f"/apis/{keys.POD_GROUP_API}/namespaces/{namespace}/podgroups"


def make_group(plane: ControlPlane, namespace: str, name: str, members: int) -> None:
    """Create a PodGroup."""
    body = {
        "apiVersion": keys.POD_GROUP_API,
        "kind": "PodGroup",
        "metadata": {"name": name},
        "spec": {"minMember": members, "scheduleTimeoutSeconds": 10},
    }
    plane.api.create(groups_of(namespace), body)


def _configuration(plane: ControlPlane) -> Object:
    """Return the project's own, for a second scheduler."""
    enabled = [{"name": "Coscheduling"}]
    plugins = {
        "multiPoint": {"enabled": enabled},
        "queueSort": {"enabled": enabled, "disabled": [{"name": "*"}]},
    }
    arguments = {"name": "Coscheduling", "args": {"permitWaitingTimeSeconds": 10}}
    profile = {"schedulerName": SCHEDULER, "plugins": plugins, "pluginConfig": [arguments]}
    user = plane.site.kubeconfig(credentials.SCHEDULER)
    return {
        "apiVersion": "kubescheduler.config.k8s.io/v1",
        "kind": "KubeSchedulerConfiguration",
        "clientConnection": {"kubeconfig": str(user)},
        "leaderElection": {"leaderElect": False},
        "profiles": [profile],
    }


def _grant(plane: ControlPlane) -> None:
    """Give the account of schedulers what the plugin's manifests add."""
    name = "system:kube-scheduler:plugins"
    verbs = ["get", "list", "watch", "create", "delete", "update", "patch"]
    resources = ["podgroups", "podgroups/status"]
    rule = {"apiGroups": ["scheduling.x-k8s.io"], "resources": resources, "verbs": verbs}
    plane.api.create(f"{_ROLES}/clusterroles", {"metadata": {"name": name}, "rules": [rule]})
    reference = {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": name}
    group = "rbac.authorization.k8s.io"
    subject = {"apiGroup": group, "kind": "User", "name": "system:kube-scheduler"}
    body = {"metadata": {"name": name}, "roleRef": reference, "subjects": [subject]}
    plane.api.create(f"{_ROLES}/clusterrolebindings", body)
