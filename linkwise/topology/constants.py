"""Speeds of links with sources; a policy may replace any of them."""

import re
from dataclasses import dataclass

from linkwise.topology.errors import TopologyError

PCIE = {1: 3.0, 2: 6.0, 3: 12.0, 4: 24.0, 5: 48.0, 6: 96.0}
"""PCIe x16 by generation, per direction [GB/s]. Source: NCCL v2.30, `src/graph/topo.cc`, rate times
lanes over 80."""

INTEL_BRIDGE = 1.2
"""Cost of GPU traffic through an Intel host bridge: it is cut into small packets. Source: NCCL
v2.30, `src/graph/topo.h`, INTEL_P2P_OVERHEAD."""

SOCKET = {
    "Broadwell": 6.0,
    "Skylake": 10.0,
    "Sapphire Rapids": 22.0,
    "Emerald Rapids": 40.0,
    "AMD": 16.0,
    "ARM": 6.0,
    "Power9": 32.0,
}
"""The link between two sockets, per direction [GB/s]. Source: NCCL v2.30, `src/graph/topo.h`."""


@dataclass(frozen=True, slots=True)
class Constants:
    """Modelled speeds of a machine's links, per direction [GB/s].

    The defaults are those for a text that names neither GPU model nor CPU: Volta-class NVLinks,
    PCIe generation 3, an Intel host bridge, the slowest socket link.
    """

    nvlink: float = 20.0
    """One NVLink."""
    pcie: float = 12.0
    """PIX, PXB and PSB: a path that stays below the host bridge; also the link of one GPU."""
    bridge: float = 10.0
    """PHB and NODE: a path through host bridges of one socket."""
    socket: float = 6.0
    """SYS: a path between sockets; also every path of unknown level."""


@dataclass(frozen=True, slots=True)
class Architecture:
    """A GPU generation, as far as NVLink is concerned."""

    name: str
    nvlink: float
    """One NVLink, per direction [GB/s]. Source: NCCL v2.30, `src/graph/topo.h`."""
    links: int
    """Most NVLinks that one GPU has; more than this in a row of `topo -m` means an NVSwitch."""
    pcie: float
    """PCIe of one GPU, per direction [GB/s]."""


PASCAL = Architecture("Pascal", 18.0, 4, PCIE[3])
VOLTA = Architecture("Volta", 20.0, 6, PCIE[3])
AMPERE = Architecture("Ampere", 20.0, 12, PCIE[4])
AMPERE_SM86 = Architecture("Ampere sm86", 12.0, 12, PCIE[4])
HOPPER = Architecture("Hopper", 20.6, 18, PCIE[5])
BLACKWELL = Architecture("Blackwell", 40.1, 18, PCIE[5])
UNKNOWN_ARCHITECTURE = Architecture("unknown", 20.0, 18, PCIE[3])

PRODUCTS = {
    "P100": PASCAL,
    "V100": VOLTA,
    "A100": AMPERE,
    "A800": AMPERE,
    "A40": AMPERE_SM86,
    "A10": AMPERE_SM86,
    "A6000": AMPERE_SM86,
    "RTX 3090": AMPERE_SM86,
    "H100": HOPPER,
    "H200": HOPPER,
    "H800": HOPPER,
    "H20": HOPPER,
    "GH200": HOPPER,
    "B200": BLACKWELL,
    "GB200": BLACKWELL,
    "B300": BLACKWELL,
    "GB300": BLACKWELL,
}
"""The GPUs whose NVLink speed is known, by a part of their product name."""

# A letter may follow (V100S, A10G, 3090Ti); a digit may not, or A10 would be found in A100. The
# number of an RTX card is sufficient.
_NAMED = {
    product: re.compile(rf"(?<![A-Z0-9]){product.replace('RTX ', '(?:RTX)?')}(?![0-9])")
    for product in PRODUCTS
}


def architecture(model: str) -> Architecture:
    """Return the generation of a GPU named as `nvidia-smi` names it, or by a part of that.

    Args:
        model: Such as `V100`, `Tesla V100-SXM2-16GB` or `NVIDIA H100 80GB HBM3`; case is ignored.

    Raises:
        TopologyError: No known product is in the name, or two of different generations are.
    """
    name = model.upper()
    found = {PRODUCTS[product] for product, pattern in _NAMED.items() if pattern.search(name)}
    if len(found) == 1:
        return found.pop()
    raise TopologyError(
        f"unknown GPU model {model[:60]!r}: use one of {', '.join(PRODUCTS)}, or leave it out"
    )


def constants_of_models(*models: str) -> Constants:
    """Return the link speeds of GPUs of some models; the slowest where they differ.

    A name does not describe the host, so its speeds are the defaults, as those of unknown models.
    """
    known = [_architecture_or_unknown(model) for model in models] or [UNKNOWN_ARCHITECTURE]
    return Constants(
        nvlink=min(each.nvlink for each in known), pcie=min(each.pcie for each in known)
    )


def _architecture_or_unknown(model: str) -> Architecture:
    try:
        return architecture(model)
    except TopologyError:
        return UNKNOWN_ARCHITECTURE
