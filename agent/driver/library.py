"""Find and load the NVML library of the node's driver."""

import ctypes
from pathlib import Path

from agent.driver.reading import DriverError

NAME = "libnvidia-ml.so.1"
CUDA = "libcuda.so.1"

_FOLDERS = (
    "usr/lib/x86_64-linux-gnu",
    "usr/lib/aarch64-linux-gnu",
    "usr/lib64",
    "usr/lib",
    "usr/local/nvidia/lib64",
    "home/kubernetes/bin/nvidia/lib64",
)
_DRIVER_ROOTS = ("", "run/nvidia/driver")
"""Installed on the host, or by GPU Operator in a container."""


def find_library(host_root: Path, name: str = NAME) -> Path | None:
    """Return a library of the driver below the root of the host; None if none is installed."""
    for driver_root in _DRIVER_ROOTS:
        for folder in _FOLDERS:
            library = host_root / driver_root / folder / name
            if library.exists():
                return library
    return None


def preload(library: Path) -> None:
    """Load a library, so that nvidia-ml-py finds it by name; another path has no effect later.

    Raises:
        DriverError: It cannot be loaded.
    """
    try:
        ctypes.CDLL(str(library), mode=ctypes.RTLD_GLOBAL)
    except OSError as error:
        raise DriverError(f"{library} cannot be loaded: {error}") from error
