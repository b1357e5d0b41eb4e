"""The setup for rows on a real API server: Linkwise as shipped, and the Go servers.

Pods go no further than the API server: once all is set up, scheduler, controllers and kwok are
ended. Three namespaces are what is compared: pods of one come to Linkwise, those of another to the
constant server (policies of Linkwise hold there, too), and in the third there is nothing of it.
"""

import base64
import json
import socket
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from controlplane.api import Api, ApiError, Object
from controlplane.binaries import Binaries
from controlplane.credentials import ADMIN
from controlplane.manifests import BASE, MUTATING, REGISTRATIONS
from controlplane.nodes import add_nodes, read_nodes
from controlplane.plane import ControlPlane, control_plane
from controlplane.process import Process, free_ports, wait_until
from controlplane.webhook import Replica, register, start_replica
from support.certificates import a_ca, a_leaf

from linkwise.cluster import keys
from tools.bench.admission.load import Target
from tools.bench.admission.review import NAMESPACE, PROFILE, review_bytes, run, worker

CONSTANT, NOTHING = "constant", "nothing"
"""Namespaces; that of Linkwise's pods is the review's."""
_NEEDLESS = ("kube-controller-manager", "kube-scheduler", "kwok")


@dataclass(frozen=True, slots=True)
class Stage:
    """The running control plane, webhook and other servers."""

    plane: ControlPlane
    webhook: Replica
    sender: Path
    """The program that sends."""
    folder: Path
    """Of bodies, certificates and logs."""
    servers: dict[str, tuple[Process, int]]
    """Process and port of each server of reviews, by its name."""

    def reviews(self, name: str) -> Target:
        """Return the request that sends the review to a server, as an API server would."""
        url = f"https://127.0.0.1:{self.servers[name][1]}/mutate"
        return Target(
            url, self.folder / "ca.crt", self.folder / "review.json", expect='"patchType"'
        )

    def creates(self, namespace: str, body: str, expect: str) -> Target:
        """Return the request that creates a pod in a namespace, and what its answer contains."""
        return Target(
            f"{self.plane.server}{_pods(namespace)}",
            self.plane.ca_file,
            self.folder / f"{body}.json",
            self.plane.tokens[ADMIN],
            expect,
        )


@contextmanager
def stage(found: Binaries, programs: Path) -> Iterator[Stage]:
    """Start everything, and stop it at the end.

    Nothing is deleted on the way, which would take longer than creating it, nor uninstalled.
    """
    with (
        tempfile.TemporaryDirectory(prefix="linkwise-bench-") as name,
        control_plane(Path(name), found) as plane,
    ):
        folder = Path(name) / "bench"
        folder.mkdir()
        made = Stage(plane, _install(plane, folder), programs / "load", folder, {})
        _write_bodies(made)
        _furnish(plane)
        _start_servers(made, programs)
        _direct(made)
        for one in _NEEDLESS:
            plane.processes.stop(plane.process(one))
        yield made


def _install(plane: ControlPlane, folder: Path) -> Replica:
    """Apply what is shipped, and run the webhook that it names."""
    applied = plane.kubectl("apply", "-k", str(BASE))
    if applied.returncode:
        raise ValueError(applied.stderr)
    ca = a_ca()
    a_leaf(ca).write(folder)
    (folder / "ca.crt").write_bytes(ca.cert_pem)
    replica = start_replica(plane, folder, "webhook.log", LINKWISE_DRAIN_SECONDS="0")
    register(plane, replica.ports[0], base64.b64encode(ca.cert_pem).decode())
    return replica


def _write_bodies(stage: Stage) -> None:
    gang = worker()
    for key in ("name", "namespace", "managedFields"):
        del gang["metadata"][key]
    gang["metadata"]["generateName"] = "worker-"
    (stage.folder / "worker.json").write_text(json.dumps(gang))
    plain = json.loads(json.dumps(gang))
    plain["metadata"]["labels"] = {"app": "web"}
    for amounts in plain["spec"]["containers"][0]["resources"].values():
        del amounts[keys.GPU_WHOLE]
    (stage.folder / "plain.json").write_text(json.dumps(plain))
    (stage.folder / "review.json").write_bytes(review_bytes())
    answer = json.loads(run(review_bytes()))["response"]
    (stage.folder / "patch.json").write_bytes(base64.b64decode(answer["patch"]))


def _furnish(plane: ControlPlane) -> None:
    """Create the namespaces, a policy with a profile, and two nodes."""
    for name in (NAMESPACE, CONSTANT, NOTHING):
        plane.api.create("/api/v1/namespaces", {"metadata": {"name": name}})
    for name in (NAMESPACE, CONSTANT, NOTHING):
        wait_until(partial(_has_account, plane, name), f"{name} can have pods")
    profiles = {
        "metadata": {"name": keys.PROFILE_NAME},
        "data": {keys.PROFILE_KEY: json.dumps([PROFILE])},
    }
    plane.api.create(f"/api/v1/namespaces/{keys.PROFILE_NAMESPACE}/configmaps", profiles)
    lines = [{"name": "gpu", "count": 2, "machine": "dgx1-v100", "mode": "topology"}]
    add_nodes(plane.api, read_nodes(lines))


def _has_account(plane: ControlPlane, namespace: str) -> bool:
    path = f"/api/v1/namespaces/{namespace}/serviceaccounts"
    return bool(plane.api.get(path)["items"])


def _start_servers(stage: Stage, programs: Path) -> None:
    """Start the Go servers, with the webhook's own certificate."""
    constant, usual = free_ports(2)
    files = (stage.folder / name for name in ("tls.crt", "tls.key", "patch.json"))
    made = {
        "constant": ((f"127.0.0.1:{constant}", *map(str, files)), constant),
        "usual": ((str(usual), str(stage.folder)), usual),
    }
    stage.servers["linkwise"] = stage.webhook.process, stage.webhook.ports[0]
    for name, (arguments, port) in made.items():
        process = Process(name, (str(programs / name), *arguments), stage.folder / f"{name}.log")
        stage.plane.processes.start(process)
        process.wait_ready(partial(_listens, port))
        stage.servers[name] = process, port


def _direct(stage: Stage) -> None:
    """Send the pods of each namespace to their server, and wait until that is in force."""
    api = stage.plane.api
    shipped = api.get(MUTATING)
    hook = shipped["webhooks"][0]
    client = dict(hook["clientConfig"])
    client["url"] = stage.reviews("constant").url
    chosen = {"matchExpressions": [_expression("In", CONSTANT)]}
    constant = {
        "metadata": {"name": "constant"},
        "webhooks": [{**hook, "clientConfig": client, "namespaceSelector": chosen}],
    }
    api.create(f"{REGISTRATIONS}/mutatingwebhookconfigurations", constant)
    hook["namespaceSelector"]["matchExpressions"].append(_expression("NotIn", CONSTANT, NOTHING))
    api.update(MUTATING, shipped)
    for name in ("linkwise-guard", "linkwise-placed"):
        path = f"{REGISTRATIONS}/validatingadmissionpolicies/{name}"
        policy = api.get(path)
        selector = policy["spec"]["matchConstraints"].setdefault("namespaceSelector", {})
        selector.setdefault("matchExpressions", []).append(_expression("NotIn", NOTHING))
        api.update(path, policy)
    wait_until(lambda: _is_directed(stage), "each namespace has its webhook")


def _is_directed(stage: Stage) -> bool:
    """Return whether a pod that Linkwise denies is denied."""
    pod = json.loads((stage.folder / "worker.json").read_text())
    pod["spec"]["containers"][0]["resources"]["limits"][keys.GPU_CORE] = "22"
    api = stage.plane.api
    there = _tried(api, NAMESPACE, pod)
    constant = _tried(api, CONSTANT, pod)
    pod["metadata"]["annotations"][keys.ALLOCATION] = "{}"
    nothing = _tried(api, NOTHING, pod)
    if there or not (constant and nothing):
        return False
    return "schedulingGates" in constant["spec"] and "schedulingGates" not in nothing["spec"]


def _tried(api: Api, namespace: str, pod: Object) -> Object | None:
    """Return the pod as a dry run creates it; None where it is refused."""
    try:
        return api.create(_pods(namespace), pod, dryRun="All")
    except ApiError:
        return None


def _expression(operator: str, *names: str) -> dict[str, Any]:
    return {"key": keys.NAMESPACE_NAME, "operator": operator, "values": list(names)}


def _pods(namespace: str) -> str:
    return f"/api/v1/namespaces/{namespace}/pods"


def _listens(port: int) -> bool:
    try:
        with socket.create_connection(("127.0.0.1", port)):
            return True
    except OSError:
        return False
