"""The driver of this node, read by running `nvidia-smi`."""

import os
import signal
import subprocess
import threading
from collections.abc import Sequence
from contextlib import suppress

from agent.driver.reading import DriverError, DriverReading
from agent.driver.topo_text import APPS_QUERY, QUERY, processes_in, read_texts

_MAX_OUTPUT = 1 << 20
"""More than `nvidia-smi` prints for 16 GPUs [bytes]."""


class TextDriver:
    """All GPUs of the node, without events: a fault is seen at the next reading."""

    def __init__(self, command: Sequence[str] = ("nvidia-smi",), *, timeout_s: float = 30) -> None:
        """Prepare.

        Args:
            command: The program, perhaps with what starts it in the host's file system.
            timeout_s: Longest time that one run may take.
        """
        self._command = tuple(command)
        self._timeout_s = timeout_s
        self._closed = threading.Event()
        self._last: DriverReading | None = None

    def read(self) -> DriverReading:
        """Read all GPUs.

        Raises:
            DriverError: The program is missing, fails or prints something else.

        Cost: three runs, of a second each where the driver is not kept loaded.
        """
        query = self._run(*QUERY)
        topo = self._run("topo", "-m")
        try:
            banner = self._run()
        except DriverError:
            banner = ""
        self._last = read_texts(query, topo, banner)
        return self._last

    def wait_for_fault(self, timeout_s: float) -> tuple[tuple[int, str], ...]:
        """Wait; there are no events."""
        self._closed.wait(timeout_s)
        return ()

    def processes(self) -> tuple[tuple[int, int], ...]:
        """Return the GPU index and the process id of each compute process.

        Raises:
            DriverError: The program fails.
        """
        return processes_in(self._run(*APPS_QUERY), self._last.gpus) if self._last else ()

    def close(self) -> None:
        """End the wait."""
        self._closed.set()

    def _run(self, *arguments: str) -> str:
        """Return what the program prints.

        Raises:
            DriverError: It cannot be started, takes too long, prints too much, or fails.
        """
        shown = " ".join((*self._command, *arguments))
        try:
            process = subprocess.Popen(  # noqa: S603 - the command is a setting of the agent.
                (*self._command, *arguments),
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.DEVNULL,
                start_new_session=True,
            )
        except OSError as error:
            raise DriverError(f"`{shown}` cannot be started: {error}") from error
        with process:
            timer = threading.Timer(self._timeout_s, _kill, (process,))
            timer.start()
            output = process.stdout.read(_MAX_OUTPUT + 1) if process.stdout else b""
            if len(output) > _MAX_OUTPUT:
                _kill(process)
            process.wait()
            timer.cancel()
        if process.returncode == -signal.SIGKILL:
            raise DriverError(f"`{shown}` took over {self._timeout_s:g} s or printed over 1 MiB")
        if process.returncode:
            raise DriverError(f"`{shown}` exited with {process.returncode}")
        return output.decode(errors="replace")


def _kill(process: subprocess.Popen[bytes]) -> None:
    with suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
