"""Read processes from `/proc`, of the node's pid namespace."""

import os
from collections.abc import Collection, Iterable, Iterator
from pathlib import Path

from agent.audit.processes import Process, parse_cgroup, parse_start, parse_state, printable

_ZOMBIE = "Z"
_CGROUPS_MAX = 1 << 17
"""Longest list of the cgroups of a process [bytes]: a path of 4 KiB in each of 15 hierarchies."""


def read_processes(running: Iterable[tuple[int, int]], proc: Path) -> tuple[Process, ...]:
    """Return the processes on the GPUs; one that ended meanwhile is left out.

    Args:
        running: GPU index and pid of each, as the driver reports them.
        proc: The mounted file system.

    Cost: three files of each process.
    """
    return tuple(_read(running, proc))


def running_pods(uids: Collection[str], proc: Path) -> dict[str, str]:
    """Return a process of each of these pods that has one, by uid, such as `process 7 (train)`.

    The process that holds a pod's sandbox counts: a container can start as long as it is there.

    Args:
        uids: UIDs of pods.
        proc: The mounted file system, of the node's pid namespace.

    Raises:
        OSError: It cannot be read.

    Cost: one file of each process of the node, which takes 20 µs.
    """
    # Containers wait for this. Paths of cgroups are parsed only where they contain a UID: `systemd`
    # writes it with underscores.
    needles = {form.encode() for uid in uids for form in (uid, uid.replace("-", "_"))}
    found: dict[str, str] = {}
    for name in os.listdir(proc):  # noqa: PTH208 - a Path of each process takes longer.
        if name.isdecimal():
            try:
                cgroup = _head(f"{proc}/{name}/cgroup")
                if not any(needle in cgroup for needle in needles):
                    continue
                folder, container = proc / name, parse_cgroup(cgroup.decode(errors="replace"))
                if container and container.pod_uid in uids and not _has_ended(folder):
                    command = printable(_text(folder / "comm"))
                    found.setdefault(container.pod_uid, f"process {name} ({command})")
            except (FileNotFoundError, ProcessLookupError):
                continue
    return found


def _head(path: str) -> bytes:
    """Return a file of the kernel up to a length that no list of cgroups has."""
    file = os.open(path, os.O_RDONLY)
    try:
        return os.read(file, _CGROUPS_MAX)
    finally:
        os.close(file)


def _has_ended(folder: Path) -> bool:
    """Return whether only the exit status of a process is left, and no thread of it runs."""
    is_zombie = parse_state(_text(folder / "stat")) == _ZOMBIE
    return is_zombie and len(list((folder / "task").iterdir())) <= 1


def _read(running: Iterable[tuple[int, int]], proc: Path) -> Iterator[Process]:
    for gpu, pid in running:
        folder = proc / str(pid)
        try:
            before = parse_start(_text(folder / "stat"))
            name, cgroup = _text(folder / "comm"), _text(folder / "cgroup")
            after = parse_start(_text(folder / "stat"))
        except OSError:
            # It ended, and the kernel may even say so in the middle of a file (ESRCH).
            continue
        if before is not None and before == after:
            yield Process(gpu, pid, before, printable(name), parse_cgroup(cgroup))


def _text(file: Path) -> str:
    return file.read_bytes().decode(errors="replace")
