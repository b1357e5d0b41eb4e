"""A control plane on this machine that stays: `make up` starts it, `make down` ends it.

The nodes are two DGX-1 whose GPUs are given out whole and one machine with four shared T4; or, by
the environment variables NODES, MACHINE and MODE, some of one kind.
"""

import json
import os
import shutil
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from controlplane.binaries import Binaries, BuildError, MissingError, binaries
from controlplane.nodes import Line, add_nodes, read_nodes
from controlplane.plane import ControlPlane
from controlplane.process import NotReadyError, Process, Processes

from cluster.node import Node
from webhook.manifest.value import InputError

FOLDER = Path(__file__).parents[2] / ".up"
STATUS = "status.json"

LINKWISE: tuple[tuple[str, Callable[[ControlPlane], Sequence[str]]], ...] = ()
"""The processes of Linkwise: the name of each, and how it is called."""

_NODES: tuple[Line, ...] = (
    {"name": "gpu", "count": 2, "machine": "dgx1-v100", "mode": "topology"},
    {"name": "share-0", "machine": "t4x4", "mode": "core_mem", "gpuMemory": 15},
)


def main(folder: Path) -> int:
    """Start everything in a folder that is not there yet, say where it is, leave it running."""
    if folder.exists():
        return _failed(f"{folder} is there already: end that one first, with `make down`")
    try:
        nodes = read_nodes(_lines(os.environ))
        found = binaries(_say)
        folder.mkdir()
        server = _start(folder, found, nodes)
    except (BuildError, InputError, MissingError, NotReadyError) as error:
        shutil.rmtree(folder, ignore_errors=True)
        return _failed(str(error))
    _say(f"{len(nodes)} nodes at {server}; export KUBECONFIG={folder / 'kubeconfig'}")
    return 0


def _start(folder: Path, found: Binaries, nodes: Sequence[Node]) -> str:
    """Start everything, and return the API server's address; what fails leaves nothing running."""
    with Processes() as processes:
        plane = ControlPlane(folder, found, processes)
        plane.start()
        for name, argv in LINKWISE:
            processes.start(Process(name, argv(plane), folder / f"{name}.log"))
        add_nodes(plane.api, nodes)
        shutil.copyfile(plane.kubeconfig, folder / "kubeconfig")
        status = {"processes": [_status(process) for process in processes.running]}
        (folder / STATUS).write_text(json.dumps(status))
        processes.release()
        return plane.server


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
