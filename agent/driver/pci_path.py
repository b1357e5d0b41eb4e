"""The PCIe level at which two devices meet, from their paths in sysfs."""

import re

from linkwise.topology.machine import Level

_HOST_BRIDGE = re.compile(r"pci[0-9a-f]{4,8}:[0-9a-f]{2}")


def meeting_level(path: str, other: str, *, same_numa: bool) -> Level:
    """Return the level of two PCI devices; UNKNOWN if a path has no host bridge.

    Args:
        path: Resolved path, such as `/sys/devices/pci0000:00/0000:00:02.0/0000:05:00.0`.
        other: Path of the other device.
        same_numa: The devices are near the same NUMA node.
    """
    here, there = _split(path), _split(other)
    if here is None or there is None:
        return Level.UNKNOWN
    if here[0] != there[0]:
        return Level.NODE if same_numa else Level.SYS
    bridges, others = here[1], there[1]
    common = 0
    for bridge, its in zip(bridges, others, strict=False):
        if bridge != its:
            break
        common += 1
    if not common:
        return Level.PHB
    # Below one switch, a device and its downstream port are all that differs.
    beyond = max(len(bridges), len(others)) - common
    return Level.PIX if beyond <= 2 else Level.PXB


def _split(path: str) -> tuple[list[str], list[str]] | None:
    """Return the path down to the last host bridge, and the devices below it."""
    parts = path.split("/")
    bridges = [at for at, part in enumerate(parts) if _HOST_BRIDGE.fullmatch(part)]
    if not bridges:
        return None
    return parts[: bridges[-1] + 1], parts[bridges[-1] + 1 :]
