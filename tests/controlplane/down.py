"""`make down`: ends what `make up` started, and leaves nothing of it."""

import json
import os
import shutil
import signal
from pathlib import Path

from controlplane.process import NotReadyError, wait_until
from controlplane.up import FOLDER, STATUS


def main(folder: Path) -> None:
    """End every process by its id, the last one first, and remove the folder."""
    status = folder / STATUS
    if status.exists():
        for process in reversed(json.loads(status.read_text())["processes"]):
            _end(process["pid"], process["argv"])
    shutil.rmtree(folder, ignore_errors=True)


def _end(pid: int, argv: list[str]) -> None:
    # Its id may be another's by now: a machine that slept, a process that died.
    if not _runs(pid, argv):
        return
    os.kill(pid, signal.SIGTERM)
    try:
        wait_until(lambda: not _runs(pid, argv), f"{argv[0]} ends", seconds=10)
    except NotReadyError:
        os.killpg(pid, signal.SIGKILL)
        wait_until(lambda: not _runs(pid, argv), f"{argv[0]} is gone", seconds=10)


def _runs(pid: int, argv: list[str]) -> bool:
    try:
        line = Path(f"/proc/{pid}/cmdline").read_bytes()
    except OSError:
        return False
    return line.decode(errors="replace").split("\0")[:-1] == argv


if __name__ == "__main__":
    main(FOLDER)
