"""The control daemon of NVIDIA's Multi-Process Service on this node: found, or started and ended.

A daemon in the agent's own folder is the agent's, also after the agent was restarted. Any other one
belongs to an administrator: it is used, and never started, ended or changed.
"""

import asyncio
import shutil
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path

import structlog

from agent.host.command import host_command
from agent.host.program import Result, run_program
from agent.mps.limits import SHARED_MEMORY, DaemonLimits, Directories, limit_commands
from agent.mps.memory import mount_empty, unmount
from linkwise.cluster.container_variables import ENV_MPS_LOGS, ENV_MPS_PIPES
from linkwise.cluster.keys import NVIDIA_GPU
from linkwise.runtime.process.backoff import Backoff

_log = structlog.get_logger()

_CONTROL, _SMI = "nvidia-cuda-mps-control", "nvidia-smi"
_PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin:/run/nvidia/driver/usr/bin"
_OTHERS = (
    Directories(f"/run/nvidia/mps/{NVIDIA_GPU}/pipe", "/run/nvidia/mps/shm"),
    Directories("/tmp/nvidia-mps", SHARED_MEMORY),  # noqa: S108
)
_BIND_SHARED_MEMORY = 'mount --bind "$1" /dev/shm && exec nvidia-cuda-mps-control -d'
"""The daemon has a `/dev/shm` of its own, since it is shared with the containers."""


class State(StrEnum):
    """State of the daemon."""

    OFF = "off"
    """The mode of the node needs no daemon."""
    RUNNING = "running"
    FAILED = "failed"


@dataclass(frozen=True, slots=True)
class DaemonStatus:
    """State of the daemon, with a reason for people."""

    state: State
    reason: str
    directories: Directories | None = None
    """Only of a running daemon."""
    ours: bool = False
    """The agent started it."""
    servers: tuple[int, ...] = ()
    """Pids of its servers."""


@dataclass(frozen=True, slots=True)
class DaemonSettings:
    """Where the daemon is, and how long its commands may take."""

    host_root: Path = Path("/")
    """Root of the node's file system; the driver's programs run with it as their root."""
    directory: str = "/run/linkwise/mps"
    """Folder of the agent's own daemon, on the node."""
    others: tuple[Directories, ...] = _OTHERS
    """Where the daemon of an administrator is searched: NVIDIA's device plugin, and CUDA."""
    path: str = _PATH
    """`PATH` of the programs."""
    private_shared_memory: bool = True
    """The agent's daemon has its own file system and `/dev/shm`; needs the right to mount."""
    command_seconds: float = 5
    start_seconds: float = 20
    quit_seconds: float = 10
    first_delay: float = 1
    """Before the first restart of a daemon that died [s]; doubles with each failure."""
    longest_delay: float = 300

    @property
    def own(self) -> Directories:
        """Folders of the agent's daemon."""
        return Directories(f"{self.directory}/pipe", f"{self.directory}/shm")


@dataclass(slots=True)
class ControlDaemon:
    """Keeps a control daemon running while the mode of the node needs one."""

    settings: DaemonSettings
    on_ready: Callable[[], None] = lambda: None
    """Called when `reconcile` may start the daemon again after a failure."""
    status: DaemonStatus = DaemonStatus(State.OFF, "not reconciled yet")
    """The result of the last `reconcile`."""
    _used: Directories | None = None
    """Of the daemon that runs, or ran until it failed."""
    _applied: DaemonLimits | None = None
    _backoff: Backoff = field(init=False)
    _lock: asyncio.Lock = field(default_factory=asyncio.Lock)

    def __post_init__(self) -> None:
        first, longest = self.settings.first_delay, self.settings.longest_delay
        self._backoff = Backoff(first, longest, self.on_ready)

    async def reconcile(self, *, needed: bool) -> DaemonStatus:
        """Find, start or end the daemon, and return its state.

        Args:
            needed: The mode of the node is `mps`.

        Cost: one short program where the daemon runs; none where it is neither needed nor ours.
        """
        async with self._lock:
            before = self.status
            self.status = await (self._ensure() if needed else self._end())
            if (before.state, before.reason) != (self.status.state, self.status.reason):
                level = _log.warning if self.status.state is State.FAILED else _log.info
                level("MPS daemon changed", state=self.status.state, reason=self.status.reason)
            return self.status

    async def stop(self) -> None:
        """End the daemon if it is the agent's; its clients may finish first."""
        await self.reconcile(needed=False)

    async def renew(self) -> DaemonStatus:
        """Restart the agent's daemon with empty folders, and return its state."""
        async with self._lock:
            self.status = await self._end()
            if self.status.state is State.OFF:
                self.status = await self._start()
            return self.status

    async def apply(self, limits: DaemonLimits) -> str | None:
        """Set the limits of clients that start from now on, if the daemon is the agent's.

        Returns:
            Why it failed, for people; None if the limits are in effect, or are not the agent's.
        """
        async with self._lock:
            if not self.status.ours or limits == self._applied:
                return None
            commands = limit_commands(limits, self.status.servers)
            result = await self._control(self.settings.own, *commands)
            # A daemon reports an invalid command in its output only.
            problem = result.problem or _refusal(result.output)
            self._applied = None if problem else limits
            return problem

    async def _ensure(self) -> DaemonStatus:
        own = self.settings.own
        for candidate in (self._used,) if self._used else (*self.settings.others, own):
            if (status := await self._look(candidate)) is not None:
                self._used = status.directories
                return status
        if self._used is not None and self._used != own:
            where = self._used.pipes
            return DaemonStatus(
                State.FAILED,
                f"the MPS daemon at {where} stopped, and the agent did not start it: restart it",
            )
        if self._used is not None:
            self._used = None
            self._backoff.start(own, f"the MPS daemon at {own.pipes} died")
        if (reason := self._backoff.reason(own)) is not None:
            return DaemonStatus(State.FAILED, f"{reason}; it is started again later")
        return await self._start()

    async def _look(self, directories: Directories) -> DaemonStatus | None:
        """Return the status of a daemon; None if none answers there."""
        if not self._on_host(directories.pipes).is_dir():
            return None
        result = await self._control(directories, "get_server_list")
        if result.problem:
            return None
        if directories.shared_memory == SHARED_MEMORY:
            usable = self.settings.others[0]
            return DaemonStatus(
                State.FAILED,
                f"the MPS daemon at {directories.pipes} has the /dev/shm of the host, which "
                f"containers could fill: end it, or start it at {usable.pipes} with "
                f"{usable.shared_memory} as its /dev/shm",
            )
        ours = directories == self.settings.own
        servers = tuple(int(word) for word in result.output.split() if word.isdecimal())
        reason = f"the {'agent' if ours else 'node'}'s daemon answers at {directories.pipes}"
        return DaemonStatus(State.RUNNING, reason, directories, ours, servers)

    async def _start(self) -> DaemonStatus:
        own = self.settings.own
        try:
            self._make_folders()
        except OSError as error:
            return self._failed(f"{error.filename} cannot be created: {error.strerror}")
        # Else a process that avoids the daemon would get the GPU without limits.
        exclusive = await self._run([_SMI, "-c", "EXCLUSIVE_PROCESS"])
        if exclusive.problem:
            return self._failed(exclusive.problem)
        command = [_CONTROL, "-d"]
        if self.settings.private_shared_memory:
            shell = ["sh", "-c", _BIND_SHARED_MEMORY, "sh", own.shared_memory]
            command = ["unshare", "--mount", *shell]
        started = await self._run(command, seconds=self.settings.start_seconds)
        if started.problem:
            return self._failed(started.problem)
        # A server now, before a process without limits takes the GPU exclusively.
        server = await self._control(own, "start_server -uid 0", retry=True)
        status = None if server.problem else await self._look(own)
        if status is None:
            return self._failed(server.problem or f"no daemon answers at {own.pipes}")
        self._used, self._applied = own, None
        return status

    def _failed(self, problem: str) -> DaemonStatus:
        self._backoff.start(self.settings.own, problem)
        return DaemonStatus(State.FAILED, problem)

    async def _end(self) -> DaemonStatus:
        own = self.settings.own
        self._backoff.reset(own)
        pipes = self._on_host(own.pipes)
        if pipes.is_dir():
            running = await self._look(own)
            ended = running and await self._control(own, "quit", seconds=self.settings.quit_seconds)
            shared = await self._run([_SMI, "-c", "DEFAULT"])
            if problem := (ended and ended.problem) or shared.problem:
                return DaemonStatus(State.FAILED, f"the MPS daemon was not ended: {problem}")
            # The folder marks that the agent's daemon is to be ended.
            shutil.rmtree(pipes, ignore_errors=True)
            if self.settings.private_shared_memory:
                with suppress(OSError):
                    unmount(self._on_host(self.settings.directory))
        self._used = self._applied = None
        return DaemonStatus(State.OFF, "the mode of the node is not mps")

    def _make_folders(self) -> None:
        own = self.settings.own
        if self.settings.private_shared_memory:
            mount_empty(self._on_host(self.settings.directory))
        modes = {own.pipes: 0o755, self._logs: 0o755, own.shared_memory: 0o1777}
        for name, mode in modes.items():
            folder = self._on_host(name)
            folder.mkdir(parents=True, exist_ok=True)
            folder.chmod(mode)

    @property
    def _logs(self) -> str:
        return f"{self.settings.directory}/log"

    def _on_host(self, path: str) -> Path:
        return self.settings.host_root / path.lstrip("/")

    async def _control(
        self,
        directories: Directories,
        *commands: str,
        seconds: float | None = None,
        retry: bool = False,
    ) -> Result:
        """Send commands to a daemon; with `retry` until it answers or the start takes too long."""
        text = "".join(f"{command}\n" for command in commands)
        loop = asyncio.get_running_loop()
        deadline = loop.time() + self.settings.start_seconds
        while True:
            result = await self._run([_CONTROL], directories, text, seconds)
            if not (retry and result.problem) or loop.time() >= deadline:
                return result
            await asyncio.sleep(0.1)

    async def _run(
        self,
        command: Sequence[str],
        directories: Directories | None = None,
        text: str = "",
        seconds: float | None = None,
    ) -> Result:
        environment = {
            "PATH": self.settings.path,
            ENV_MPS_PIPES: (directories or self.settings.own).pipes,
            ENV_MPS_LOGS: self._logs,
        }
        limit = seconds or self.settings.command_seconds
        return await run_program(
            host_command(self.settings.host_root, command), environment, text, limit
        )


def _refusal(output: str) -> str | None:
    """Return the line in which the daemon refuses a command, or None."""
    words = ("invalid", "error", "failed", "unknown", "cannot")
    lines = (line.strip() for line in output.splitlines())
    return next((line for line in lines if any(word in line.lower() for word in words)), None)
