"""Find out whether MPS keeps processes within limits, by programs that try to exceed them."""

import os
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import msgspec

from agent.driver.library import find_library
from agent.host.program import run_program
from agent.mps.limits import SHARED_MEMORY, Directories
from agent.mps.probe import Measurement
from linkwise.cluster.allocations.record import Isolation
from linkwise.cluster.container_variables import (
    ENV_MPS_MEMORY,
    ENV_MPS_PIPES,
    ENV_MPS_PREFIX,
    ENV_MPS_THREADS,
)

_THREADS = 1
"""Limit of compute [%]; below the limits that the daemon may have, as is the next."""
_LIMIT, _BLOCK = 512, 640
"""Limit of memory, and the memory that is allocated in spite of it [MiB]."""
_NOWHERE = "/nonexistent"
_SHELL = f'mount --bind "$1" {SHARED_MEMORY} && shift && exec "$@"'


@dataclass(frozen=True, slots=True)
class Enforcement:
    """The isolation that was seen, with a reason for people."""

    isolation: Isolation
    reason: str


@dataclass(frozen=True, slots=True)
class Prober:
    """Starts the programs that measure."""

    library: str
    """Name of the driver's library, or its path as this process sees it."""
    host_root: Path = Path("/")
    """Root of the node's file system, as this process sees it."""
    private_shared_memory: bool = True
    """Give the programs the daemon's `/dev/shm`; needs the right to mount."""
    seconds: float = 60
    """Longest time of one program."""

    async def probe(self, directories: Directories) -> Enforcement:
        """Measure clients of a daemon with and without limits, and a process without the daemon.

        Args:
            directories: Folders of the daemon, on the node.

        Cost: three CUDA programs, some seconds, and 0.7 GiB of free memory on the first GPU.
        """
        limits = {ENV_MPS_THREADS: str(_THREADS), ENV_MPS_MEMORY: f"0={_LIMIT}M"}
        pipes = {ENV_MPS_PIPES: self._on_host(directories.pipes)}
        return decide(
            client=await self._measure(directories, pipes),
            limited=await self._measure(directories, pipes | limits),
            outside=await self._measure(directories, {ENV_MPS_PIPES: _NOWHERE}),
        )

    async def _measure(self, directories: Directories, variables: Mapping[str, str]) -> Measurement:
        result = await run_program(
            self._command(directories), _environment(variables), "", self.seconds
        )
        if result.problem:
            return Measurement(failed_step="load", detail=result.problem)
        try:
            return msgspec.convert(msgspec.json.decode(result.output), Measurement)
        except msgspec.MsgspecError:
            return Measurement(failed_step="load", detail=f"no JSON: {result.output[:100]!r}")

    def _command(self, directories: Directories) -> Sequence[str]:
        library = str(find_library(self.host_root, self.library) or self.library)
        program = (sys.executable, "-m", "agent.mps.probe", library, str(_BLOCK))
        if not self.private_shared_memory:
            return program
        folder = self._on_host(directories.shared_memory)
        return ("unshare", "--mount", "sh", "-c", _SHELL, "sh", folder, *program)

    def _on_host(self, path: str) -> str:
        return str(self.host_root / path.lstrip("/"))


def decide(client: Measurement, limited: Measurement, outside: Measurement) -> Enforcement:
    """Return the isolation that three measurements show.

    Args:
        client: A client of the daemon without limits of its own.
        limited: A client with limits.
        outside: A process without the daemon.
    """
    reason = _unlimited(client, limited) or _avoidable(outside)
    if reason is not None:
        return Enforcement(Isolation.NONE, reason)
    return Enforcement(
        Isolation.MPS,
        f"a client was limited to {limited.multiprocessors} of {client.multiprocessors}"
        f" multiprocessors and {_LIMIT} MiB, and a process without MPS got no GPU",
    )


def _unlimited(client: Measurement, limited: Measurement) -> str | None:
    """Return why a client was not seen to be limited, or None."""
    if client.failed_step or limited.failed_step:
        failed = client if client.failed_step else limited
        return f"a client of MPS failed ({failed.failed_step}): {failed.detail}"
    if not client.allocated:
        return f"not measured: a client without limits cannot allocate {_BLOCK} MiB"
    if limited.allocated:
        return f"a client with a limit of {_LIMIT} MiB allocated {_BLOCK} MiB"
    if limited.multiprocessors >= client.multiprocessors:
        return (
            f"a client with a limit of {_THREADS} % has {limited.multiprocessors} multiprocessors,"
            f" and one without has {client.multiprocessors}"
        )
    return None


def _avoidable(outside: Measurement) -> str | None:
    """Return why a process can avoid the daemon, or None."""
    if outside.failed_step is None:
        return (
            "a process that avoids the MPS daemon gets the GPU without limits:"
            " run nvidia-smi -c EXCLUSIVE_PROCESS on the node"
        )
    if outside.failed_step != "context":
        return f"not measured: a process without MPS failed: {outside.detail}"
    return None


def _environment(variables: Mapping[str, str]) -> dict[str, str]:
    inherited = {
        name: value for name, value in os.environ.items() if not name.startswith(ENV_MPS_PREFIX)
    }
    return inherited | dict(variables)
