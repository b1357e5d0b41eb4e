"""A CUDA program that measures what one process can use: `python -m agent.mps.probe LIBRARY MIB`.

It prints a JSON array with the fields of `Measurement`. A client of MPS reads its limits once, from
its environment when it starts, so each measurement is a process of its own.
"""

import ctypes
import json
import sys
from collections.abc import Callable
from typing import NamedTuple

_MULTIPROCESSOR_COUNT = 16
"""CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT."""
_OUT_OF_MEMORY = 2
"""CUDA_ERROR_OUT_OF_MEMORY."""


class Measurement(NamedTuple):
    """What one process could use."""

    multiprocessors: int = 0
    allocated: bool = False
    """It could allocate the memory."""
    failed_step: str | None = None
    """`load`, `init`, `context` (the GPU was refused) or `measure`; None if all succeeded."""
    detail: str = ""
    """Of the failed step, for people."""


class _CudaError(Exception):
    """A call failed."""

    def __init__(self, step: str, call: str, code: int) -> None:
        super().__init__(f"{call} failed with error {code}")
        self.step, self.code = step, code


def measure(library: str, mib: int) -> Measurement:
    """Measure this process.

    Args:
        library: Path of `libcuda.so.1`.
        mib: Memory to allocate [MiB].

    Cost: a CUDA context, about a second; call it in a process of its own.
    """
    try:
        cuda = ctypes.CDLL(library)
        return _measure(cuda, mib)
    except (OSError, AttributeError) as error:
        return Measurement(failed_step="load", detail=str(error))
    except _CudaError as error:
        return Measurement(failed_step=error.step, detail=str(error))


def _measure(cuda: ctypes.CDLL, mib: int) -> Measurement:
    device, context, count = ctypes.c_int(), ctypes.c_void_p(), ctypes.c_int()
    memory = ctypes.c_uint64()
    _call(cuda.cuInit, "init", 0)
    _call(cuda.cuDeviceGet, "init", ctypes.byref(device), 0)
    _call(cuda.cuDevicePrimaryCtxRetain, "context", ctypes.byref(context), device)
    _call(cuda.cuCtxSetCurrent, "context", context)
    _call(
        cuda.cuDeviceGetAttribute,
        "measure",
        ctypes.byref(count),
        _MULTIPROCESSOR_COUNT,
        device,
    )
    allocated = True
    try:
        _call(
            cuda.cuMemAlloc_v2, "measure", ctypes.byref(memory), ctypes.c_size_t(mib * 1024 * 1024)
        )
        _call(cuda.cuMemFree_v2, "measure", memory)
    except _CudaError as error:
        if error.code != _OUT_OF_MEMORY:
            raise
        allocated = False
    return Measurement(count.value, allocated)


def _call(function: Callable[..., int], step: str, *arguments: object) -> None:
    if code := function(*arguments):
        raise _CudaError(step, getattr(function, "__name__", "a call"), code)


if __name__ == "__main__":
    print(json.dumps(measure(sys.argv[1], int(sys.argv[2]))))  # noqa: T201
