"""What planning answers: where every pod goes, or why none does."""

from dataclasses import dataclass

from cluster.record import GPUShare
from scorer.placement.member import Member
from scorer.placement.snapshot import Snapshot


@dataclass(frozen=True, slots=True)
class Placement:
    """One pod's node and GPUs."""

    member: Member
    node: str
    shares: tuple[GPUShare, ...]
    """What it gets of each GPU; empty where NVIDIA's plugin chooses which."""

    @property
    def gpus(self) -> tuple[int, ...]:
        """GPU indices, ascending."""
        return tuple(sorted(share.i for share in self.shares))


@dataclass(frozen=True, slots=True)
class Plan:
    """Where all members go."""

    placements: tuple[Placement, ...]
    """In the order of the members."""
    bandwidth: float | None = None
    """Modelled all-reduce bandwidth over all of them [GB/s]; None where it is not defined."""
    exact: bool = True
    """False where the set of nodes, or A itself, is the best found rather than proven best."""
    domain: str | None = None
    """`label=value` of the nearest network domain that all nodes share."""
    one_by_one: bool = False
    """Members went one after another to the node that was best for each."""
    nodes_considered: int = 0
    """How many nodes could take at least a part."""
    nic_unknown: bool = False
    """Nodes are joined by NICs whose bandwidth nobody knows, so that it is left out."""

    @property
    def gpus(self) -> dict[str, tuple[int, ...]]:
        """The GPUs taken on each node, ascending; nodes in the order of ranks."""
        taken: dict[str, set[int]] = {}
        for placement in self.placements:
            taken.setdefault(placement.node, set()).update(placement.gpus)
        return {node: tuple(sorted(gpus)) for node, gpus in taken.items()}

    def applied_to(self, snapshot: Snapshot) -> Snapshot:
        """Return the snapshot in which every member has what is planned."""
        return snapshot.hold_all((p.node, p.member.holding(p.shares)) for p in self.placements)


@dataclass(frozen=True, slots=True)
class Refusal:
    """Why nothing is placed, in one sentence with numbers and what would help."""

    reason: str
    stands: bool = True
    """It holds until something comes free; else only for now."""
    could_use: frozenset[str] | None = None
    """Nodes that would take a part of it once pods with GPUs end; none where not all of it would
    fit then. None: nobody asked."""
