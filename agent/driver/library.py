"""Find and load the NVML library of the node's driver, and find its programs."""

import ctypes
from collections import deque
from collections.abc import Iterable, Iterator
from pathlib import Path

from agent.driver.reading import DriverError

NAME = "libnvidia-ml.so.1"
CUDA = "libcuda.so.1"

_LIBRARIES = (
    "usr/lib/x86_64-linux-gnu",
    "usr/lib/aarch64-linux-gnu",
    "usr/lib64",
    "usr/lib",
    "usr/local/nvidia/lib64",
    "home/kubernetes/bin/nvidia/lib64",
)
_PROGRAMS = (
    "usr/bin",
    "usr/local/bin",
    "usr/local/nvidia/bin",
    "home/kubernetes/bin/nvidia/bin",
    "run/current-system/sw/bin",
)
_DRIVER_ROOTS = ("", "run/nvidia/driver")
"""Installed on the host, or by GPU Operator in a container."""
_MAX_LINKS = 40
"""As the kernel has it."""


def find_library(host_root: Path, name: str = NAME) -> Path | None:
    """Return a library of the driver below the root of the host; None if none is installed.

    Of the own root, it is the name: the dynamic linker finds it.
    """
    if host_root == Path("/"):
        return Path(name)
    return next((file for _, file in _find(host_root, _LIBRARIES, name)), None)


def find_program(host_root: Path, name: str) -> tuple[Path, str] | None:
    """Return the root of a program of the driver, and its path below this root; None: no program.

    The root is that of the host, or of GPU Operator's container.
    """
    return next(
        ((root, f"/{file.relative_to(root)}") for root, file in _find(host_root, _PROGRAMS, name)),
        None,
    )


def preload(library: Path) -> None:
    """Load a library, so that nvidia-ml-py finds it by name; another path has no effect later.

    Raises:
        DriverError: It cannot be loaded.
    """
    try:
        ctypes.CDLL(str(library), mode=ctypes.RTLD_GLOBAL)
    except OSError as error:
        raise DriverError(f"{library} cannot be loaded: {error}") from error


def _find(host_root: Path, folders: Iterable[str], name: str) -> Iterator[tuple[Path, Path]]:
    """Yield the files of a name with their roots."""
    for driver_root in _DRIVER_ROOTS:
        root = _resolve(host_root, driver_root)
        for folder in folders if root else ():
            file = _resolve(root, f"{folder}/{name}") if root else None
            if root and file and file.is_file():
                yield root, file


def _resolve(root: Path, path: str) -> Path | None:
    """Return what a path is below a root, without links; None if there are too many links.

    The links of a node are made for its own root: `/etc/alternatives/x` is below the root, too.
    """
    parts, place, links = deque(path.split("/")), root, 0
    while parts:
        part = parts.popleft()
        if part == "..":
            place = place if place == root else place.parent
        elif part and (place / part).is_symlink():
            links += 1
            if links > _MAX_LINKS:
                return None
            target = str((place / part).readlink())
            place = root if target.startswith("/") else place
            parts.extendleft(reversed(target.split("/")))
        else:
            place /= part
    return place
