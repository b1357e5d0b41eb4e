"""Start a control plane that keeps running: `make up`; `make down` stops it.

All that is shipped is installed on it, and all processes of Linkwise run. The nodes are two
DGX-1 whose GPUs are given out whole and one machine with four shared T4; or, by the environment
variables NODES, MACHINE and MODE, some of one kind. With NODES=real there is one node that runs
containers, with NODES=claims there are two whose GPUs NVIDIA's DRA driver gives out.
"""

import json
import os
import shutil
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

from controlplane.api import ApiError
from controlplane.binaries import Binaries, BuildError, MissingError, binaries
from controlplane.demo import ClaimsDemo, ContainerDemo, Demo, NodesDemo, node_programs
from controlplane.node.place import Place
from controlplane.nodes import Line, read_nodes
from controlplane.plane import ControlPlane
from controlplane.process import NotReadyError, Process, Processes

from linkwise.manifest.value import InputError

FOLDER = Path(__file__).parents[2] / ".up"
STATUS = "status.json"

_NODES: tuple[Line, ...] = (
    {"name": "gpu", "count": 2, "machine": "dgx1-v100", "mode": "topology"},
    {"name": "share-0", "machine": "t4x4", "mode": "core_mem", "gpuMemory": 15},
)


def main(folder: Path) -> int:
    """Start everything in a new folder, print its addresses, and leave it running."""
    try:
        kind = _kind(os.environ)
        nodes = () if kind else read_nodes(_lines(os.environ))
        if folder.exists():
            return _shown_again(folder)
        demo: Demo
        if kind == "real":
            demo = ContainerDemo(node_programs(_say), _say)
        else:
            demo = ClaimsDemo(_say) if kind else NodesDemo(nodes, _say)
        found = binaries(_say)
    except (BuildError, InputError, MissingError) as error:
        return _failed(str(error))
    folder.mkdir()
    try:
        text = _start(folder, found, demo)
    except (ApiError, NotReadyError, OSError, KeyboardInterrupt) as error:
        shutil.rmtree(folder, ignore_errors=True)
        return _failed(str(error) or "interrupted: nothing is left running")
    _say(text)
    return 0


def runs(pid: int, argv: Sequence[str]) -> bool:
    """Return whether a process is still the started one; its id may be reused by another."""
    try:
        return command_line(pid) == list(argv)
    except OSError:
        return False


def command_line(pid: int) -> list[str]:
    """Return the command line of a process."""
    line = Path(f"/proc/{pid}/cmdline").read_bytes()
    return line.decode(errors="replace").split("\0")[:-1]


def _start(folder: Path, found: Binaries, demo: Demo) -> str:
    """Start everything, and return what to try; after a failure stop everything."""
    with Processes() as processes:
        _say("Starting etcd, API server, controllers, scheduler and kwok ...")
        plane = ControlPlane(folder, found, processes, demo.flags)
        plane.start()
        shutil.copyfile(plane.kubeconfig, folder / "kubeconfig")
        with demo.run(plane) as shown:
            running = [_status(process) for process in processes.running]
            if shown.place is not None:
                # The first one is ended last; it removes what is left of the node.
                running.insert(0, _cleaner(shown.place))
            listed = os.path.relpath(folder / STATUS)
            text = (
                f"{shown.text}\n\n{listed} lists the processes and their logs. `make down` ends it."
            )
            (folder / STATUS).write_text(json.dumps({"processes": running, "text": text}))
            processes.release()
            if shown.place is not None:
                shown.place.kept = True
        return text


def _cleaner(place: Place) -> dict[str, object]:
    return {
        "name": "cleaner",
        "pid": place.cleaner,
        "log": "",
        "urls": (),
        "argv": command_line(place.cleaner),
    }


def _shown_again(folder: Path) -> int:
    """Print the addresses of what already runs."""
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


def _lines(environment: Mapping[str, str]) -> Sequence[Line]:
    """Return the nodes that the environment asks for."""
    if not {"NODES", "MACHINE", "MODE"} & environment.keys():
        return _NODES
    count = environment.get("NODES", "2")
    if not count.isdecimal():
        raise InputError(
            f"NODES={count} is no number: write how many nodes of kwok to add, or real, or claims"
        )
    line = {
        "name": "gpu",
        "count": int(count),
        "machine": environment.get("MACHINE", "dgx1-v100"),
        "mode": environment.get("MODE", "topology"),
    }
    return [line]


def _kind(environment: Mapping[str, str]) -> str:
    """Return the kind of nodes that NODES names; empty if it is no kind."""
    nodes = environment.get("NODES", "")
    described = {"real": "one DGX-1 V100", "claims": "two DGX-1 V100"}
    if nodes in described and {"MACHINE", "MODE"} & environment.keys():
        raise InputError(f"NODES={nodes} is {described[nodes]}: leave out MACHINE and MODE")
    return nodes if nodes in described else ""


def _status(process: Process) -> dict[str, object]:
    return {
        "name": process.name,
        "pid": process.pid,
        "log": str(process.log),
        "urls": process.urls,
        # Its own command line: it may have been started by another program.
        "argv": command_line(process.pid),
    }


def _say(line: str) -> None:
    print(line, flush=True)


def _failed(message: str) -> int:
    print(message, file=sys.stderr)
    return 1


if __name__ == "__main__":
    sys.exit(main(FOLDER))
