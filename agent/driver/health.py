"""Health of the GPUs: a thread that waits for faults and reads the driver on an interval."""

import threading
import time
from collections.abc import Callable
from dataclasses import replace

from agent.driver.reading import DriverError, DriverReading, GPUDriver

CHECK_S = 1.0
"""Longest wait for an event before lost GPUs are looked for [s]."""
RETRY_S = 1.0
"""Time between readings while the driver does not answer [s]."""

Change = DriverReading | DriverError


class GPUHealth:
    """Keeps the latest reading. All calls of the driver are in its thread.

    While a driver that was read before does not answer, the reading is the last one with a fault
    of every GPU.
    """

    def __init__(
        self, driver: GPUDriver, on_change: Callable[[Change], None], *, interval_s: float
    ) -> None:
        """Prepare; `start` begins.

        Args:
            driver: What is read; it is closed by `stop`.
            on_change: Called in the thread with each reading that differs from the one before, and
                with an error if the driver does not answer and was never read.
            interval_s: Time between readings without a fault.
        """
        self._driver = driver
        self._on_change = on_change
        self._interval_s = interval_s
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run, name="gpu-health", daemon=True)
        self.reading: DriverReading | None = None
        """The latest one, or None if the driver was never read."""
        self.error: DriverError | None = None
        """Why the driver does not answer now; None: it does."""

    def start(self) -> None:
        """Start the thread; it reads immediately."""
        self._thread.start()

    def stop(self) -> None:
        """End the thread and close the driver. Takes up to `CHECK_S`."""
        self._stopping.set()
        self._thread.join()
        self._driver.close()

    @property
    def alive(self) -> bool:
        """The thread runs."""
        return self._thread.is_alive()

    def _run(self) -> None:
        while not self._stopping.is_set():
            self._read()
            if self.error:
                self._stopping.wait(RETRY_S)
            else:
                self._wait()

    def _read(self) -> None:
        try:
            reading = self._driver.read()
        except DriverError as error:
            repeated = self.error is not None and str(self.error) == str(error)
            self.error = error
            if self.reading is not None:
                self._publish(_all_faulty(self.reading, str(error)))
            elif not repeated:
                self._on_change(error)
        else:
            self.error = None
            self._publish(reading)

    def _publish(self, reading: DriverReading) -> None:
        if reading != self.reading:
            self.reading = reading
            self._on_change(reading)

    def _wait(self) -> None:
        """Return when a fault occurred or the next reading is due."""
        due = time.monotonic() + self._interval_s
        while not self._stopping.is_set() and (left := due - time.monotonic()) > 0:
            try:
                if self._driver.wait_for_fault(min(CHECK_S, left)):
                    return
            except DriverError:
                return


def _all_faulty(reading: DriverReading, reason: str) -> DriverReading:
    return replace(reading, gpus=tuple(replace(gpu, fault=reason) for gpu in reading.gpus))
