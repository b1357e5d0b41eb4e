"""Run all that is shipped: certs, replicas of the webhook, and the parts of a cluster they need.

There is no kubelet, no kube-proxy and no EndpointSlice here. `Cluster` replaces them: it mounts the
Secrets, probes as often as the manifests say, and sends new connections to ready replicas. Open
connections stay, as they do behind a Service. The standby is the only backend of its Service, and
is called directly.
"""

import base64
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from signal import SIGKILL
from threading import Lock

from controlplane.api import ApiError, Object
from controlplane.background import Background
from controlplane.manifests import NAMESPACE, install
from controlplane.plane import ControlPlane
from controlplane.process import Process, answers, free_ports, wait_until
from controlplane.relay import Relay
from controlplane.webhook import Replica, access, register, start_replica

from certs.settings import SERVERS

ACCOUNT = "linkwise-certs"
SECRETS = f"/api/v1/namespaces/{NAMESPACE}/secrets"
CERTIFICATES = {name: f"{SECRETS}/{secret}" for name, secret, _ in SERVERS}
"""Path of the Secret of each server."""
SECRET_PATH = CERTIFICATES["webhook"]
PERIOD = 2
"""Between two probes of readiness, as in the manifests [s]."""


@dataclass(slots=True)
class Cluster(Background):
    """A kubelet and an EndpointSlice controller, as far as the webhook needs them."""

    plane: ControlPlane
    folder: Path
    """Where the Secret of the webhook is mounted, as kubelets do: all files change at one moment.
    Those of the other servers are in folders below, by the name of the server."""
    replicas: list[Replica] = field(default_factory=list)
    """Behind the Service."""
    ready: list[int] = field(default_factory=list)
    """Admission ports of the replicas that were ready at the last probe."""
    _versions: dict[str, str] = field(default_factory=dict)
    _probes: Lock = field(default_factory=Lock)

    def _prepare(self) -> None:
        self._mount_all()

    def home(self, server: str) -> Path:
        """Return the folder of a server."""
        return self.folder if server == "webhook" else self.folder / server

    @property
    def mounted(self) -> bool:
        """Whether all Secrets are mounted."""
        return len(self._versions) == len(CERTIFICATES)

    def _run(self) -> None:
        while not self._over.wait(PERIOD):
            self._mount_all()
            self.probe()

    def probe(self) -> None:
        """Ask all replicas whether they are ready."""
        # One after the other: an older result must not overwrite a newer one.
        with self._probes:
            self.ready = [one.ports[0] for one in list(self.replicas) if one.ready]

    def _mount_all(self) -> None:
        for server, path in CERTIFICATES.items():
            try:
                secret = self.plane.api.get(path)
            except (ApiError, OSError):
                continue
            self._mount(server, secret)

    def _mount(self, server: str, secret: Object) -> None:
        folder, version = self.home(server), secret["metadata"]["resourceVersion"]
        before = self._versions.get(server)
        if version == before:
            return
        content = folder / f"..{version}"
        content.mkdir(parents=True)
        for key in ("tls.crt", "tls.key", "ca.crt"):
            (content / key).write_bytes(base64.b64decode(secret["data"][key]))
            if before is None:
                (folder / key).symlink_to(Path("..data") / key)
        link = folder / "..next"
        link.symlink_to(content.name)
        link.replace(folder / "..data")
        self._versions[server] = version


@dataclass(frozen=True, slots=True)
class Installation:
    """What runs."""

    plane: ControlPlane
    cluster: Cluster
    certs: Process
    service: Relay
    standby: Replica
    """Whom the API server calls when its call to a replica failed."""
    server: str
    """The API server's address, as the components know it."""

    @property
    def replicas(self) -> list[Replica]:
        """Processes that were started and not stopped."""
        return self.cluster.replicas

    def start(self) -> Replica:
        """Start a replica more, and wait until it is sent connections."""
        one = _start(self.plane, self.cluster, self.server, "webhook")
        self.replicas.append(one)
        wait_until(lambda: one.ports[0] in self.cluster.ready, "it is sent connections")
        return one

    def kill(self, one: Replica) -> None:
        """End a replica as a fault does: without a word."""
        one.process.signal(SIGKILL)
        self.plane.processes.stop(one.process)

    def revive(self, one: Replica) -> None:
        """Start a replica that was killed where it was, and wait until it is sent connections."""
        self.plane.processes.start(one.process)
        one.process.wait_ready(lambda: one.ready)
        self.cluster.probe()

    def replace(self, old: Replica) -> None:
        """Replace a replica as its Deployment does, and wait until the old one has ended."""
        self.start()
        self.replicas.remove(old)
        # It may drain for a minute before it ends, as it may where it is shipped.
        self.plane.processes.stop(old.process, seconds=90)


@contextmanager
def run_installation(
    plane: ControlPlane,
    *,
    replicas: int = 1,
    server: str = "",
    certs_server: str = "",
    leaf_seconds: float = 0,
    wait_seconds: float = 0,
    seconds: int | None = None,
) -> Iterator[Installation]:
    """Install what is shipped, and run it under its own accounts; only addresses differ.

    Args:
        plane: Where.
        replicas: Of the webhook.
        server: The API server's address, where it is to be asked by a way round.
        certs_server: The same, for certs alone.
        leaf_seconds: How long a serving certificate lasts, where it is to last less [s].
        wait_seconds: Each wait of a rotation, if not a sixth of that [s].
        seconds: As in `register`.

    Raises:
        NotReadyError: Something did not become ready.
    """
    install(plane)
    certs = certs_process(
        plane, new_folder(plane), certs_server or server, leaf_seconds, wait_seconds
    )
    with run_components(
        plane, certs, replicas=replicas, server=server, seconds=seconds
    ) as installation:
        yield installation


def new_folder(plane: ControlPlane) -> Path:
    """Return an empty folder for what runs."""
    folder = plane.site.folder / f"installation-{free_ports(1)[0]}"
    folder.mkdir()
    return folder


@contextmanager
def run_components(
    plane: ControlPlane,
    certs: Process,
    *,
    replicas: int = 1,
    server: str = "",
    seconds: int | None = None,
) -> Iterator[Installation]:
    """Run certs and the webhook on a control plane where Linkwise is installed.

    Args:
        plane: Where.
        certs: From `certs_process`; the Secrets are mounted in the folder of its log.
        replicas: As in `run_installation`.
        server: The same.
        seconds: The same.

    Raises:
        NotReadyError: Something did not become ready.
    """
    with ExitStack() as stack:
        plane.processes.start(certs)
        stack.callback(plane.processes.stop, certs)
        certs.wait_ready(lambda: answers(f"{certs.urls[0]}/readyz"))
        cluster = stack.enter_context(Cluster(plane, certs.log.parent))
        wait_until(lambda: cluster.mounted, "the Secrets are mounted")
        service = stack.enter_context(Relay(lambda: cluster.ready))
        standby = _start(plane, cluster, server, "standby")
        found = Installation(plane, cluster, certs, service, standby, server)
        stack.callback(_stop, found)
        for _ in range(replicas):
            found.start()
        register(plane, service.port, standby=standby.ports[0], seconds=seconds)
        yield found


def certs_process(
    plane: ControlPlane,
    folder: Path,
    server: str = "",
    leaf_seconds: float = 0,
    wait_seconds: float = 0,
    *,
    mode: str = "self",
) -> Process:
    """Return a process of certs, to be started; its token and its log are in the folder."""
    (port,) = free_ports(1)
    environment = {
        **access(plane, folder, ACCOUNT, server),
        "LINKWISE_CERTIFICATES": mode,
        "LINKWISE_PROBE_PORT": str(port),
        # The Service's names lead nowhere here.
        "LINKWISE_EXTRA_NAMES": "127.0.0.1",
    }
    if leaf_seconds:
        environment["LINKWISE_LEAF_DAYS"] = str(leaf_seconds / 86_400)
        environment["LINKWISE_CA_DAYS"] = str(3 * leaf_seconds / 86_400)
        # More than what mounting and reloading take.
        environment["LINKWISE_PROPAGATION_SECONDS"] = str(wait_seconds or leaf_seconds / 6)
    argv = (sys.executable, "-m", "certs")
    url = f"http://127.0.0.1:{port}"
    return Process("certs", argv, folder / "certs.log", (url,), environment)


def _start(plane: ControlPlane, cluster: Cluster, server: str, role: str) -> Replica:
    folder = cluster.home(role)
    # Its log outlives it, so each has a name of its own.
    log = f"log-{len(list(folder.glob('log-*')))}"
    return start_replica(plane, folder, log, server=server)


def _stop(found: Installation) -> None:
    for one in (found.standby, *found.replicas):
        if one.process.runs:
            # No client calls any more, so there is nothing to drain.
            found.kill(one)
