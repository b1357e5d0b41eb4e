"""A control plane on this machine that stays: `make up` starts it, `make down` ends it.

All that is shipped is installed on it, and what has a process of Linkwise runs. The nodes are two
DGX-1 whose GPUs are given out whole and one machine with four shared T4; or, by the environment
variables NODES, MACHINE and MODE, some of one kind.
"""

import json
import os
import shutil
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

from controlplane.api import ApiError
from controlplane.binaries import Binaries, BuildError, MissingError, binaries
from controlplane.nodes import Line, add_nodes, read_nodes
from controlplane.plane import ControlPlane
from controlplane.process import NotReadyError, Process, Processes
from controlplane.trial import Trial, install

from cluster.node import Node
from manifest.value import InputError

FOLDER = Path(__file__).parents[2] / ".up"
STATUS = "status.json"

_NODES: tuple[Line, ...] = (
    {"name": "gpu", "count": 2, "machine": "dgx1-v100", "mode": "topology"},
    {"name": "share-0", "machine": "t4x4", "mode": "core_mem", "gpuMemory": 15},
)


def main(folder: Path) -> int:
    """Start everything in a folder that is not there yet, say where it is, leave it running."""
    try:
        nodes = read_nodes(_lines(os.environ))
        if folder.exists():
            return _shown_again(folder)
        found = binaries(_say)
    except (BuildError, InputError, MissingError) as error:
        return _failed(str(error))
    folder.mkdir()
    try:
        text = _start(folder, found, nodes)
    except (ApiError, NotReadyError, OSError, KeyboardInterrupt) as error:
        shutil.rmtree(folder, ignore_errors=True)
        return _failed(str(error) or "interrupted: nothing is left running")
    _say(text)
    return 0


def runs(pid: int, argv: Sequence[str]) -> bool:
    """Return whether a process is still the started one; its id may be reused by another."""
    try:
        line = Path(f"/proc/{pid}/cmdline").read_bytes()
    except OSError:
        return False
    return line.decode(errors="replace").split("\0")[:-1] == list(argv)


def _start(folder: Path, found: Binaries, nodes: Sequence[Node]) -> str:
    """Start everything, and return what to try; what fails leaves nothing running."""
    with Processes() as processes:
        _say("Starting etcd, API server, controllers, scheduler and kwok ...")
        plane = ControlPlane(folder, found, processes)
        plane.start()
        # Before the webhook starts, so that it knows them when it is ready.
        add_nodes(plane.api, nodes)
        _say("Installing Linkwise ...")
        trial = install(plane)
        shutil.copyfile(plane.kubeconfig, folder / "kubeconfig")
        text = _text(folder, plane, trial, len(nodes))
        status = {"processes": [_status(process) for process in processes.running], "text": text}
        (folder / STATUS).write_text(json.dumps(status))
        processes.release()
        return text


def _shown_again(folder: Path) -> int:
    """Tell about what is there already."""
    try:
        status = json.loads((folder / STATUS).read_text())
    except OSError:
        return _failed(f"{folder} is there already, half made: remove it with `make down`")
    ended = [one["name"] for one in status["processes"] if not runs(one["pid"], one["argv"])]
    if ended:
        names = ", ".join(ended)
        return _failed(f"{folder} is there already, but {names} ended: begin with `make down`")
    _say(f"It runs already; for another one, begin with `make down`.\n{status['text']}")
    return 0


def _text(folder: Path, plane: ControlPlane, trial: Trial, nodes: int) -> str:
    """Return what people can try; every command works as it stands here."""
    kubectl = "kubectl" if shutil.which("kubectl") else plane.site.binaries["kubectl"]
    demo = os.path.relpath(FOLDER.with_name("docs") / "demo")
    status = os.path.relpath(folder / STATUS)
    linkwise = os.path.relpath(Path(sys.executable).with_name("linkwise"))
    asked = (
        f"--server {trial.dry_run} --token-file {os.path.relpath(trial.token)}"
        f" --certificate-authority {os.path.relpath(trial.authority)}"
    )
    return f"""\
{nodes} nodes at {plane.server}, with Linkwise's webhook, scorer and certs. Try it here:

  export KUBECONFIG={folder.resolve() / "kubeconfig"}

Four workers were placed together, on the GPUs that are linked best. To see who has which GPU:

  {kubectl} get gangs
  {linkwise} inspect

A profile sets a driver version. A pod that it selects is changed: a label by the profile, an
affinity by its class. Where no node offers nvidia.com/gpu, a warning says so:

  {kubectl} apply -f {demo}/profile.yaml
  {kubectl} create -f {demo}/driver.yaml -o yaml

A share that no card can give is refused, with a suggested fix:

  {kubectl} create -f {demo}/denied.yaml

The same answers, and why, without creating anything:

  {linkwise} check {demo}/gang.yaml {asked}

{status} lists the processes and their logs. kwok simulates the nodes and all pods on them,
those of linkwise-system too. `make down` ends everything."""


def _lines(environment: Mapping[str, str]) -> Sequence[Line]:
    """Return the nodes that the environment asks for."""
    if not {"NODES", "MACHINE", "MODE"} & environment.keys():
        return _NODES
    count = environment.get("NODES", "2")
    if not count.isdecimal():
        raise InputError(f"NODES={count} is no number; write how many nodes there are to be")
    line = {
        "name": "gpu",
        "count": int(count),
        "machine": environment.get("MACHINE", "dgx1-v100"),
        "mode": environment.get("MODE", "topology"),
    }
    return [line]


def _status(process: Process) -> dict[str, object]:
    return {
        "name": process.name,
        "pid": process.pid,
        "log": str(process.log),
        "urls": process.urls,
        "argv": process.argv,
    }


def _say(line: str) -> None:
    print(line, flush=True)


def _failed(message: str) -> int:
    print(message, file=sys.stderr)
    return 1


if __name__ == "__main__":
    sys.exit(main(FOLDER))
