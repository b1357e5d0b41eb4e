"""A machine: its GPUs and their links."""

from collections.abc import Collection, Sequence
from dataclasses import dataclass, field, replace
from enum import IntEnum
from typing import TypeVar

from linkwise.topology.constants import Constants
from linkwise.topology.errors import TopologyError

__all__ = [
    "GPU",
    "MAX_GPUS",
    "MAX_TEXT",
    "NIC",
    "Level",
    "Machine",
    "TopologyError",
    "gpu_records",
    "gpus_of",
    "mask_of",
    "with_unlinked",
]

MAX_GPUS = 16
MAX_NIC_ROWS = 32
"""Maximum number of NICs that differ in their PCIe levels: they are compared with each other."""
"""Tables hold one entry for each of the 2ⁿ sets of GPUs, so n is bounded. No host seen has more."""

MAX_TEXT = 1 << 20
"""Longest text that is read as a machine [characters]; the largest one seen has 30,000."""

_Value = TypeVar("_Value")


class Level(IntEnum):
    """The PCIe level at which two devices meet; the value is NVIDIA's pair score for it.

    Source: go-gpuallocator, `gpuallocator/besteffort_policy.go` at 876e7b7.
    """

    UNKNOWN = 0
    """Unknown, for example if `topo -m` shows an NVLink instead."""
    SYS = 10
    NODE = 20
    PHB = 30
    PXB = 40
    PIX = 50
    PSB = 60


@dataclass(frozen=True, slots=True)
class GPU:
    """One GPU, apart from its links. A source knows a field of all GPUs of a machine or of none."""

    numa: int = 0
    """NUMA node; only equal or not equal means something."""
    uuid: str | None = None
    bus_id: str | None = None
    """PCI bus id."""
    memory: int | None = None
    """Memory [GiB]."""


@dataclass(frozen=True, slots=True)
class NIC:
    """A network card and how near it is to each GPU."""

    name: str
    levels: tuple[Level, ...]
    """One level for each GPU, by GPU index."""


@dataclass(frozen=True, slots=True)
class Machine:
    """One machine, as a reader or the catalogue gives it. Every matrix is n×n by GPU index.

    Two machines that differ only in the numbering of their GPUs, in UUIDs, bus ids, memory or the
    CPUs near them have the same class (`canonical.class_of`).
    """

    links: tuple[tuple[int, ...], ...]
    """NVLinks: of the pair on a direct mesh, of each GPU behind an NVSwitch. Symmetric, 0 on the
    diagonal."""
    levels: tuple[tuple[Level, ...], ...]
    """PCIe level of each pair. Symmetric; the diagonal is UNKNOWN and means nothing."""
    gpus: tuple[GPU, ...]
    """By GPU index."""
    constants: Constants = field(default_factory=Constants)
    switched: bool = False
    """The NVLinks end at an NVSwitch, not at the other GPU."""
    nics: tuple[NIC, ...] = ()
    model: str | None = None
    """Product name of the GPUs, if known."""
    warnings: tuple[str, ...] = ()
    """Guesses and omissions of the reader, for people."""

    def __post_init__(self) -> None:
        n = len(self.links)
        if not 1 <= n <= MAX_GPUS:
            raise TopologyError(f"a machine has 1 to {MAX_GPUS} GPUs, this one has {n}")
        if any(len(row) != n for row in (*self.links, *self.levels)) or len(self.levels) != n:
            raise TopologyError(f"links and levels of {n} GPUs must be {n}×{n} matrices")
        if len(self.gpus) != n or any(len(nic.levels) != n for nic in self.nics):
            raise TopologyError(f"NUMA nodes and NIC levels must be given for all {n} GPUs")
        if len({nic.levels for nic in self.nics}) > MAX_NIC_ROWS:
            raise TopologyError(
                f"more than {MAX_NIC_ROWS} NICs differ in how near GPUs are to them"
            )
        self._check_symmetry()

    def _check_symmetry(self) -> None:
        for i in range(self.n):
            if self.links[i][i]:
                raise TopologyError(f"GPU{i} has an NVLink to itself")
            for j in range(i):
                if self.links[i][j] != self.links[j][i] or self.levels[i][j] != self.levels[j][i]:
                    raise TopologyError(f"GPU{j} and GPU{i} are linked differently each way")

    @property
    def n(self) -> int:
        """Number of GPUs."""
        return len(self.links)

    @property
    def memory(self) -> tuple[int, ...]:
        """Memory of each GPU [GiB], or empty if unknown."""
        return tuple(gpu.memory for gpu in self.gpus if gpu.memory is not None)

    @property
    def fabric(self) -> int:
        """Mask of the GPUs that have any NVLink; on a switched machine, those on the NVSwitch."""
        return sum(1 << i for i, row in enumerate(self.links) if any(row))

    def pcie_speed(self, level: Level) -> float:
        """Return the bandwidth of a PCIe level [GB/s]; an unknown level counts as the slowest."""
        match level:
            case Level.PIX | Level.PXB | Level.PSB:
                return self.constants.pcie
            case Level.PHB | Level.NODE:
                return self.constants.bridge
            case _:
                return self.constants.socket


def gpu_records(
    numa: Sequence[int],
    uuids: Sequence[str] = (),
    bus_ids: Sequence[str] = (),
    memory: Sequence[int] = (),
) -> tuple[GPU, ...]:
    """Return the GPUs of columns by GPU index, where an empty column is unknown.

    Raises:
        TopologyError: A column is for some of the GPUs only.
    """
    n = len(numa)
    columns = [column or (None,) * n for column in (uuids, bus_ids, memory)]
    if any(len(column) != n for column in columns):
        raise TopologyError(f"UUIDs, bus ids and memory are for all {n} GPUs or for none")
    return tuple(map(GPU, numa, *columns))


def with_unlinked(machine: Machine, places: Collection[int]) -> Machine:
    """Return a machine with more GPUs, at some indices, whose links are not known."""
    n = machine.n + len(places)
    before = iter(range(machine.n))
    old = tuple(None if i in places else next(before) for i in range(n))

    def spread(row: Sequence[_Value], value: _Value) -> tuple[_Value, ...]:
        return tuple(value if i is None else row[i] for i in old)

    added = replace(machine.gpus[0], uuid=None, bus_id=None)
    links, levels = (0,) * machine.n, (Level.UNKNOWN,) * machine.n
    return replace(
        machine,
        links=tuple(spread(row, 0) for row in spread(machine.links, links)),
        levels=tuple(spread(row, Level.UNKNOWN) for row in spread(machine.levels, levels)),
        gpus=spread(machine.gpus, added),
        nics=tuple(replace(nic, levels=spread(nic.levels, Level.UNKNOWN)) for nic in machine.nics),
    )


def mask_of(gpus: "tuple[int, ...] | list[int] | set[int] | frozenset[int]") -> int:
    """Return the bit mask of a set of GPU indices: bit i stands for GPU i."""
    mask = 0
    for gpu in gpus:
        mask |= 1 << gpu
    return mask


def gpus_of(mask: int) -> tuple[int, ...]:
    """Return the GPU indices of a bit mask, ascending."""
    return tuple(i for i in range(mask.bit_length()) if mask >> i & 1)
