"""How fast one link of each kind is: data, with sources; a policy may replace any of them."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Constants:
    """Modelled speeds of a machine's links, per direction [GB/s].

    The defaults are those for a text that names neither GPU model nor CPU: Volta-class NVLinks,
    PCIe generation 3, an Intel host bridge, the slowest socket link.
    """

    nvlink: float = 20.0
    """One NVLink."""
    pcie: float = 12.0
    """PIX, PXB and PSB: a path that stays below the host bridge."""
    bridge: float = 10.0
    """PHB and NODE: a path through host bridges of one socket."""
    socket: float = 6.0
    """SYS: a path between sockets; also every path whose level nothing tells."""


@dataclass(frozen=True, slots=True)
class Architecture:
    """A GPU generation, as far as NVLink is concerned."""

    name: str
    nvlink: float
    """One NVLink, per direction [GB/s]. Source: NCCL v2.30, `src/graph/topo.h`."""
    links: int
    """Most NVLinks that one GPU has; more than this in a row of `topo -m` means an NVSwitch."""


PASCAL = Architecture("Pascal", 18.0, 4)
VOLTA = Architecture("Volta", 20.0, 6)
AMPERE = Architecture("Ampere", 20.0, 12)
AMPERE_SM86 = Architecture("Ampere sm86", 12.0, 4)
HOPPER = Architecture("Hopper", 20.6, 18)
BLACKWELL = Architecture("Blackwell", 40.1, 18)
UNKNOWN_ARCHITECTURE = Architecture("unknown", 20.0, 18)
