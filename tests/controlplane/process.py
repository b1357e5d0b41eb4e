"""Processes of a control plane: started, waited for, paused, and ended by their ids."""

import os
import random
import signal
import socket
import ssl
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from functools import cache
from itertools import cycle, islice
from pathlib import Path
from subprocess import CompletedProcess
from typing import Self, TypeVar
from urllib.request import urlopen

T = TypeVar("T")

POLL = 0.02
"""Pause between two questions whether something is ready, at least [s]."""
# Below the ports from which systems take those of outgoing connections: else a client that keeps
# trying to reach a server that restarts can take the server's port, or connect to itself.
_PORTS = range(20_000, 30_000)
_PORTS_OF_PROCESS = 250


class NotReadyError(Exception):
    """Something did not become ready in time, or ended: one line, then the end of its log."""


def free_ports(count: int) -> list[int]:
    """Return free ports of the loopback interface.

    No other process gets them from this function while this process runs.

    Raises:
        NotReadyError: There are too few.
    """
    own = islice(_own_ports(), _PORTS_OF_PROCESS)
    free = list(islice(filter(_is_free, own), count))
    if len(free) < count:
        raise NotReadyError(f"no {count} free ports in {_PORTS}")
    return free


@cache
def _own_ports() -> Iterator[int]:
    """Return an endless iterator over ports that are reserved for this process."""
    starts = _PORTS[::_PORTS_OF_PROCESS]
    for start in random.sample(starts, len(starts)):
        # The UDP port of the first number is the lock. It is open until this process ends.
        with socket.socket(type=socket.SOCK_DGRAM) as lock, suppress(OSError):
            lock.bind(("127.0.0.1", start))
            lock.detach()
            return cycle(range(start, start + _PORTS_OF_PROCESS))
    raise NotReadyError(f"other processes have reserved all of {_PORTS}")


def _is_free(port: int) -> bool:
    with socket.socket() as probe:
        try:
            probe.bind(("127.0.0.1", port))
        except OSError:
            return False
    return True


def wait_until(met: Callable[[], bool], what: str, seconds: float = 90) -> None:
    """Return as soon as a condition is met.

    A condition that raises is not met yet: the objects and servers that it reads may not be there.
    Mistakes of the test and failed assertions are raised at once.

    Args:
        met: The condition.
        what: The condition in words, for the message.
        seconds: How long to wait [s].

    Raises:
        NotReadyError: It was not met in time, or the condition raises this itself.
    """
    asked = time.monotonic()
    deadline = asked + seconds
    why: Exception | None = None
    while True:
        try:
            if met():
                return
        except (NotReadyError, AssertionError, AttributeError, NameError, TypeError):
            raise
        except Exception as error:  # noqa: BLE001 - it may be met later.
            why = error
        now = time.monotonic()
        if now > deadline:
            raise NotReadyError(f"{what}: not so after {seconds:g} s") from why
        # An expensive condition is evaluated less often, to leave the processor to others.
        time.sleep(min(max(POLL, 3 * (now - asked)), 0.5))
        asked = time.monotonic()


def wait_for(get: Callable[[], T | None], what: str, seconds: float = 90) -> T:
    """Return what a function returns, as soon as that is true; else as `wait_until`."""
    found: list[T] = []

    def is_there() -> bool:
        if value := get():
            found.append(value)
        return bool(found)

    wait_until(is_there, what, seconds)
    return found[0]


def answered_in_time(run: Callable[[], CompletedProcess[str]]) -> CompletedProcess[str]:
    """Run a dry run, again while the scorer has not answered it in the time of the webhook."""

    def in_time() -> CompletedProcess[str] | None:
        ran = run()
        return ran if "scorer" not in ran.stderr else None

    return wait_for(in_time, "the scorer answers in the time that the webhook has")


def answers(url: str) -> bool:
    """Return whether a GET of this address succeeds, from any process."""
    # Most servers here make a certificate for themselves when they start.
    trusting = ssl.create_default_context()
    trusting.check_hostname, trusting.verify_mode = False, ssl.CERT_NONE
    try:
        with urlopen(url, timeout=5, context=trusting):  # noqa: S310
            return True
    except OSError:
        return False


@dataclass(slots=True, eq=False)
class Process:
    """One program. Its output goes to its log; it leads a process group of its own."""

    name: str
    argv: Sequence[str]
    log: Path
    urls: tuple[str, ...] = ()
    env: Mapping[str, str] = field(default_factory=dict)
    child: subprocess.Popen[bytes] | None = None

    @property
    def pid(self) -> int:
        """The id, after its start."""
        if self.child is None:
            raise NotReadyError(f"{self.name} is not started")
        return self.child.pid

    @property
    def runs(self) -> bool:
        """It was started, and has not ended."""
        return self.child is not None and self.child.poll() is None

    def start(self) -> None:
        """Start it, or start it again."""
        with self.log.open("ab") as log:
            self.child = subprocess.Popen(
                self.argv,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                env=os.environ | self.env,
                start_new_session=True,
            )

    def wait_ready(self, ready: Callable[[], bool], seconds: float = 60) -> None:
        """Return as soon as it is ready.

        Raises:
            NotReadyError: It ended, or was not ready in time.
        """

        def met() -> bool:
            if not self.runs:
                raise NotReadyError(f"{self.name} ended before it was ready")
            return ready()

        try:
            wait_until(met, f"{self.name} is ready", seconds)
        except NotReadyError as error:
            end = self.log.read_text(errors="replace")[-2000:]
            raise NotReadyError(f"{error}; the end of {self.log}:\n{end}") from None

    def signal(self, number: signal.Signals) -> None:
        """Send a signal to it alone, where it runs."""
        if self.runs:
            os.kill(self.pid, number)

    def stop(self, seconds: float = 60) -> None:
        """End it; kill it when it does not end in time."""
        if self.child is None:
            return
        # One that is paused would not see the first signal.
        self.signal(signal.SIGTERM)
        self.signal(signal.SIGCONT)
        try:
            self.child.wait(seconds)
        except subprocess.TimeoutExpired:
            os.killpg(self.pid, signal.SIGKILL)
            self.child.wait()


@dataclass(slots=True)
class Processes:
    """Processes that are stopped together, at the latest when this process ends."""

    running: list[Process] = field(default_factory=list)
    _reaper: subprocess.Popen[bytes] | None = None

    def __enter__(self) -> Self:
        script = str(Path(__file__).with_name("process_reaper.py"))
        self._reaper = subprocess.Popen(
            [sys.executable, script], stdin=subprocess.PIPE, start_new_session=True
        )
        return self

    def __exit__(self, *_: object) -> None:
        for process in reversed(list(self.running)):
            self.stop(process)
        if self._reaper:
            self._reaper.communicate()

    def start(self, process: Process) -> None:
        """Start a process, which is stopped with the others."""
        process.start()
        self.running.append(process)
        self._tell("+", process)

    def stop(self, process: Process, seconds: float = 60) -> None:
        """End one of them; kill it when it does not end in time."""
        process.stop(seconds)
        self._forget(process)

    def release(self) -> None:
        """Let the processes outlive this one; the caller must stop them."""
        for process in list(self.running):
            self._forget(process)

    def _forget(self, process: Process) -> None:
        self._tell("-", process)
        self.running.remove(process)

    def _tell(self, sign: str, process: Process) -> None:
        pipe = self._reaper.stdin if self._reaper else None
        if pipe:
            pipe.write(f"{sign}{process.pid}\n".encode())
            pipe.flush()
