"""What one node offers: its mode, its cards, and what links them."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum

from cluster.keys import GPU_COUNT, GPU_WHOLE, NVIDIA_GPU, NVIDIA_GPU_SHARED
from topology.machine import Machine


class NodeError(ValueError):
    """A Node object holds what Kubernetes never writes; the message says which field."""


class Mode(StrEnum):
    """How a node's GPUs are given out: the words of its label `ack.node.gpu.schedule`."""

    DEFAULT = "default"
    """Whole GPUs, chosen by NVIDIA's plugin. Also a node without GPUs."""
    TOPOLOGY = "topology"
    SHARE = "share"
    CGPU = "cgpu"
    CORE_MEM = "core_mem"
    MPS = "mps"
    TIMESLICE = "timeslice"
    MIG = "mig"
    DISABLED = "disabled"

    @property
    def shares_memory(self) -> bool:
        """Cards are given out by memory."""
        return self in {Mode.SHARE, Mode.CGPU, Mode.CORE_MEM, Mode.MPS}

    @property
    def shares_compute(self) -> bool:
        """Cards are given out by memory and compute."""
        return self in {Mode.CORE_MEM, Mode.MPS}

    @property
    def is_ours(self) -> bool:
        """Linkwise chooses the GPUs of pods on this node."""
        return self.shares_memory or self in {Mode.TOPOLOGY, Mode.TIMESLICE}


COUNTED_BY = {
    Mode.DEFAULT: NVIDIA_GPU,
    Mode.TOPOLOGY: GPU_WHOLE,
    Mode.SHARE: GPU_COUNT,
    Mode.CGPU: GPU_COUNT,
    Mode.CORE_MEM: GPU_COUNT,
    Mode.MPS: GPU_COUNT,
    Mode.TIMESLICE: NVIDIA_GPU_SHARED,
}
"""The resource that tells how many GPUs a node has; a time-sliced one counts replicas."""


class Placement(StrEnum):
    """How shares are laid out: the words of the node label `ack.node.gpu.placement`."""

    BINPACK = "binpack"
    SPREAD = "spread"


@dataclass(frozen=True, slots=True)
class Taint:
    """A taint."""

    key: str
    value: str
    effect: str


@dataclass(frozen=True, slots=True)
class Card:
    """One GPU of a node."""

    memory: int | None = None
    """Memory [GiB]; None where nothing tells it."""
    uuid: str | None = None
    """The driver's name for it; None where no agent publishes it."""
    healthy: bool = True
    cordoned: bool = False
    """Drained by an administrator: what runs stays, nothing new comes."""

    @property
    def usable(self) -> bool:
        """Something new may be placed here."""
        return self.healthy and not self.cordoned


@dataclass(frozen=True, slots=True)
class Node:
    """One node, with everything that placement asks about it."""

    name: str
    labels: Mapping[str, str] = field(default_factory=dict)
    mode: Mode = Mode.DEFAULT
    placement: Placement = Placement.BINPACK
    machine: Machine | None = None
    """What links the cards; None exactly where there are none."""
    machine_known: bool = False
    """False where all GPUs count as equal because nothing tells how they are linked."""
    cards: tuple[Card, ...] = ()
    """By GPU index; as many as the machine has GPUs."""
    cpu: int = 0
    """Allocatable CPU [millicores]."""
    memory: int = 0
    """Allocatable memory [bytes]."""
    pods: int = 110
    """How many pods the node takes."""
    resources: Mapping[str, int] = field(default_factory=dict)
    """Allocatable extended resources (those with a domain in their name)."""
    taints: tuple[Taint, ...] = ()
    unschedulable: bool = False
    ready: bool = True
    """False only where a Ready condition says so."""
    replicas: int = 0
    """Pods that may share one GPU of a time-sliced node; 0 in every other mode."""
    warnings: tuple[str, ...] = ()
    """What was guessed or left out, for people."""
    usable_mask: int = field(init=False, repr=False, compare=False)
    """The cards on which something new may be placed."""

    def __post_init__(self) -> None:
        if len(self.cards) != (self.machine.n if self.machine else 0):
            raise NodeError(f"node {self.name}: one card for each GPU of its machine is expected")
        mask = sum(1 << i for i, card in enumerate(self.cards) if card.usable)
        object.__setattr__(self, "usable_mask", mask)
