"""One reading of the driver: every GPU of the node, and what links each pair."""

import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Protocol

from linkwise.topology.machine import Level


@dataclass(frozen=True, slots=True)
class GPU:
    """One GPU. A GPU that fell off the bus keeps the identity of its last good reading."""

    i: int
    """Index in the driver's order."""
    uuid: str
    bus_id: str
    """Such as `0000:07:00.0`, in lower case."""
    model: str
    memory: int
    """[bytes]"""
    numa: int | None = None
    minor: int | None = None
    """Number of its device node `/dev/nvidia<minor>`."""
    mig: bool = False
    """MIG mode is enabled: it is not offered."""
    fault: str | None = None
    """Why it is unhealthy; None: it is healthy."""

    @property
    def problem(self) -> str | None:
        """Why no container may get it; None if one may."""
        return self.fault or ("MIG mode is enabled" if self.mig else None)

    @property
    def usable(self) -> bool:
        """A container may get it as a whole."""
        return self.problem is None


@dataclass(frozen=True, slots=True)
class DriverReading:
    """All GPUs at one moment. Matrices have the shape (n, n), by GPU index."""

    driver: str
    """Version, such as `535.161.08`."""
    cuda: str
    """Version, such as `12.2`."""
    gpus: tuple[GPU, ...]
    levels: tuple[tuple[Level, ...], ...]
    """PCIe level of each pair."""
    links: tuple[tuple[int, ...], ...]
    """Active NVLinks: of each pair on a direct mesh, of each GPU behind an NVSwitch."""
    switched: bool
    """The NVLinks end at an NVSwitch."""
    peer_access: tuple[tuple[bool, ...], ...] = ()
    """Whether each pair can read each other's memory; empty if unknown."""
    fabric_clique: str | None = None
    """`<cluster uuid>.<clique id>` of a multi-node NVLink fabric."""
    warnings: tuple[str, ...] = ()
    """Data that was guessed or left out, for people."""


def with_faults(reading: DriverReading, faults: Mapping[str, str]) -> DriverReading:
    """Return a reading with more faults, by UUID; a fault that the driver reports comes first."""
    gpus = (replace(gpu, fault=gpu.fault or faults.get(gpu.uuid)) for gpu in reading.gpus)
    return replace(reading, gpus=tuple(gpus))


class DriverError(Exception):
    """The driver cannot be read at all; the message has the reason and the remedy."""


class DriverReplacedError(DriverError):
    """The loaded library is older or newer than the driver; only a new process can load another."""


class GPUDriver(Protocol):
    """A source of readings. Every call blocks; one thread reads and waits."""

    def read(self) -> DriverReading:
        """Read all GPUs.

        Raises:
            DriverError: The driver does not answer.
        """

    def wait_for_fault(self, timeout_s: float) -> tuple[tuple[int, str], ...]:
        """Return the GPU index and the reason of each new fault, or nothing after the timeout.

        Raises:
            DriverError: The driver does not answer.
        """

    def processes(self) -> tuple[tuple[int, int], ...]:
        """Return the GPU index and the process id of each process on a GPU.

        Raises:
            DriverError: The driver does not answer.
        """

    def close(self) -> None:
        """Release the driver. No other call may be in progress or follow."""


def bus_id_of(text: str) -> str:
    """Return a PCI bus id as the kernel writes it: `0000:07:00.0`; empty if it is none."""
    parts = re.fullmatch(r"([0-9A-Fa-f]{4,8}):([0-9A-Fa-f]{2}:[0-9A-Fa-f]{2}\.[0-9A-Fa-f])", text)
    return f"{int(parts[1], 16):04x}:{parts[2].lower()}" if parts else ""
