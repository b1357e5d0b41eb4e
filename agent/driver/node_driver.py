"""The driver of this node, by NVML or else by `nvidia-smi`, as soon as it is installed."""

from pathlib import Path

import structlog

from agent.driver.library import NAME, find_library, find_program
from agent.driver.nvml import Driver
from agent.driver.reading import DriverError, DriverReading, GPUDriver
from agent.driver.smi import TextDriver
from agent.host.command import host_command

_SMI = "nvidia-smi"
_log = structlog.get_logger()


class NodeDriver:
    """Searches the driver until it has the library, since it may be installed at any time.

    GPU Operator's container installs the driver after each boot, while the agent runs already.
    """

    def __init__(self, host_root: Path, sys: Path) -> None:
        """Search nothing yet.

        Args:
            host_root: Root of the node's file system, as this process sees it.
            sys: The node's `/sys`.
        """
        self._host_root, self._sys = host_root, sys
        self._nvml: Driver | None = None
        self._text: TextDriver | None = None
        self._problem: str | None = None
        """Why the library cannot be loaded, as it was last logged."""

    def read(self) -> DriverReading:
        """Read all GPUs.

        Raises:
            DriverError: There is no driver, or it does not answer.
        """
        if self._nvml is None:
            self._search()
        return self._driver.read()

    def wait_for_fault(self, timeout_s: float) -> tuple[tuple[int, str], ...]:
        """Return the new faults, or nothing after the timeout.

        Raises:
            DriverError: The driver does not answer.
        """
        return self._driver.wait_for_fault(timeout_s)

    def processes(self) -> tuple[tuple[int, int], ...]:
        """Return the GPU index and the process id of each process on a GPU.

        Raises:
            DriverError: The driver does not answer.
        """
        return self._driver.processes()

    def close(self) -> None:
        """Release the driver."""
        for driver in (self._nvml, self._text):
            if driver:
                driver.close()

    @property
    def _driver(self) -> GPUDriver:
        driver = self._nvml or self._text
        if driver is None:
            raise DriverError(
                f"{self._problem}, and there is no {_SMI}: install NVIDIA's driver; the agent "
                "searches it again"
            )
        return driver

    def _search(self) -> None:
        try:
            self._nvml = self._load()
        except DriverError as error:
            if self._text is None and (program := find_program(self._host_root, _SMI)):
                self._text = TextDriver(host_command(program[0], [program[1]]))
            if self._text and str(error) != self._problem:
                _log.warning("NVML cannot be loaded: nvidia-smi is used", err=str(error))
            self._problem = str(error)

    def _load(self) -> Driver:
        library = find_library(self._host_root)
        if library is None:
            raise DriverError(f"{NAME} is not below {self._host_root}")
        return Driver(library, sys=self._sys)
