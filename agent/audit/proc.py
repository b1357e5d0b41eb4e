"""Read processes from `/proc`, of the node's pid namespace."""

from collections.abc import Iterable, Iterator
from pathlib import Path

from agent.audit.processes import Process, parse_cgroup, parse_start, printable


def read_processes(running: Iterable[tuple[int, int]], proc: Path) -> tuple[Process, ...]:
    """Return the processes on the GPUs; one that ended meanwhile is left out.

    Args:
        running: GPU index and pid of each, as the driver reports them.
        proc: The mounted file system.

    Cost: three files of each process.
    """
    return tuple(_read(running, proc))


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
