"""Run the webhook on this machine beside a control plane with the shipped manifests."""

import base64
import os
import re
import ssl
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from tempfile import mkdtemp
from urllib.request import urlopen

from controlplane.api import ApiError, Object
from controlplane.manifests import (
    BASE,
    MUTATING,
    NAMESPACE,
    NAMESPACES,
    ROOT,
    VALIDATING,
    install,
)
from controlplane.plane import ControlPlane
from controlplane.process import NotReadyError, Process, answers, free_ports, wait_until
from support.certificates import KeyPair, a_ca, a_leaf

from linkwise.cluster import keys

PATIENT = 30
"""Timeout of the API server's calls, in tests of other subjects [s]: a busy machine may stand still
for longer than the shipped 3 s."""
ACCOUNT = "linkwise-webhook"
_REVIEWS = re.compile(r"^linkwise_admission_reviews_total\{.*\} (\S+)$", re.MULTILINE)
_UNREACHABLE = 1
"""A port without a listener."""


@dataclass(frozen=True, slots=True)
class Replica:
    """One process of the webhook, and its addresses."""

    process: Process
    ports: tuple[int, int, int]
    """Of admission, of dry-run, of probes."""

    @property
    def probes(self) -> str:
        """The address of probes and metrics."""
        return f"http://127.0.0.1:{self.ports[2]}"

    @property
    def dry_run(self) -> str:
        """The address of dry runs."""
        return f"https://127.0.0.1:{self.ports[1]}"

    @property
    def ready(self) -> bool:
        """Whether its readiness probe succeeds."""
        return answers(f"{self.probes}/readyz")

    @property
    def judged(self) -> int:
        """The number of pods reviewed since its start."""
        with urlopen(f"{self.probes}/metrics", timeout=30) as answer:  # noqa: S310
            text: str = answer.read().decode()
        return sum(int(float(count)) for count in _REVIEWS.findall(text))


@dataclass(frozen=True, slots=True)
class Webhook(Replica):
    """The only replica, with a certificate made for the test."""

    plane: ControlPlane
    ca: KeyPair


@contextmanager
def run_webhook(
    plane: ControlPlane, manifests: Path = BASE, **environment: str
) -> Iterator[Webhook]:
    """Install the manifests, and run the webhook; only addresses differ from a cluster's.

    Args:
        plane: The control plane.
        manifests: The base, or an overlay.
        environment: Settings that differ from what is shipped.

    Raises:
        NotReadyError: It did not become ready.
    """
    install(plane, manifests)
    folder = Path(mkdtemp(prefix="webhook-", dir=plane.site.folder))
    ca = a_ca()
    leaf = a_leaf(ca)
    # The second is where a scorer looks.
    for place in (folder, plane.site.folder):
        leaf.write(place)
    (folder / "ca.crt").write_bytes(ca.cert_pem)
    one = start_replica(plane, folder, "log", LINKWISE_DRAIN_SECONDS="0", **environment)
    try:
        register(plane, one.ports[0], base64.b64encode(ca.cert_pem).decode(), seconds=PATIENT)
        yield Webhook(one.process, one.ports, plane, ca)
    finally:
        plane.processes.stop(one.process)


def start_replica(
    plane: ControlPlane, folder: Path, log: str, *, server: str = "", **environment: str
) -> Replica:
    """Start a process of the webhook under its own ServiceAccount, and wait until it is ready.

    Args:
        plane: Where.
        folder: With `tls.crt`, `tls.key` and `ca.crt`; its tokens and its log are written there.
        log: Name of the log.
        server: The API server's address, where it is to be asked by a way round.
        environment: Settings that differ from what is shipped.

    Raises:
        NotReadyError: It did not become ready.
    """
    ports = tuple(free_ports(3))
    names = ("LINKWISE_PORT", "LINKWISE_DRY_RUN_PORT", "LINKWISE_PROBE_PORT")
    schemes = ("https", "https", "http")
    urls = (f"{scheme}://127.0.0.1:{port}" for scheme, port in zip(schemes, ports, strict=True))
    process = Process(
        "webhook",
        (sys.executable, "-m", "webhook"),
        folder / log,
        tuple(urls),
        env={
            **access(plane, folder, ACCOUNT, server),
            **{name: str(port) for name, port in zip(names, ports, strict=True)},
            "LINKWISE_CERTIFICATE": str(folder / "tls.crt"),
            "LINKWISE_KEY": str(folder / "tls.key"),
            "LINKWISE_SCORER_CA_FILE": str(folder / "ca.crt"),
            "LINKWISE_SCORER_TOKEN_FILE": str(_token_for_scorer(plane, folder)),
            **environment,
        },
    )
    replica = Replica(process, ports)
    plane.processes.start(process)
    try:
        process.wait_ready(lambda: replica.ready)
    except NotReadyError:
        plane.processes.stop(process)
        raise
    return replica


def access(plane: ControlPlane, folder: Path, account: str, server: str = "") -> dict[str, str]:
    """Return the environment of a component: on this machine, with its ServiceAccount's token."""
    token = folder / f"{account}.token"
    token.write_text(plane.token(NAMESPACE, account))
    return {
        "PYTHONPATH": os.fspath(ROOT),
        "LINKWISE_HOST": "127.0.0.1",
        "LINKWISE_API_SERVER": server or plane.server,
        "LINKWISE_API_TOKEN_FILE": str(token),
        "LINKWISE_API_CA_FILE": str(plane.ca_file),
    }


def _token_for_scorer(plane: ControlPlane, folder: Path) -> Path:
    """Write the token that a kubelet would replace in time."""
    path = f"{NAMESPACES}/{NAMESPACE}/serviceaccounts/{ACCOUNT}/token"
    spec = {"audiences": [keys.FIT_AUDIENCE], "expirationSeconds": 365 * 86_400}
    file = folder / "scorer.token"
    file.write_text(plane.api.create(path, {"spec": spec})["status"]["token"])
    return file


def register(
    plane: ControlPlane, port: int, bundle: str = "", standby: int = 0, seconds: int | None = None
) -> None:
    """Write addresses into the registrations, in place of Services; wait until they are in force.

    Args:
        plane: Where.
        port: Of admission, on this machine.
        bundle: PEM in base 64; empty where `certs` writes it.
        standby: Port of the second webhook, which is called after the first; 0: no listener.
        seconds: For how long an API server waits for an answer; as shipped when None.
    """
    mutating = (f"{port}/mutate", f"{standby or _UNREACHABLE}/mutate", f"{port}/mutate")
    _name(plane, MUTATING, mutating, bundle, seconds)
    _name(plane, VALIDATING, (f"{port}/validate", f"{port}/warn"), bundle, seconds)
    wait_until(lambda: _is_in_force(plane), "the registrations are in force")


def register_unreachable(plane: ControlPlane) -> None:
    """Register addresses without a listener."""
    _name(plane, MUTATING, (f"{_UNREACHABLE}/",) * 3)
    _name(plane, VALIDATING, (f"{_UNREACHABLE}/",) * 2)


def _name(
    plane: ControlPlane,
    path: str,
    addresses: Sequence[str],
    bundle: str = "",
    seconds: int | None = None,
) -> None:
    """Name the address of each webhook of a registration: port and path, on this machine."""
    trusted = {"caBundle": bundle} if bundle else {}
    patience = {} if seconds is None else {"timeoutSeconds": seconds}
    changes = [
        {"op": "replace", "path": f"/webhooks/{i}/{field}", "value": value}
        for i, address in enumerate(addresses)
        for field, value in {
            "clientConfig": {"url": f"https://127.0.0.1:{address}", **trusted},
            **patience,
        }.items()
    ]
    plane.api.patch(path, changes, "json")


def trusting(plane: ControlPlane) -> ssl.SSLContext:
    """Return a client's context that trusts what the API server does: the present `caBundle`."""
    bundle = plane.api.get(MUTATING)["webhooks"][0]["clientConfig"]["caBundle"]
    return ssl.create_default_context(cadata=base64.b64decode(bundle).decode())


def _is_in_force(plane: ControlPlane) -> bool:
    """Return whether both webhooks are called: each rejects an object that only it rejects."""
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
        return 'linkwise.dev" denied' in error.message
    return False
