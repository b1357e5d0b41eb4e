"""Run the scorer on this machine beside a control plane, under its own ServiceAccount."""

import json
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from urllib.request import urlopen

from controlplane.api import Object
from controlplane.manifests import NAMESPACE
from controlplane.plane import ControlPlane
from controlplane.process import NotReadyError, Process, answers, free_ports, wait_until
from controlplane.webhook import access

ACCOUNT = "linkwise-scorer"
LEASE = f"/apis/coordination.k8s.io/v1/namespaces/{NAMESPACE}/leases/{ACCOUNT}"
QUICK = {
    "LINKWISE_LEASE_SECONDS": "6",
    "LINKWISE_RENEW_SECONDS": "4",
    "LINKWISE_RETRY_SECONDS": "0.5",
    "LINKWISE_WRITE_SECONDS": "1",
}
"""Settings of the Lease for tests that wait for another leader."""


@dataclass(frozen=True, slots=True)
class Scorer:
    """One process of the scorer, and its addresses."""

    process: Process
    probes: str
    """The address of probes and metrics."""
    inspection: str
    """The address of the inspection API, which answers while this process leads."""

    @property
    def ready(self) -> bool:
        """Whether its readiness probe succeeds."""
        return answers(f"{self.probes}/readyz")

    @property
    def leads(self) -> bool:
        """Whether it leads and has synced its informers."""
        return answers(f"{self.inspection}/v1/gangs")

    @property
    def metrics(self) -> dict[str, float]:
        """Its samples, by name and labels in the text format."""
        with urlopen(f"{self.probes}/metrics", timeout=60) as answer:  # noqa: S310
            lines = answer.read().decode().splitlines()
        return {
            name: float(value)
            for name, _, value in (line.rpartition(" ") for line in lines if line[:1] != "#")
        }

    def look(self, path: str) -> Object:
        """Return an answer of the inspection API."""
        with urlopen(f"{self.inspection}{path}", timeout=60) as answer:  # noqa: S310
            found: Object = json.loads(answer.read())
        return found


@contextmanager
def run_scorer(plane: ControlPlane, folder: Path, **environment: str) -> Iterator[Scorer]:
    """Run a scorer, with what is shipped installed, and wait until it leads.

    Raises:
        NotReadyError: It did not lead in time.
        AssertionError: It wrote a Gang that the API server refuses, whenever it is written.
    """
    one = start_scorer(plane, folder, "scorer.log", **environment)
    try:
        one.process.wait_ready(lambda: one.leads)
        yield one
    finally:
        plane.processes.stop(one.process)
    lines = one.process.log.read_text(errors="replace").splitlines()
    refused = [line for line in lines if "Could not report" in line and " is invalid: " in line]
    assert not refused, refused[0]


def start_scorer(
    plane: ControlPlane, folder: Path, log: str, *, server: str = "", **environment: str
) -> Scorer:
    """Start a process of the scorer under its own ServiceAccount, and wait until it is ready.

    Args:
        plane: Where.
        folder: Its token and its log are written there.
        log: Name of the log.
        server: The API server's address, where it is to be asked by a way round.
        environment: Settings that differ from what is shipped.

    Raises:
        NotReadyError: It did not become ready.
    """
    probe_port, inspect_port, fit_port = free_ports(3)
    probes, inspection = (f"http://127.0.0.1:{port}" for port in (probe_port, inspect_port))
    process = Process(
        "scorer",
        (sys.executable, "-m", "scorer"),
        folder / log,
        (probes, inspection),
        env={
            **access(plane, folder, ACCOUNT, server),
            "HOSTNAME": log.removesuffix(".log"),
            "LINKWISE_PROBE_PORT": str(probe_port),
            "LINKWISE_INSPECT_PORT": str(inspect_port),
            "LINKWISE_FIT_PORT": str(fit_port),
            # The webhook's fixture writes it there; without it, the port is not served.
            "LINKWISE_CERTIFICATE": str(plane.site.folder / "tls.crt"),
            "LINKWISE_KEY": str(plane.site.folder / "tls.key"),
            **environment,
        },
    )
    scorer = Scorer(process, probes, inspection)
    plane.processes.start(process)
    try:
        process.wait_ready(lambda: scorer.ready)
    except NotReadyError:
        plane.processes.stop(process)
        raise
    return scorer


def holder(plane: ControlPlane) -> str:
    """Return the name of the process that holds the Lease; empty when there is none."""
    spec: Object = {}
    with suppress(OSError):
        spec = plane.api.get(LEASE)["spec"]
    return str(spec.get("holderIdentity", "")).partition("_")[0]


def wait_for_leader(scorer: Scorer, seconds: float = 60) -> None:
    """Return when a scorer leads."""
    wait_until(lambda: scorer.leads, "it leads", seconds)
