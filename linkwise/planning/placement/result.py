"""The result of planning: a placement of every pod, or a refusal."""

from collections import Counter
from dataclasses import dataclass

from linkwise.cluster.account.node_ledger import Holding
from linkwise.cluster.allocations.gpus import GPUs, number_counted
from linkwise.planning.placement.bandwidth import UNDEFINED, Bandwidth
from linkwise.planning.placement.pods.member import Member
from linkwise.planning.placement.state.snapshot import Snapshot


@dataclass(frozen=True, slots=True)
class Placement:
    """Node and GPUs of one pod."""

    member: Member
    node: str
    gpus: GPUs

    @property
    def holding(self) -> Holding:
        """The pod as an entry of the node's ledger."""
        return self.member.holding(self.gpus)


@dataclass(frozen=True, slots=True)
class Plan:
    """Placements of all members."""

    placements: tuple[Placement, ...]
    """In the order of the members."""
    bandwidth: Bandwidth = UNDEFINED
    """Over all members."""
    exact: bool = True
    """False where the set of nodes, or A itself, is not proven to be the best."""
    domain: str | None = None
    """`label=value` of the nearest network domain that all nodes share."""
    one_by_one: bool = False
    """Members were placed one after another, each on the best node for it."""
    nodes_considered: int = 0
    """Number of nodes that fit at least one member."""

    @property
    def gpus(self) -> dict[str, tuple[int, ...]]:
        """The GPUs taken on each node, ascending; nodes in the order of ranks."""
        by_node: dict[str, set[int]] = {}
        for placement in self.placements:
            by_node.setdefault(placement.node, set()).update(placement.gpus.indices)
        return {node: tuple(sorted(gpus)) for node, gpus in by_node.items()}

    @property
    def counts(self) -> dict[str, int]:
        """The number of GPUs on each node where NVIDIA's plugin chooses them."""
        counts = Counter[str]()
        for placement in self.placements:
            counts[placement.node] += number_counted(placement.gpus)
        return dict(+counts)

    def applied_to(self, snapshot: Snapshot) -> Snapshot:
        """Return the snapshot with the plan carried out."""
        return snapshot.hold_all((p.node, p.holding) for p in self.placements)


@dataclass(frozen=True, slots=True)
class Refusal:
    """Why nothing is placed."""

    reason: str
    """One sentence with numbers and a remedy."""
    is_cacheable: bool = True
    """It holds until capacity is freed; else the unit is planned again in the next cycle."""
    is_settling: bool = False
    """All fit, and wait for better GPUs."""
    could_use: frozenset[str] | None = None
    """Nodes that would fit some of its members once pods with GPUs end; empty where not all members
    would fit then. None: not computed."""
