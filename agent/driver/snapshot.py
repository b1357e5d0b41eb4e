"""One reading of all GPUs inside a session of NVML."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TypeVar

import pynvml as nvml

from agent.driver.nics import numa_node
from agent.driver.nvml_calls import (
    SESSION_OVER,
    Handle,
    answer,
    fabric,
    level,
    link_ends,
    peer_access,
    read_gpu,
    text,
)
from agent.driver.pairs import LinkEnd, levels_of, links_of
from agent.driver.reading import GPU, DriverReading
from linkwise.topology.machine import Level

T = TypeVar("T")

GPU_IS_LOST = nvml.NVML_ERROR_GPU_IS_LOST
_FABRIC_PENDING = (
    nvml.NVML_GPU_FABRIC_STATE_NOT_STARTED,
    nvml.NVML_GPU_FABRIC_STATE_IN_PROGRESS,
)
_FABRIC_WARNING = "the NVSwitch fabric is not initialised: is nvidia-fabricmanager running?"


@dataclass(frozen=True, slots=True)
class Slot:
    """One GPU with its handle and its NVLinks; None: it does not answer."""

    gpu: GPU
    driver_index: int
    handle: Handle | None = None
    links: Sequence[LinkEnd] | None = None
    is_lost: bool = False
    """It fell off the bus."""


def read_slots(last: DriverReading | None, sys: Path) -> tuple[Slot, ...]:
    """Return all GPUs, in the order of the last reading if the driver no longer lists some.

    Args:
        last: Identity of GPUs that do not answer.
        sys: The node's `/sys`, for NUMA nodes that the driver does not report.

    Raises:
        NVMLError: The session is over.
    """
    slots = tuple(_read_slot(i, last, sys) for i in range(nvml.nvmlDeviceGetCount()))
    known = last.gpus if last else ()
    by_uuid = {slot.gpu.uuid: slot for slot in slots}
    if len(slots) >= len(known) or not by_uuid.keys() <= {gpu.uuid for gpu in known}:
        return slots
    return tuple(
        replace(slot, gpu=replace(slot.gpu, i=gpu.i))
        if (slot := by_uuid.get(gpu.uuid))
        else Slot(replace(gpu, fault="the driver no longer lists it"), gpu.i)
        for gpu in known
    )


def read_pairs(slots: Sequence[Slot], last: DriverReading | None) -> DriverReading:
    """Return the reading: the GPUs and what links each pair.

    Raises:
        NVMLError: The session is over.
    """
    if last and len(last.gpus) != len(slots):
        last = None
    gpus = tuple(slot.gpu for slot in slots)
    handles = [slot.handle for slot in slots]
    links = links_of(gpus, [slot.links for slot in slots], last)
    levels, unknown = levels_of(_matrix(handles, level, Level.UNKNOWN), last)
    state, clique = next((fabric(handle) for handle in handles if handle is not None), (0, None))
    pending = links.switched and state in _FABRIC_PENDING
    cuda = answer(nvml.nvmlSystemGetCudaDriverVersion) or 0
    return DriverReading(
        driver=text(nvml.nvmlSystemGetDriverVersion),
        cuda=f"{cuda // 1000}.{cuda % 1000 // 10}" if cuda else "",
        gpus=gpus,
        levels=levels,
        links=links.matrix,
        switched=links.switched,
        peer_access=_peer_access(handles, last),
        fabric_clique=clique,
        warnings=(*links.warnings, *unknown, *([_FABRIC_WARNING] if pending else [])),
    )


def _read_slot(i: int, last: DriverReading | None, sys: Path) -> Slot:
    try:
        handle = nvml.nvmlDeviceGetHandleByIndex(i)
        links = link_ends(handle)
        gpu = read_gpu(i, handle)  # Last, since a GPU that is lost meanwhile has no links.
    except nvml.NVMLError as error:
        if error.value in SESSION_OVER:
            raise
        empty = GPU(i, uuid="", bus_id="", model="", memory=0)
        known = last.gpus[i] if last and i < len(last.gpus) else empty
        return Slot(replace(known, fault=str(error)), i, is_lost=error.value == GPU_IS_LOST)
    if gpu.numa is None:
        gpu = replace(gpu, numa=numa_node(sys, gpu.bus_id))
    return Slot(gpu, i, handle, links)


def _matrix(
    handles: Sequence[Handle | None], call: Callable[[Handle, Handle], T], missing: T
) -> list[list[T]]:
    """Return the answers for each pair of different GPUs that both answer."""
    return [
        [
            missing if one is None or other is None or i == j else call(one, other)
            for j, other in enumerate(handles)
        ]
        for i, one in enumerate(handles)
    ]


def _peer_access(
    handles: Sequence[Handle | None], last: DriverReading | None
) -> tuple[tuple[bool, ...], ...]:
    """Return the peer access of each pair; of a GPU that does not answer, the last one."""
    matrix = _matrix(handles, peer_access, None)
    access = [[bool(answer) for answer in row] for row in matrix]
    for i, one in enumerate(handles):
        for j, other in enumerate(handles):
            if i == j:
                access[i][j] = True
            elif one is None or other is None:
                access[i][j] = last.peer_access[i][j] if last and last.peer_access else True
            elif matrix[i][j] is None:
                return last.peer_access if last else ()
    return tuple(map(tuple, access))
