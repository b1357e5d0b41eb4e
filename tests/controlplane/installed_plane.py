"""Install all that is shipped on a control plane that outlives the process that started it."""

import base64
from dataclasses import dataclass
from pathlib import Path

from controlplane import installation, scorer, webhook
from controlplane.installation import SECRET_PATH, Cluster, certs_process
from controlplane.manifests import BASE, NAMESPACE
from controlplane.plane import ControlPlane
from controlplane.process import NotReadyError, answers, wait_until
from controlplane.scorer import start_scorer
from controlplane.webhook import PATIENT, register, start_replica

from linkwise.cluster import keys
from linkwise.planning.gang.crd import Phase, gangs_of

_LONG = 365 * 86_400
"""Lifetime of tokens, which a kubelet would replace [s]."""
HOME, _PERSON = "default", "me"
_DEMO = BASE.parents[1] / "docs/demo"


@dataclass(frozen=True, slots=True)
class Trial:
    """Address and credentials for the dry-run API."""

    dry_run: str
    """Its address."""
    token: Path
    authority: Path
    """The CA of its certificate."""


def install(plane: ControlPlane) -> Trial:
    """Apply what is shipped, and run its processes under their own accounts.

    Raises:
        NotReadyError: It cannot be applied, or did not become ready.
    """
    applied = plane.kubectl("apply", "-k", str(BASE))
    if applied.returncode:
        raise NotReadyError(applied.stderr)
    folder = plane.site.folder
    certs = certs_process(plane, folder)
    plane.processes.start(certs)
    certs.wait_ready(lambda: answers(f"{certs.urls[0]}/readyz"))
    with Cluster(plane, folder) as cluster:
        wait_until(lambda: cluster.mounted, "the Secrets are mounted")
        # It stops without a wait for open connections.
        replica = start_replica(plane, folder, "webhook.log", LINKWISE_DRAIN_SECONDS="0")
    # Several control planes may start beside this one.
    register(plane, replica.ports[0], seconds=PATIENT)
    home = cluster.home("scorer")
    certificate = {
        "LINKWISE_CERTIFICATE": str(home / "tls.crt"),
        "LINKWISE_KEY": str(home / "tls.key"),
    }
    start_scorer(plane, folder, "scorer.log", **certificate)
    for account in (installation.ACCOUNT, webhook.ACCOUNT, scorer.ACCOUNT):
        token = plane.token(NAMESPACE, account, _LONG)
        (folder / f"{account}.token").write_text(token)
    authority = folder / "ca.crt"
    authority.write_bytes(base64.b64decode(plane.api.get(SECRET_PATH)["data"]["ca.crt"]))
    return Trial(replica.dry_run, _token(plane, folder / "token"), authority)


def place_demo(plane: ControlPlane, name: str) -> None:
    """Create a gang of the documentation, and wait until it is placed or waits."""
    applied = plane.kubectl("apply", "-f", str(_DEMO / name))
    if applied.returncode:
        raise NotReadyError(applied.stderr)
    decided = {Phase.WAITING, Phase.PLACED}

    def is_decided() -> bool:
        gangs = plane.api.get(gangs_of(HOME))["items"]
        return any(gang.get("status", {}).get("phase") in decided for gang in gangs)

    wait_until(is_decided, "the demo gang is placed", 180)


def _token(plane: ControlPlane, path: Path) -> Path:
    """Write a token of an account that may create pods, as `kubectl create token` makes it."""
    accounts = f"/api/v1/namespaces/{HOME}/serviceaccounts"
    plane.api.create(accounts, {"metadata": {"name": _PERSON}})
    role = {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "edit"}
    subject = {"kind": "ServiceAccount", "name": _PERSON, "namespace": HOME}
    plane.api.create(
        f"/apis/rbac.authorization.k8s.io/v1/namespaces/{HOME}/rolebindings",
        {"metadata": {"name": _PERSON}, "roleRef": role, "subjects": [subject]},
    )
    asked = {"spec": {"audiences": [keys.DRY_RUN_AUDIENCE], "expirationSeconds": _LONG}}
    answer = plane.api.create(f"{accounts}/{_PERSON}/token", asked)
    path.write_text(str(answer["status"]["token"]))
    return path
