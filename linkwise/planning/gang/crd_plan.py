"""Types of the plan in the spec of a Gang: nodes and GPUs of its members."""

from collections import Counter
from collections.abc import Iterable
from typing import Annotated

import msgspec
from msgspec import Meta

from linkwise.cluster.allocations.gpus import Counted, Exact, GPUs, GPUShare, number_counted
from linkwise.cluster.allocations.record import Index
from linkwise.cluster.keys import NVIDIA_GPU
from linkwise.runtime.kube.objects import Written


class PlannedPod(Written, frozen=True):
    """Node and GPUs of one member."""

    pod: str
    """Its name; of a late launcher that does not exist yet that of its Job."""
    uid: str
    """Empty until the pod exists."""
    node: str
    indices: tuple[Index, ...] = msgspec.field(name="gpus")
    """Of its GPUs, ascending; of replicas one entry each, so an index may repeat."""
    count: Annotated[int, Meta(ge=0)] = 0
    """Number of GPUs that NVIDIA's plugin chooses; there are no indices then."""

    @property
    def gpus(self) -> GPUs:
        """Its GPUs, of shares without their amounts."""
        return _read_gpus(self.indices, self.count)


class NodeGPUs(Written, frozen=True):
    """The GPUs of a gang on one node."""

    node: str
    indices: tuple[Index, ...] = msgspec.field(name="gpus")
    """Of the GPUs, ascending, each once; empty where NVIDIA's plugin chooses."""
    count: Annotated[int, Meta(ge=0)] = 0
    """Number of GPUs that NVIDIA's plugin chooses."""

    @property
    def gpus(self) -> GPUs:
        """The GPUs, of shares without their amounts."""
        return _read_gpus(self.indices, self.count)


class Held(Written, frozen=True):
    """The GPUs of the present members of a gang."""

    nodes: tuple[NodeGPUs, ...] = ()
    """By name of the node."""
    bandwidth: float | None = None
    """Modelled all-reduce bandwidth over all of them [GB/s]."""
    reserved: tuple[NodeGPUs, ...] = ()
    """GPUs that are reserved for the replacements of others, or for a late launcher."""
    nominated: tuple[NodeGPUs, ...] = ()
    """GPUs that are reserved while others are evicted for the gang."""


class GangPlan(Written, frozen=True):
    """Nodes and GPUs of all members, and their bandwidth [GB/s]."""

    id: str
    exact: bool
    members: tuple[PlannedPod, ...]
    bandwidth: float | None = None
    best_possible: float | None = None
    """Of the same members on the empty cluster."""
    index_order: float | None = None
    """Of nodes by name and lowest free indices."""
    domain: str | None = None
    bandwidth_note: str | None = None
    """`nic unknown`: the NICs do not count in the bandwidth. `GPUs unknown`: there is none,
    since NVIDIA's plugin chooses some of the GPUs."""
    best_possible_nodes: int | None = None
    """The number of nodes that best_possible spans."""
    index_order_nodes: int | None = None
    """The number of nodes that index_order spans."""
    planned_at: str = ""
    """RFC 3339; empty where it is unknown."""

    @property
    def nodes(self) -> tuple[str, ...]:
        """Its nodes, in the order of ranks."""
        return tuple(dict.fromkeys(member.node for member in self.members))

    @property
    def late(self) -> int:
        """Number of members that are planned before their pods exist."""
        return sum(not member.uid for member in self.members)

    @property
    def held(self) -> Held:
        """The GPUs of its members once all are bound."""
        nodes = held_nodes((member.node, member.gpus) for member in self.members)
        return Held(nodes, self.bandwidth)


def planned_pod(name: str, uid: str, node: str, gpus: GPUs) -> PlannedPod:
    """Return a member as it is written."""
    return PlannedPod(name, uid, node, gpus.indices, number_counted(gpus))


def held_nodes(pods: Iterable[tuple[str, GPUs]]) -> tuple[NodeGPUs, ...]:
    """Return the GPUs of pods by node.

    Args:
        pods: The node of each pod, and its GPUs.
    """
    by_node: dict[str, set[int]] = {}
    counts = Counter[str]()
    for node, gpus in pods:
        by_node.setdefault(node, set()).update(gpus.indices)
        counts[node] += number_counted(gpus)
    return tuple(
        NodeGPUs(node, tuple(sorted(indices)), counts[node])
        for node, indices in sorted(by_node.items())
    )


def _read_gpus(indices: Iterable[int], count: int) -> GPUs:
    return Counted(NVIDIA_GPU, count) if count else Exact(tuple(map(GPUShare, indices)))
