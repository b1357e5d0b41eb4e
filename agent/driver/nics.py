"""Network cards of the node, and the place of PCI devices, from sysfs."""

import re
from collections.abc import Sequence
from pathlib import Path

from agent.driver.pci_path import meeting_level
from agent.driver.reading import GPU
from linkwise.topology.machine import NIC, Level

_MAX_NICS = 64
"""More than any host has; a published machine is bounded."""


def read_nics(sys: Path, gpus: Sequence[GPU]) -> tuple[NIC, ...]:
    """Return the network cards with their level to each GPU, by name.

    These are the RDMA devices; where there are none, the network interfaces on PCI. Virtual
    functions are left out.

    Args:
        sys: The node's `/sys`; a pod's own one has no network interfaces of the node.
        gpus: All GPUs, by index. The level to a GPU that sysfs does not have is UNKNOWN.

    Cost: one symbolic link for each device.
    """
    devices = _devices(sys / "class/infiniband") or _devices(sys / "class/net")
    places = [_place(sys, gpu.bus_id) for gpu in gpus]
    nodes = [gpu.numa for gpu in gpus]
    return tuple(
        NIC(
            name,
            tuple(_level(device, place, node) for place, node in zip(places, nodes, strict=True)),
        )
        for name, device in sorted(devices.items(), key=lambda item: _natural(item[0]))[:_MAX_NICS]
    )


def numa_node(sys: Path, bus_id: str) -> int | None:
    """Return the NUMA node of a PCI device, or None if the host does not have one for it."""
    return _numa(sys / "bus/pci/devices" / bus_id)


def _devices(folder: Path) -> dict[str, Path]:
    """Return the PCI devices of a class by name, without virtual functions."""
    try:
        names = [entry.name for entry in folder.iterdir()]
    except OSError:
        return {}
    devices = {}
    for name in names:
        device = (folder / name / "device").resolve()
        if (device / "class").exists() and not (device / "physfn").exists():
            devices[name] = device
    return devices


def _place(sys: Path, bus_id: str) -> Path | None:
    device = sys / "bus/pci/devices" / bus_id
    return device.resolve() if bus_id and device.exists() else None


def _level(device: Path, place: Path | None, node: int | None) -> Level:
    if place is None:
        return Level.UNKNOWN
    same_numa = node is not None and _numa(device) == node
    return meeting_level(device.as_posix(), place.as_posix(), same_numa=same_numa)


def _numa(device: Path) -> int | None:
    try:
        text = (device / "numa_node").read_text().strip()
    except (OSError, UnicodeError):
        return None
    return int(text) if re.fullmatch("[0-9]{1,4}", text) else None


def _natural(name: str) -> tuple[tuple[int, str], ...]:
    """Return a key that sorts `mlx5_10` after `mlx5_9`."""
    return tuple(
        (int(digits) if digits else -1, text) for text, digits in re.findall(r"(\D*)(\d*)", name)
    )
