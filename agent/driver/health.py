"""Health of the GPUs: a thread that waits for faults and reads the driver on an interval."""

import threading
import time
from collections.abc import Callable
from dataclasses import replace

from agent.driver.reading import DriverError, DriverReading, GPUDriver
from linkwise.runtime.process.clock import Clock, monotonic

CHECK_S = 1.0
"""Longest wait for an event before lost GPUs are looked for [s]."""
RETRY_S = 1.0
"""Time between readings while the driver does not answer [s]."""

HANG_S = 120.0
"""Time without an answer after which a call of the driver counts as hanging [s]. `nvidia-smi` may
take 90 s."""
_HANGS = (
    "the driver does not answer any more; see `nvidia-smi` and the kernel's log, or reboot the node"
)
_JOIN_S = 5.0

Change = DriverReading | DriverError


class GPUHealth:
    """Keeps the latest reading. All calls of the driver are in its thread.

    While a driver that was read before does not answer or hangs, the reading is the last one with a
    fault of every GPU.
    """

    def __init__(
        self,
        driver: GPUDriver,
        on_change: Callable[[Change], None],
        *,
        interval_s: float,
        clock: Clock = monotonic,
    ) -> None:
        """Prepare; `start` begins.

        Args:
            driver: What is read; it is closed by `stop`.
            on_change: Called in the thread with each reading that differs from the one before, and
                with an error if the driver does not answer and was never read.
            interval_s: Time between readings without a fault.
            clock: A monotonic clock [s].
        """
        self._driver = driver
        self._on_change = on_change
        self._interval_s, self._clock = interval_s, clock
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run, name="gpu-health", daemon=True)
        self._reading: DriverReading | None = None
        self._error: DriverError | None = None
        self._answered = clock()
        """When a call of the driver last ended [s]."""
        self.failure: Exception | None = None
        """An unexpected error, which has ended the thread."""

    @property
    def reading(self) -> DriverReading | None:
        """The latest one, or None if the driver was never read."""
        if self._reading is not None and self._hangs:
            return _all_faulty(self._reading, _HANGS)
        return self._reading

    @property
    def error(self) -> DriverError | None:
        """Why the driver does not answer now; None: it does."""
        return self._error or (DriverError(_HANGS) if self._hangs else None)

    @property
    def _hangs(self) -> bool:
        return self._clock() > self._answered + HANG_S

    def start(self) -> None:
        """Start the thread; it reads immediately."""
        self._thread.start()

    def stop(self) -> None:
        """End the thread and close the driver, unless it hangs. Takes up to 5 s."""
        self._stopping.set()
        self._thread.join(_JOIN_S)
        if not self._thread.is_alive():
            self._driver.close()

    def _run(self) -> None:
        try:
            while not self._stopping.is_set():
                self._read()
                self._answered = self._clock()
                if self._error:
                    self._stopping.wait(RETRY_S)
                else:
                    self._wait()
        except Exception as error:  # noqa: BLE001 - whatever it is, the readings would grow old.
            self.failure = error
            self._on_change(DriverError(str(error)))

    def _read(self) -> None:
        try:
            reading = self._driver.read()
        except DriverError as error:
            repeated = self._error is not None and str(self._error) == str(error)
            self._error = error
            if self._reading is not None:
                self._publish(_all_faulty(self._reading, str(error)))
            elif not repeated:
                self._on_change(error)
        else:
            self._error = None
            self._publish(reading)

    def _publish(self, reading: DriverReading) -> None:
        if reading != self._reading:
            self._reading = reading
            self._on_change(reading)

    def _wait(self) -> None:
        """Return when a fault occurred or the next reading is due."""
        due = time.monotonic() + self._interval_s
        while not self._stopping.is_set() and (left := due - time.monotonic()) > 0:
            try:
                faults = self._driver.wait_for_fault(min(CHECK_S, left))
                self._answered = self._clock()
                if faults:
                    return
            except DriverError:
                return


def _all_faulty(reading: DriverReading, reason: str) -> DriverReading:
    return replace(reading, gpus=tuple(replace(gpu, fault=reason) for gpu in reading.gpus))
