"""A scheduler and the scorer that it asks, as one pod would run them; only addresses differ."""

import json
import socket
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import yaml
from controlplane import credentials
from controlplane.api import Object
from controlplane.manifests import NAMESPACE, WITH_SCHEDULER
from controlplane.plane import ControlPlane
from controlplane.process import Process, answers, free_ports
from controlplane.scorer import ACCOUNT, Scorer, start_scorer, wait_for_leader


@dataclass(frozen=True, slots=True)
class Sidecar:
    """The running scheduler and scorer."""

    scorer: Scorer
    scheduler: Process

    def node(self, name: str) -> Object:
        """Return the scorer's view of a node; an empty one if it does not know the node yet.

        Raises:
            OSError: It does not lead.
        """
        unknown = {"name": name, "mode": "", "unaccounted": None, "gpus": []}
        return next(iter(self.scorer.look(f"/v1/nodes?name={name}")["nodes"]), unknown)


@contextmanager
def run_sidecar(plane: ControlPlane, folder: Path, **environment: str) -> Iterator[Sidecar]:
    """Run both where their manifests are installed, and wait until they lead.

    Args:
        plane: Where.
        folder: Empty.
        environment: Settings of the scorer that differ from what is shipped.

    Raises:
        NotReadyError: They did not lead in time.
    """
    (port,) = free_ports(1)
    # The two containers of one pod share the host name; no other pod has it.
    host = socket.gethostname()
    scheduler = start_scheduler(plane, folder, _configuration(plane, folder, port))
    try:
        settings = {"LINKWISE_EXTENDER_PORT": str(port), "HOSTNAME": host, **environment}
        scorer = start_scorer(plane, folder, "scorer.log", **settings)
        try:
            wait_for_leader(scorer)
            yield Sidecar(scorer, scheduler)
        finally:
            if scorer.process.runs:
                plane.processes.stop(scorer.process)
    finally:
        plane.processes.stop(scheduler)


def restart_scheduler(plane: ControlPlane, sidecar: Sidecar) -> None:
    """Start its scheduler again, as a kubelet would, and wait until both lead."""
    plane.processes.stop(sidecar.scheduler)
    plane.processes.start(sidecar.scheduler)
    _wait_ready(sidecar.scheduler)
    wait_for_leader(sidecar.scorer)


def start_scheduler(
    plane: ControlPlane, folder: Path, configuration: object, program: str = ""
) -> Process:
    """Start another kube-scheduler, and wait until it is there.

    Args:
        plane: Where.
        folder: Its configuration and its log are written there.
        configuration: Of kube-scheduler.
        program: Another one with the flags of kube-scheduler.

    Raises:
        NotReadyError: It was not in time.
    """
    (port,) = free_ports(1)
    file = folder / "scheduler.json"
    file.write_text(json.dumps(configuration))
    flags = (f"--config={file}", "--bind-address=127.0.0.1", f"--secure-port={port}")
    process = Process(
        "second-scheduler",
        (program or plane.site.binaries["kube-scheduler"], *_shipped_flags(), *flags),
        folder / "scheduler.log",
        (f"https://127.0.0.1:{port}",),
    )
    plane.processes.start(process)
    _wait_ready(process)
    return process


def _wait_ready(scheduler: Process) -> None:
    scheduler.wait_ready(lambda: answers(f"{scheduler.urls[0]}/readyz"))


def _shipped_flags() -> list[str]:
    """Return the scheduler's flags; the last of a name counts."""
    (shipped,) = yaml.safe_load_all((WITH_SCHEDULER / "scorer.yaml").read_text())
    containers = shipped["spec"]["template"]["spec"]["containers"]
    (scheduler,) = (one for one in containers if one["name"] == "scheduler")
    flags: list[str] = scheduler["command"][1:]
    return flags


def _configuration(plane: ControlPlane, folder: Path, port: int) -> object:
    """Return what is shipped, for the scorer's account, with the extender's own port."""
    (shipped,) = yaml.safe_load_all((WITH_SCHEDULER / "configuration.yaml").read_text())
    given = yaml.safe_load(shipped["data"]["config.yaml"])
    given["extenders"][0]["urlPrefix"] = f"http://127.0.0.1:{port}"
    config = folder / "scheduler.kubeconfig"
    token = plane.token(NAMESPACE, ACCOUNT)
    config.write_text(credentials.kubeconfig(plane.server, plane.ca_file, token))
    given["clientConnection"]["kubeconfig"] = str(config)
    return given
