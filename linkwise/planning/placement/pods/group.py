"""Pods that are placed together, their common needs, and the options of their plan."""

from collections.abc import Hashable, Iterable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from linkwise.cluster.requests.demand import Demand, PortsTaken, largest_demand, total_demand
from linkwise.cluster.requests.user_claims.pod_claims import DeviceNeeds
from linkwise.cluster.volumes.pod_volumes import PodVolumes
from linkwise.planning.placement.options import DEFAULT, PlanOptions
from linkwise.planning.placement.pods.member import Member


@dataclass(frozen=True, slots=True)
class Coupling:
    """What the members of a group require of each other by affinity and topology spread."""

    room: NDArray[np.int64] | None = None
    """By node of the snapshot: how many of them it may have. None: any number."""
    together: tuple[str, ...] = ()
    """Labels of which all their nodes must have the same value."""
    is_complete: bool = False
    """The two say all. Else the members are placed one after another, where these do not do."""
    is_by_node: bool = False
    """Each node is a domain of its own."""
    words: str = ""
    """For refusals."""


@dataclass(frozen=True, slots=True)
class Group:
    """The waiting members of a gang, or one pod."""

    members: tuple[Member, ...]
    """In rank order; at least one."""
    representatives: tuple[Member, ...]
    """One member for each signature."""
    total: Demand
    """The sum over all members."""
    largest: Demand
    """The largest amount of each resource of any of them, and every port."""
    gpus: int
    """Whole GPUs of all members; 0 where they ask for something else."""
    by_count: bool
    """All members may also be on nodes where NVIDIA's plugin chooses the GPUs."""
    has_port_conflict: bool
    """Two members want the same host port, so no node fits both."""
    volumes: tuple[PodVolumes, ...] = ()
    """The volumes of each member that has some."""
    options: PlanOptions = DEFAULT
    coupling: Coupling | None = None
    """None: any member may be beside any other."""

    @property
    def needs(self) -> frozenset[DeviceNeeds]:
        """The different needs of its members with whole GPUs."""
        return frozenset(member.needs for member in self.representatives if member.gpus)

    @property
    def is_matched(self) -> bool:
        """GPUs of a member have to be equal in some attributes."""
        return any(needs.matching for needs in self.needs)

    @property
    def size(self) -> int:
        """Number of members."""
        return len(self.members)

    @property
    def gpus_each(self) -> int | None:
        """Whole GPUs of every member; None where members differ, or ask for something else."""
        counts = {member.gpus for member in self.representatives}
        return counts.pop() if len(counts) == 1 and 0 not in counts else None


def new_group(members: Sequence[Member], options: PlanOptions = DEFAULT) -> Group:
    """Return the members as one group."""
    by_signature: dict[Hashable, Member] = {}
    for member in members:
        by_signature.setdefault(member.signature, member)
    demands = [member.demand for member in members]
    return Group(
        members=tuple(members),
        representatives=tuple(by_signature.values()),
        total=total_demand(demands),
        largest=largest_demand(demands),
        gpus=sum(member.gpus for member in members),
        by_count=all(member.request.by_count for member in by_signature.values()),
        has_port_conflict=_have_conflict(demands),
        volumes=tuple(member.volumes for member in members if member.volumes),
        options=options,
    )


def _have_conflict(demands: Iterable[Demand]) -> bool:
    taken = PortsTaken()
    for demand in demands:
        if taken.conflict(demand.ports):
            return True
        taken.add(demand.ports)
    return False
