"""Limits of MPS clients: the edits of one container, and the limits of the whole daemon.

A client's variables can only lower the limits of its daemon. So the limits of the daemon are those
of the largest share on the node, for processes that unset their variables.

Source: CUDA documentation, "Multi-Process Service", CUDA_MPS_ACTIVE_THREAD_PERCENTAGE and
CUDA_MPS_PINNED_DEVICE_MEM_LIMIT, "the new limit will only further constrain".
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from agent.binding.cdi_spec import Edits, Mount
from linkwise.cluster.allocations.gpus import GPUShare
from linkwise.cluster.container_variables import ENV_MPS_PIPES
from linkwise.cluster.requests import mps
from linkwise.cluster.requests.request import ContainerRequest

SHARED_MEMORY = "/dev/shm"  # noqa: S108 - where the server and its clients exchange data.
_ALL_THREADS = 100
_MOUNT_OPTIONS = ("rw", "nosuid", "nodev", "rbind", "rprivate")


@dataclass(frozen=True, slots=True)
class Directories:
    """Folders of one control daemon, on the host."""

    pipes: str
    shared_memory: str
    """What the daemon has as `/dev/shm`."""


@dataclass(frozen=True, slots=True)
class DaemonLimits:
    """Limits of every client of a daemon."""

    threads: int = _ALL_THREADS
    """Compute [%]."""
    memory: tuple[tuple[str, int], ...] = ()
    """UUID or index of each GPU with shares, and the memory of the largest one [MiB]."""


def client_edits(
    ask: ContainerRequest, cards: int, variables: Mapping[str, str], directories: Directories
) -> Edits:
    """Return the edits of a container with a share.

    The pipes are mounted where CUDA searches them by default, so that a process that unsets the
    variable still finds them.

    Args:
        ask: Request of the container, over all cards.
        cards: Number of cards of the share.
        variables: Literal variables of the container; its tighter limits are kept.
        directories: Folders of the daemon.
    """
    environment = {ENV_MPS_PIPES: mps.PIPES}
    for name, ours in mps.limits(ask, cards).items():
        theirs = variables.get(name, "")
        environment[name] = theirs if mps.is_tighter(name, theirs, ours) else ours
    folders = (directories.pipes, mps.PIPES), (directories.shared_memory, SHARED_MEMORY)
    return Edits(
        env=tuple(f"{name}={value}" for name, value in environment.items()),
        mounts=tuple(Mount(host, inside, _MOUNT_OPTIONS) for host, inside in folders),
    )


def daemon_limits(shares: Iterable[GPUShare]) -> DaemonLimits:
    """Return the limits that no share on the node exceeds.

    Args:
        shares: Of all live containers, and of the container that starts next.
    """
    shares = tuple(shares)
    threads = max((share.core or _ALL_THREADS for share in shares), default=_ALL_THREADS)
    memory: dict[str, int] = {}
    for share in shares:
        if share.mem is not None:
            device = share.uuid or str(share.i)
            memory[device] = max(memory.get(device, 0), share.mem * mps.MIB_PER_GIB)
    return DaemonLimits(min(threads, _ALL_THREADS), tuple(sorted(memory.items())))


def limit_commands(limits: DaemonLimits, servers: Iterable[int]) -> tuple[str, ...]:
    """Return the commands of `nvidia-cuda-mps-control` that set limits for new clients.

    Args:
        limits: The limits.
        servers: Pids of the running servers; a default applies to later servers only.
    """
    commands = [f"set_default_active_thread_percentage {limits.threads}"]
    commands += [
        f"set_default_device_pinned_mem_limit {device} {mib}M" for device, mib in limits.memory
    ]
    for pid in servers:
        commands.append(f"set_active_thread_percentage {pid} {limits.threads}")
        commands += [
            f"set_device_pinned_mem_limit {pid} {device} {mib}M" for device, mib in limits.memory
        ]
    return tuple(commands)
