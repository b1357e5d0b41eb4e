"""Pods that are placed at once, and what they need together."""

from collections.abc import Hashable, Iterable, Sequence
from dataclasses import dataclass

from cluster.demand import Demand, PortsTaken
from scorer.placement.member import Member


@dataclass(frozen=True, slots=True)
class Group:
    """A gang's members that are present, or one pod."""

    members: tuple[Member, ...]
    """In rank order; at least one."""
    representatives: tuple[Member, ...]
    """One of each kind that differs in where it may go or what it takes there."""
    total: Demand
    """What all of them take together."""
    largest: Demand
    """The largest CPU and memory that any of them takes, and every port."""
    gpus: int
    """Whole GPUs of all members; 0 where they ask for something else."""
    apart: bool
    """Two members want the same host port, so that no node takes both."""

    @property
    def size(self) -> int:
        """Number of members."""
        return len(self.members)

    @property
    def each(self) -> int | None:
        """Whole GPUs of every member; None where members differ, or ask for something else."""
        counts = {member.gpus for member in self.representatives}
        return counts.pop() if len(counts) == 1 and 0 not in counts else None


def new_group(members: Sequence[Member]) -> Group:
    """Return the members as one group."""
    kinds: dict[Hashable, Member] = {}
    for member in members:
        kinds.setdefault(member.signature, member)
    demands = [member.demand for member in members]
    ports = frozenset().union(*(demand.ports for demand in demands))
    return Group(
        members=tuple(members),
        representatives=tuple(kinds.values()),
        total=Demand(sum(d.cpu for d in demands), sum(d.memory for d in demands), ports),
        largest=Demand(max(d.cpu for d in demands), max(d.memory for d in demands), ports),
        gpus=sum(member.gpus for member in members),
        apart=_clash(demands),
    )


def _clash(demands: Iterable[Demand]) -> bool:
    taken = PortsTaken()
    for demand in demands:
        if taken.conflict(demand.ports):
            return True
        taken.add(demand.ports)
    return False
