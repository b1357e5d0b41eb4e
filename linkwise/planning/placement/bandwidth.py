"""The modelled all-reduce bandwidth of a job, over any number of nodes, with its slowest link."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from operator import attrgetter
from typing import NamedTuple

from linkwise.planning.placement.assignment.node_assignment import NodeAssignment


class LinkKind(StrEnum):
    """Links that a ring of GPUs passes."""

    INSIDE = "inside"
    """NVLinks and PCIe between the GPUs of a node."""
    OUT = "out"
    """PCIe from the GPUs of a node to its NICs."""
    NETWORK = "network"
    """NICs, where their bandwidth is known."""


class SlowestLink(NamedTuple):
    """The link that limits a job."""

    speed: float
    """[GB/s]"""
    kind: LinkKind
    node: str
    gpus: int
    """Number of the job's GPUs on the node."""

    @property
    def text(self) -> str:
        """The link, in words."""
        gpus = f"{self.gpus if self.gpus > 1 else 'one'} of the job's GPUs"
        match self.kind:
            case LinkKind.INSIDE:
                return f"inside {self.node}, between {gpus}"
            case LinkKind.OUT:
                return f"PCIe out of {self.node}, which has {gpus}"
            case LinkKind.NETWORK:
                return "the NICs between the nodes"


NIC_UNKNOWN = "nic unknown"
"""Note of a bandwidth that does not count the NICs between nodes."""
SETS_UNKNOWN = "GPUs unknown"
"""Note of a plan without a bandwidth: NVIDIA's plugin chooses some of the GPUs."""


@dataclass(frozen=True, slots=True)
class Bandwidth:
    """Modelled all-reduce bandwidth of a job, with what is needed to compare it with another."""

    value: float | None = None
    """[GB/s]; None where it is not known or not defined."""
    nodes: int | None = None
    """Number of nodes; None without a value."""
    nic_unknown: bool = False
    """The nodes are joined by NICs of unknown bandwidth: only links of each node count."""
    sets_unknown: bool = False
    """There is no value, because NVIDIA's plugin chooses some of the GPUs."""
    slowest: SlowestLink | None = field(default=None, compare=False)
    """Of a job over several nodes; None for one node, and where the bandwidth was recorded."""
    models: tuple[str, ...] = field(default=(), compare=False)
    """The GPU models, as far as they are known; empty where the bandwidth was recorded."""

    @property
    def note(self) -> str | None:
        """What the value does not count, or why there is none, in a word for scripts."""
        if self.sets_unknown:
            return SETS_UNKNOWN
        return NIC_UNKNOWN if self.nic_unknown else None

    @property
    def uncounted(self) -> str:
        """What the value does not count, to be appended to it."""
        return ", NICs not counted" if self.nic_unknown else ""

    def other_models(self, other: "Bandwidth") -> str:
        """Return that another job is on other GPU models, in words; empty where it is not.

        The ratio of the two then compares machines, not placements.
        """
        if not self.models or not other.models or self.models == other.models:
            return ""
        return f"on {', '.join(other.models)}, this plan on {', '.join(self.models)}"

    def times(self, other: "Bandwidth") -> float:
        """Return by which factor the value is that of another job; 0 where that has none."""
        return (self.value or 0) / other.value if other.value else 0

    def is_comparable(self, other: "Bandwidth") -> bool:
        """Return whether the faster of two jobs has the larger value.

        Over more nodes fewer links count inside each, so the value rises where the network does not
        count.
        """
        return self.nodes == other.nodes or not (self.nic_unknown or other.nic_unknown)


UNDEFINED = Bandwidth()
"""Of one GPU, of shares, and of GPUs whose links are unknown."""


def bandwidth_over(assignments: Sequence[NodeAssignment], nic_bandwidth: float | None) -> Bandwidth:
    """Return the modelled all-reduce bandwidth of workers over these nodes.

    A ring of K GPUs sends 2(K−1)/K of the data over each of its links, so its slowest link counts,
    times K/(2(K−1)). A node's link speed inside is that by which its k GPUs have A. Over several
    nodes the ring also leaves each node, through the PCIe links of the job's GPUs there, and
    through NICs where their bandwidth is known. It is undefined where nothing is known to count, or
    where the links between the GPUs of a node are unknown, or a record has GPUs of another machine.
    """
    several = len(assignments) > 1
    links: list[SlowestLink] = []
    for assignment in assignments:
        k = assignment.mask.bit_count()
        if assignment.mask >> assignment.table.n:
            return UNDEFINED
        if not assignment.ledger.node.machine_known:
            if k > 1:
                return UNDEFINED
            continue
        if k > 1:
            inside = assignment.bandwidth * 2 * (k - 1) / k
            links.append(SlowestLink(inside, LinkKind.INSIDE, assignment.name, k))
        if several:
            out = assignment.table.speed_out(assignment.mask)
            links.append(SlowestLink(out, LinkKind.OUT, assignment.name, k))
    if several and nic_bandwidth is not None:
        links.append(SlowestLink(nic_bandwidth, LinkKind.NETWORK, "", 0))
    if not links:
        return UNDEFINED
    slowest = min(links, key=attrgetter("speed"))
    total = sum(assignment.mask.bit_count() for assignment in assignments)
    return Bandwidth(
        round(slowest.speed * (total / (2 * (total - 1))), 6),
        len(assignments),
        nic_unknown=several and nic_bandwidth is None,
        slowest=slowest if several else None,
        models=tuple(sorted(_models(assignments))),
    )


def _models(assignments: Sequence[NodeAssignment]) -> set[str]:
    machines = (assignment.ledger.node.machine for assignment in assignments)
    return {machine.model for machine in machines if machine and machine.model}
