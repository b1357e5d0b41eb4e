"""Calls of NVML about one GPU or one pair, with the answers of drivers that lack a function."""

from collections.abc import Callable
from ctypes import byref
from inspect import unwrap
from typing import Any, TypeVar

import pynvml as nvml

from agent.driver.pairs import LinkEnd
from agent.driver.reading import GPU, bus_id_of
from linkwise.topology.machine import Level

T = TypeVar("T")
Handle = Any
"""Pointer to a device of NVML."""

UNSUPPORTED = frozenset(
    {
        nvml.NVML_ERROR_NOT_SUPPORTED,
        nvml.NVML_ERROR_FUNCTION_NOT_FOUND,
        nvml.NVML_ERROR_INVALID_ARGUMENT,
        nvml.NVML_ERROR_ARGUMENT_VERSION_MISMATCH,
        nvml.NVML_ERROR_NO_PERMISSION,
    }
)
SESSION_OVER = frozenset(
    {
        nvml.NVML_ERROR_UNINITIALIZED,
        nvml.NVML_ERROR_DRIVER_NOT_LOADED,
        nvml.NVML_ERROR_LIBRARY_NOT_FOUND,
        nvml.NVML_ERROR_LIB_RM_VERSION_MISMATCH,
    }
)
"""Errors after which NVML must be initialised again."""

_LEVELS = {
    nvml.NVML_TOPOLOGY_INTERNAL: Level.PSB,
    nvml.NVML_TOPOLOGY_SINGLE: Level.PIX,
    nvml.NVML_TOPOLOGY_MULTIPLE: Level.PXB,
    nvml.NVML_TOPOLOGY_HOSTBRIDGE: Level.PHB,
    nvml.NVML_TOPOLOGY_NODE: Level.NODE,
    nvml.NVML_TOPOLOGY_SYSTEM: Level.SYS,
}
_SWITCH = {nvml.NVML_NVLINK_DEVICE_TYPE_SWITCH: True, nvml.NVML_NVLINK_DEVICE_TYPE_GPU: False}
_P2P_READ = 0
_MAX_NUMA_WORDS = 4
"""Of 64 NUMA nodes each."""


def supported(call: Callable[..., T], *args: object) -> T | None:
    """Return the result of a call, or None if driver or GPU do not support it."""
    try:
        return call(*args)
    except nvml.NVMLError as error:
        if error.value in UNSUPPORTED:
            return None
        raise


def answer(call: Callable[..., T], *args: object) -> T | None:
    """Return the result of a call, or None if it fails for another reason than the session."""
    try:
        return call(*args)
    except nvml.NVMLError as error:
        if error.value in SESSION_OVER:
            raise
        return None


def text(call: Callable[..., str], *args: object) -> str:
    """Return the text that a call returns; what is no UTF-8 is replaced.

    nvidia-ml-py decodes the bytes of its functions strictly.
    """
    returned: bytes | str = unwrap(call)(*args)
    return returned if isinstance(returned, str) else returned.decode(errors="replace")


def read_gpu(i: int, handle: Handle) -> GPU:
    """Return the identity of a GPU."""
    memory = supported(nvml.nvmlDeviceGetMemoryInfo, handle)
    mig = supported(nvml.nvmlDeviceGetMigMode, handle)
    return GPU(
        i=i,
        uuid=text(nvml.nvmlDeviceGetUUID, handle),
        bus_id=bus_id_of(nvml.nvmlDeviceGetPciInfo(handle).busId),
        model=text(nvml.nvmlDeviceGetName, handle),
        memory=memory.total if memory else 0,
        numa=_numa(handle),
        minor=supported(nvml.nvmlDeviceGetMinorNumber, handle),
        mig=bool(mig and mig[0]),
    )


def link_ends(handle: Handle) -> list[LinkEnd]:
    """Return where the active NVLinks of a GPU end, at GPUs or NVSwitches."""
    ends = []
    for link in range(nvml.NVML_NVLINK_MAX_LINKS):
        if not answer(nvml.nvmlDeviceGetNvLinkState, handle, link):
            continue
        kind = answer(nvml.nvmlDeviceGetNvLinkRemoteDeviceType, handle, link)
        remote = answer(nvml.nvmlDeviceGetNvLinkRemotePciInfo, handle, link)
        if kind != nvml.NVML_NVLINK_DEVICE_TYPE_IBMNPU:
            ends.append(LinkEnd(_SWITCH.get(kind), bus_id_of(remote.busId) if remote else ""))
    return ends


def level(one: Handle, other: Handle) -> Level:
    """Return the PCIe level of a pair; UNKNOWN if the driver does not report it."""
    reported = answer(nvml.nvmlDeviceGetTopologyCommonAncestor, one, other)
    return Level.UNKNOWN if reported is None else _LEVELS.get(reported, Level.UNKNOWN)


def peer_access(one: Handle, other: Handle) -> bool | None:
    """Return whether one GPU can read the memory of the other; None if unknown."""
    status = answer(nvml.nvmlDeviceGetP2PStatus, one, other, _P2P_READ)
    return None if status is None else bool(status == nvml.NVML_P2P_STATUS_OK)


def fabric(handle: Handle) -> tuple[int, str | None]:
    """Return the state of the NVLink fabric of a GPU and its clique, if it is in one."""
    info = nvml.c_nvmlGpuFabricInfo_t()
    if answer(nvml.nvmlDeviceGetGpuFabricInfo, handle, byref(info)) is None:
        return nvml.NVML_GPU_FABRIC_STATE_NOT_SUPPORTED, None
    digits = bytes(info.clusterUuid).hex()
    if info.state != nvml.NVML_GPU_FABRIC_STATE_COMPLETED or not digits.strip("0"):
        return info.state, None
    cluster = "-".join(digits[a:b] for a, b in ((0, 8), (8, 12), (12, 16), (16, 20), (20, 32)))
    return info.state, f"{cluster}.{info.cliqueId}"


def process_ids(handle: Handle) -> set[int]:
    """Return the ids of the compute processes on a GPU, clients of MPS included."""
    calls = (
        nvml.nvmlDeviceGetComputeRunningProcesses,
        nvml.nvmlDeviceGetMPSComputeRunningProcesses,
    )
    return {process.pid for call in calls for process in answer(call, handle) or ()}


def _numa(handle: Handle) -> int | None:
    """Return the lowest NUMA node near a GPU."""
    words = supported(
        nvml.nvmlDeviceGetMemoryAffinity, handle, _MAX_NUMA_WORDS, nvml.NVML_AFFINITY_SCOPE_NODE
    )
    nodes = sum(word << 64 * at for at, word in enumerate(words or ()))
    return (nodes & -nodes).bit_length() - 1 if nodes else None
