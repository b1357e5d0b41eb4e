"""Link speeds of a host from an NCCL topology file."""

import re
from collections.abc import Sequence

from linkwise.topology.constants import (
    AMPERE,
    AMPERE_SM86,
    BLACKWELL,
    HOPPER,
    INTEL_BRIDGE,
    PASCAL,
    PCIE,
    SOCKET,
    UNKNOWN_ARCHITECTURE,
    VOLTA,
    Architecture,
    Constants,
    architecture,
)
from linkwise.topology.elements import Element

_BY_SM = {
    "60": PASCAL,
    "70": VOLTA,
    "80": AMPERE,
    "86": AMPERE_SM86,
    "90": HOPPER,
    "100": BLACKWELL,
    "103": BLACKWELL,
}
_GENERATION = {"2.5": 1, "5": 2, "8": 3, "16": 4, "32": 5, "64": 6}
_INTEL = ((0xCF, "Emerald Rapids"), (0x8F, "Sapphire Rapids"), (0x55, "Skylake"))


def constants_of(gpus: Sequence[Element], cpu: Element, model: str | None) -> Constants:
    """Return the speeds of a machine's links; the slowest GPU's where they differ.

    Args:
        gpus: The `<pci>` of each GPU, at least one.
        cpu: The `<cpu>` with vendor and model; all sockets have the same.
        model: Product name of the GPUs; takes precedence over `sm` for their NVLinks.

    Raises:
        TopologyError: The model is unknown.
    """
    known = [_architecture(gpu) for gpu in gpus] if model is None else [architecture(model)]
    speeds = [speed for gpu in gpus if (speed := _pcie(gpu))]
    pcie = min(speeds, default=PCIE[3])
    kind = _cpu_kind(cpu)
    bridged = round(pcie / INTEL_BRIDGE, 6)
    unknown = Constants()
    bridge = bridged if cpu.get("vendor") == "GenuineIntel" else pcie
    return Constants(
        nvlink=min(arch.nvlink for arch in known),
        pcie=pcie,
        bridge=bridge if kind else min(unknown.bridge, pcie),
        socket=min(bridged, SOCKET.get(kind, unknown.socket)),
    )


def _architecture(gpu: Element) -> Architecture:
    sm = next((child.get("sm") for child in gpu.find("gpu")), "")
    return _BY_SM.get(sm, UNKNOWN_ARCHITECTURE)


def _pcie(element: Element) -> float | None:
    """Return the speed of a device's PCIe link [GB/s], or None where the file leaves it open."""
    rate = re.match(r"([0-9.]{1,5})\s*GT/s", element.get("link_speed"))
    generation = _GENERATION.get(rate[1].removesuffix(".0")) if rate else None
    if generation is None:
        return None
    width = element.get("link_width")
    lanes = int(width) if re.fullmatch("[0-9]{1,2}", width) else 0
    return PCIE[generation] * (min(lanes, 16) or 16) / 16


def _cpu_kind(cpu: Element) -> str:
    """Return the key of `SOCKET` for a CPU, or an empty string."""
    if cpu.get("arch").startswith("arm"):
        return "ARM"
    if cpu.get("arch").startswith("ppc"):
        return "Power9"
    if cpu.get("vendor") == "AuthenticAMD":
        return "AMD"
    if cpu.get("vendor") != "GenuineIntel":
        return ""
    family, number = (cpu.get(name) for name in ("familyid", "modelid"))
    if family != "6" or not re.fullmatch("[0-9]{1,4}", number):
        return "Broadwell"
    return next((name for least, name in _INTEL if int(number) >= least), "Broadwell")
