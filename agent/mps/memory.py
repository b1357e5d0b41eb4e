"""The file system of the agent's MPS daemon: in memory, and of a limited size.

Containers write into it, so what they write must not fill the `/run` of the node.
"""

import ctypes
import os
from pathlib import Path

SIZE_MIB = 64
"""As large as the `/dev/shm` that a container runtime gives each pod."""
_OPTIONS = f"size={SIZE_MIB}m,nr_inodes=4096,mode=755"
_NOSUID, _NODEV, _NOEXEC = 2, 4, 8
_DETACH = 2
"""Flags of mount(2) and umount2(2)."""


def mount_empty(folder: Path) -> None:
    """Mount an empty file system in a folder, in place of one that this function has mounted.

    A container that still uses the one before keeps it.

    Raises:
        OSError: The folder cannot be created, or the kernel refuses.
    """
    folder.mkdir(parents=True, exist_ok=True)
    unmount(folder)
    flags = _NOSUID | _NODEV | _NOEXEC
    _call("mount", folder, b"linkwise-mps", os.fsencode(folder), b"tmpfs", flags, _OPTIONS.encode())


def unmount(folder: Path) -> None:
    """Unmount the file system in a folder, if there is one.

    Raises:
        OSError: The kernel refuses.
    """
    if folder.is_mount():
        _call("umount2", folder, os.fsencode(folder), _DETACH)


def _call(name: str, folder: Path, *arguments: bytes | int) -> None:
    """Call a function of the C library; hardened images have no program `mount`."""
    if getattr(ctypes.CDLL(None, use_errno=True), name)(*arguments):
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number), str(folder))
