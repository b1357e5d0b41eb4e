"""Read what the kernel says about one process: its cgroups, its name, and when it started.

The pod and container are read from the path of a cgroup, as the kubelet and the container runtime
create it: `pod<uid>/<container id>` with the driver `cgroupfs`, and
`kubepods-pod<uid>.slice/cri-containerd-<container id>.scope` with `systemd`, below any prefix.
"""

import re
from dataclasses import dataclass

_POD = re.compile(
    r"(?:.*-)?pod([0-9a-f]{8}(?:([-_])[0-9a-f]{4}\2[0-9a-f]{4}\2[0-9a-f]{4}\2[0-9a-f]{12}|[0-9a-f]{24}))"
    r"(?:\.slice)?"
)
"""A static pod has a hash without dashes. `systemd` needs underscores in place of dashes."""
_CONTAINER = re.compile(r"(?:[a-z][a-z-]*-)?([0-9a-f]{64})(?:\.scope)?")
_TICKS = re.compile("[0-9]{1,20}")
"""A number of 64 bits."""
_NAME_MAX = 64


@dataclass(frozen=True, slots=True)
class ContainerId:
    """The container of a process."""

    pod_uid: str
    container: str | None
    """Id at the container runtime; None for a process of the pod outside its containers."""


@dataclass(frozen=True, slots=True)
class Process:
    """One process on a GPU."""

    gpu: int
    """GPU index, as the driver counts."""
    pid: int
    started: int
    """Clock ticks since boot: distinguishes processes with the same pid."""
    name: str
    """The kernel truncates it to 15 bytes. Any process can change its own."""
    container: ContainerId | None
    """None for a process of the host."""


def parse_cgroup(text: str) -> ContainerId | None:
    """Return the container of a process from its `/proc/<pid>/cgroup`; None for one of the host.

    Of nested pods the outermost counts: a container can create cgroups below its own, but not
    above.

    Args:
        text: Lines `<hierarchy>:<controllers>:<path>`; of cgroup v2 one line.
    """
    for line in text.splitlines():
        _, _, path = line.partition(":")[2].partition(":")
        # A colon separates the parts if a runtime without the systemd driver gets its paths.
        parts = iter(re.split("[/:]", path))
        for part in parts:
            if pod := _POD.fullmatch(part):
                containers = filter(None, map(_CONTAINER.fullmatch, parts))
                container = next(containers, None)
                return ContainerId(pod[1].replace("_", "-"), container[1] if container else None)
    return None


def parse_start(stat: str) -> int | None:
    """Return the start of a process from its `/proc/<pid>/stat` [clock ticks]; None if unreadable.

    The name is in parentheses and may have spaces and parentheses itself.
    """
    fields = stat.rpartition(")")[2].split()
    return int(fields[19]) if len(fields) > 19 and _TICKS.fullmatch(fields[19]) else None


def parse_state(stat: str) -> str:
    """Return the state of a process from its `/proc/<pid>/stat`, such as `D`; empty: unreadable."""
    return stat.rpartition(")")[2].strip()[:1]


def printable(name: str) -> str:
    """Return the name of a process for a message, without characters that confuse a terminal."""
    text = "".join(letter if letter.isprintable() else "?" for letter in name.strip())
    return text[:_NAME_MAX] or "?"
