"""`make down`: ends what `make up` started, and leaves nothing of it."""

import json
import os
import shutil
import signal
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

from controlplane.process import NotReadyError, wait_until
from controlplane.up import FOLDER, STATUS, runs


def main(folder: Path) -> None:
    """End every process by its id, the last one first, and remove the folder."""
    status = folder / STATUS
    if status.exists():
        for process in reversed(json.loads(status.read_text())["processes"]):
            # It may end by itself between two looks.
            with suppress(ProcessLookupError):
                _end(process["pid"], process["argv"])
    shutil.rmtree(folder, ignore_errors=True)


def _end(pid: int, argv: Sequence[str]) -> None:
    if not runs(pid, argv):
        return
    os.kill(pid, signal.SIGTERM)
    # One that is paused would not see it.
    os.kill(pid, signal.SIGCONT)
    try:
        wait_until(lambda: not runs(pid, argv), f"{argv[0]} ends", seconds=30)
    except NotReadyError:
        os.killpg(pid, signal.SIGKILL)
        wait_until(lambda: not runs(pid, argv), f"{argv[0]} is gone", seconds=60)


if __name__ == "__main__":
    main(FOLDER)
