"""The kind of the kernel modules of NVIDIA's driver."""

from pathlib import Path

_OPEN = "Open Kernel Module"


def has_open_modules(proc: Path) -> bool:
    """Return whether the open kernel modules are loaded, by `/proc/driver/nvidia/version`.

    False where the file is missing.
    """
    try:
        with (proc / "driver/nvidia/version").open("rb") as file:
            return _OPEN in file.readline(4096).decode(errors="replace")
    except OSError:
        return False
