"""The driver of this node, read by NVML."""

import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from ctypes import c_void_p, cast
from dataclasses import replace
from pathlib import Path

import pynvml as nvml

from agent.driver.library import preload
from agent.driver.nvml_calls import SESSION_OVER, Handle, answer, process_ids, supported
from agent.driver.reading import DriverError, DriverReading, DriverReplacedError
from agent.driver.snapshot import GPU_IS_LOST, Slot, read_pairs, read_slots

APPLICATION_XIDS = frozenset({13, 31, 43, 45, 68, 109})
"""XIDs that a program causes, not its GPU. Source: NVIDIA/k8s-device-plugin,
`internal/rm/health.go`."""


class Driver:
    """All GPUs of the node. NVML is initialised at the first reading, and after driver reloads.

    `read` and `wait_for_fault` belong to one thread; `processes` may be called from any.
    """

    def __init__(self, library: Path | None = None, *, sys: Path = Path("/sys")) -> None:
        """Load the library.

        Args:
            library: Path of `libnvidia-ml.so.1`; by default the dynamic linker finds it.
            sys: The node's `/sys`, for NUMA nodes that the driver does not report.

        Raises:
            DriverError: The library cannot be loaded.
        """
        if library:
            preload(library)
        self._sys = sys
        self._lock = threading.Lock()
        self._closed = threading.Event()
        self._open = False
        self._slots: tuple[Slot, ...] = ()
        self._last: DriverReading | None = None
        self._event_set: Handle | None = None
        self._watched: set[str] = set()
        """UUIDs of the GPUs whose XIDs the event set receives."""
        self._faults: dict[str, str] = {}
        """XIDs and lost GPUs by UUID, until the driver is reloaded."""

    def read(self) -> DriverReading:
        """Read all GPUs; one that does not answer keeps its last identity, links and levels.

        Raises:
            DriverReplacedError: Another version of the driver is loaded.
            DriverError: The driver does not answer, or has no GPU.

        Cost: about 500 calls of NVML for 8 GPUs, some milliseconds.
        """
        with self._lock, _translated():
            try:
                return self._read()
            except nvml.NVMLError as error:
                if error.value not in SESSION_OVER:
                    raise
                # The driver was reloaded.
                self._faults.clear()
                self._end_session()
                return self._read()

    def wait_for_fault(self, timeout_s: float) -> tuple[tuple[int, str], ...]:
        """Return the GPU index and the reason of each new fault, or nothing after the timeout.

        Raises:
            DriverError: The driver does not answer, or was never read.
        """
        if not self._open:
            raise DriverError("NVML is not initialised")
        with _translated():
            return (*self._xid_faults(timeout_s), *self._lost())

    def processes(self) -> tuple[tuple[int, int], ...]:
        """Return the GPU index and the process id of each compute process.

        The ids are those of this process's PID namespace.

        Raises:
            DriverError: The driver does not answer.
        """
        with self._lock, _translated():
            return tuple(
                (slot.gpu.i, pid)
                for slot in self._slots
                if slot.handle is not None
                for pid in sorted(process_ids(slot.handle))
            )

    def close(self) -> None:
        """Release the driver. No other call may be in progress or follow."""
        self._closed.set()
        with self._lock:
            self._end_session()

    def _read(self) -> DriverReading:
        if not self._open:
            nvml.nvmlInit()
            self._open = True
        slots = tuple(self._with_fault(slot) for slot in read_slots(self._last, self._sys))
        if not slots:
            raise DriverError("the driver lists no GPU; see `nvidia-smi -L` and the kernel's log")
        reading = read_pairs(slots, self._last)
        self._watch(slots)
        self._slots, self._last = slots, reading
        return reading

    def _with_fault(self, slot: Slot) -> Slot:
        gpu = slot.gpu
        if slot.is_lost and gpu.uuid and gpu.fault:
            self._faults[gpu.uuid] = gpu.fault
        return replace(slot, gpu=replace(gpu, fault=gpu.fault or self._faults.get(gpu.uuid)))

    def _watch(self, slots: tuple[Slot, ...]) -> None:
        """Register for the XIDs of all GPUs, unless that is done."""
        answering = {slot.gpu.uuid: slot.handle for slot in slots if slot.handle is not None}
        if answering.keys() <= self._watched:
            return
        self._free_events()
        self._event_set = answer(nvml.nvmlEventSetCreate)
        self._watched = set(answering)
        for handle in answering.values() if self._event_set is not None else ():
            kinds = nvml.nvmlEventTypeXidCriticalError
            answer(nvml.nvmlDeviceRegisterEvents, handle, kinds, self._event_set)

    def _free_events(self) -> None:
        if self._event_set is not None:
            with suppress(nvml.NVMLError):
                nvml.nvmlEventSetFree(self._event_set)
        self._event_set, self._watched = None, set()

    def _end_session(self) -> None:
        self._free_events()
        if self._open:
            self._open = False
            with suppress(nvml.NVMLError):
                nvml.nvmlShutdown()

    def _xid_faults(self, timeout_s: float) -> Iterator[tuple[int, str]]:
        """Wait for an event; yield and keep the faults of all that are there."""
        gpus = {_address(slot.handle): slot.gpu for slot in self._slots if slot.handle is not None}
        for event in self._events(timeout_s):
            gpu = gpus.get(_address(event.device))
            if gpu and event.eventData not in APPLICATION_XIDS:
                reason = f"XID {event.eventData}"
                self._faults[gpu.uuid] = reason
                yield gpu.i, reason

    def _events(self, timeout_s: float) -> Iterator[nvml.c_nvmlEventData_t]:
        """Yield all events that are there, after waiting for the first one."""
        timeout_ms = int(timeout_s * 1000)
        while self._event_set is not None:
            try:
                yield nvml.nvmlEventSetWait_v2(self._event_set, timeout_ms)
            except nvml.NVMLError_Timeout:
                return
            except nvml.NVMLError as error:
                if error.value in SESSION_OVER:
                    raise
                break
            timeout_ms = 0
        # Without events, the check for lost GPUs remains; do not repeat it without a pause.
        self._closed.wait(timeout_s)

    def _lost(self) -> Iterator[tuple[int, str]]:
        """Yield the GPUs that answered the last reading and no longer do."""
        for slot in self._slots:
            if slot.handle is None:
                continue
            try:
                nvml.nvmlDeviceGetHandleByIndex(slot.driver_index)
                supported(nvml.nvmlDeviceGetMemoryInfo, slot.handle)
            except nvml.NVMLError as error:
                if error.value in SESSION_OVER:
                    raise
                if error.value == GPU_IS_LOST:
                    self._faults[slot.gpu.uuid] = str(error)
                yield slot.gpu.i, str(error)


@contextmanager
def _translated() -> Iterator[None]:
    """Turn errors of NVML into ours."""
    try:
        yield
    except nvml.NVMLError as error:
        if error.value == nvml.NVML_ERROR_LIB_RM_VERSION_MISMATCH:
            raise DriverReplacedError(
                f"NVML: {error}: another version of the driver was loaded; restart the agent"
            ) from error
        raise DriverError(f"NVML: {error}; see `nvidia-smi` and the kernel's log") from error


def _address(handle: Handle) -> int | None:
    return cast(handle, c_void_p).value
