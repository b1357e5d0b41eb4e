"""Remove processes, mounts and cgroups of a test node when the process that started it has ended.

Run as a program, it reads its standard input until that closes. If it read something, it waits for
SIGTERM, too. It inherits the lock of the place, so that the next node starts there only after this
one is gone.
"""

import errno
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

_CGROUPS = Path("/sys/fs/cgroup")
_SECONDS = 60
"""How long processes are waited for that were killed [s]."""


def hierarchies() -> list[Path]:
    """Return the roots of the hierarchies of cgroups: one of version 2, or several of version 1."""
    if (_CGROUPS / "cgroup.controllers").exists():
        return [_CGROUPS]
    return sorted(path for path in _CGROUPS.iterdir() if (path / "cgroup.procs").exists())


def processes(cgroup: str) -> set[int]:
    """Return the ids of all processes in a cgroup and below it."""
    found: set[int] = set()
    for root in hierarchies():
        for file in (root / cgroup).rglob("cgroup.procs"):
            with suppress(OSError):
                found |= {int(line) for line in file.read_text().split()}
    return found


@contextmanager
def frozen(cgroup: str) -> Iterator[None]:
    """Keep the processes of a cgroup from running, and from being killed.

    Frozen is the cgroup of the pod: the runtime thaws that of a container before it kills it.
    """
    path, freeze, thaw = next(
        (root / cgroup / name, freeze, thaw)
        for root in hierarchies()
        for name, freeze, thaw in (
            ("freezer.state", "FROZEN", "THAWED"),
            ("cgroup.freeze", "1", "0"),
        )
        if (root / cgroup / name).exists()
    )
    path.write_text(freeze)
    try:
        yield
    finally:
        path.write_text(thaw)


def kill(cgroup: str) -> None:
    """Kill all processes of a cgroup, and remove it.

    Raises:
        TimeoutError: Processes did not end.
    """
    deadline = time.monotonic() + _SECONDS
    while pids := processes(cgroup):
        if time.monotonic() > deadline:
            raise TimeoutError(f"{cgroup}: processes {sorted(pids)} did not end in {_SECONDS} s")
        for pid in pids:
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        time.sleep(0.02)
    for root in hierarchies():
        folders = [path for path in (root / cgroup).rglob("*") if path.is_dir()]
        for path in (*sorted(folders, reverse=True), root / cgroup):
            _remove(path, deadline)


def _remove(cgroup: Path, deadline: float) -> None:
    """Remove an empty cgroup: its last process may still be on its way out."""
    while True:
        try:
            cgroup.rmdir()
        except FileNotFoundError:
            return
        except OSError as error:
            if error.errno != errno.EBUSY or time.monotonic() > deadline:
                raise
            time.sleep(0.02)
        else:
            return


def clean(folder: Path, name: str) -> None:
    """Remove the processes, cgroups, bridge and files of a node; mounts go with the processes.

    Args:
        folder: Of the node's files.
        name: Of its cgroup and of its bridge.
    """
    kill(name)
    if Path("/sys/class/net", name).exists():
        argv = ("ip", "link", "delete", name)
        subprocess.run(argv, check=True, timeout=_SECONDS)
    deadline = time.monotonic() + _SECONDS
    while folder.exists() and time.monotonic() < deadline:
        # The kernel ends a mount namespace a moment after its last process.
        with suppress(OSError):
            shutil.rmtree(folder)


if __name__ == "__main__":
    signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGTERM})
    if sys.stdin.read():
        # Who reads the output of the process that started this one waits until it is closed.
        nothing = os.open(os.devnull, os.O_WRONLY)
        for output in (1, 2):
            os.dup2(nothing, output)
        signal.sigwait({signal.SIGTERM})
    clean(Path(sys.argv[1]), sys.argv[2])
