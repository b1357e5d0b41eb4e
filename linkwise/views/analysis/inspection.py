"""The GPUs of a cluster's nodes and their holders, for `linkwise inspect`. Pure."""

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property

from linkwise.cluster.account.node_ledger import Holding, NodeLedger
from linkwise.cluster.allocations.gpus import GPUShare
from linkwise.cluster.allocations.record import Isolation
from linkwise.cluster.keys import ISOLATION
from linkwise.cluster.mode import NodeMode
from linkwise.cluster.nodes.node import Node
from linkwise.cluster.objects.pod import Pod
from linkwise.cluster.requests.request import Family
from linkwise.cluster.requests.request_reader import read_request
from linkwise.topology.machine import gpus_of, mask_of
from linkwise.topology.table import Table, table_of
from linkwise.views.analysis.counted_sets import CountedSet, counted_sets
from linkwise.views.files.cluster_file import Cluster


@dataclass(frozen=True, slots=True)
class GPUHolder:
    """A pod that holds GPUs of a node."""

    holding: Holding
    isolation: str | None
    """The mechanism that enforces its share, by its record; None if the record names none."""
    bound: bool
    """False while its record names the node, but the scheduler has not bound it yet."""

    @property
    def namespace(self) -> str:
        """The pod's namespace."""
        return self.holding.pod.partition("/")[0]

    @property
    def name(self) -> str:
        """The pod's name."""
        return self.holding.pod.partition("/")[2]

    def shares_of(self, i: int) -> tuple[GPUShare, ...]:
        """Return its shares of GPU i; several for several replicas."""
        return tuple(share for share in self.holding.gpus.shares if share.i == i)


@dataclass(frozen=True, slots=True)
class PendingPod:
    """A pod that has GPUs of the node, but it is not known which."""

    name: str
    """`namespace/name`."""
    memory: int
    """The requested memory [GiB]; 0 for whole GPUs and replicas."""


@dataclass(frozen=True)
class InspectedNode:
    """A node with GPUs."""

    ledger: NodeLedger
    holders: tuple[GPUHolder, ...]
    """Pods whose GPUs are known, and pods with GPUs of NVIDIA's plugin; by name."""
    pending: tuple[PendingPod, ...]
    address: str | None
    """Its InternalIP."""

    @property
    def node(self) -> Node:
        """The node."""
        return self.ledger.node

    @cached_property
    def table(self) -> Table:
        """The bandwidths of its machine."""
        if self.node.machine is None:
            raise AssertionError("a node without GPUs is not inspected")
        return table_of(self.node.machine)

    @property
    def is_counted(self) -> bool:
        """NVIDIA's plugin chooses its GPUs, so it is not known which are free."""
        return self.node.mode is NodeMode.DEFAULT and self.ledger.has_counted_pods

    @cached_property
    def counted_sets(self) -> tuple[CountedSet, ...]:
        """The GPUs of each pod or gang that NVIDIA's plugin chooses here."""
        return counted_sets(self.ledger)

    @property
    def missing(self) -> str | None:
        """Why no GPU of a claims node is given out for now; None: they are."""
        return self.node.pool.missing if self.node.pool else None

    @property
    def indices(self) -> range:
        """The indices of its GPUs."""
        return range(len(self.node.cards))

    def holders_of(self, i: int) -> tuple[GPUHolder, ...]:
        """Return the pods that hold GPU i or a part of it."""
        return tuple(holder for holder in self.holders if holder.shares_of(i))

    def bandwidth(self, gpus: tuple[int, ...]) -> float | None:
        """Return the all-reduce bandwidth of GPUs [GB/s]; None for one GPU or unknown links."""
        if len(gpus) < 2 or not self.node.machine_known:
            return None
        return self.table.bandwidth(mask_of(gpus))

    def total(self, i: int) -> int:
        """Return the memory of GPU i [GiB]; 0 if it is not known."""
        return self.node.cards[i].memory or 0

    def used(self, i: int) -> int:
        """Return how much of GPU i is given out [GiB]; all of it where it is given out whole."""
        taken = self.ledger.taken[i]
        return self.total(i) if taken.whole else taken.memory

    def memory_held(self, holder: GPUHolder, i: int) -> int:
        """Return the memory of GPU i that a pod holds [GiB]."""
        shares = holder.shares_of(i)
        if any(share.mem is None for share in shares):
            return self.used(i)
        return sum(share.mem or 0 for share in shares)

    @property
    def free(self) -> tuple[int, ...]:
        """GPUs that are known to be free and that may be given out."""
        unknown = self.ledger.unaccounted or self.is_counted or self.missing
        return () if unknown else gpus_of(self.ledger.free_mask)

    @property
    def namespaces(self) -> frozenset[str]:
        """The namespaces of the pods that have GPUs here."""
        unknown = (pod.name.partition("/")[0] for pod in self.pending)
        return frozenset((*(holder.namespace for holder in self.holders), *unknown))

    @property
    def enforced(self) -> frozenset[str]:
        """The mechanisms that enforce shares on this node; empty where no GPU is shared."""
        return frozenset(
            holder.isolation or Isolation.NONE
            for holder in self.holders
            if any(share.mem for share in holder.holding.gpus.shares) or self.node.replicas
        )


def inspect_nodes(cluster: Cluster, node: str | None = None) -> tuple[InspectedNode, ...]:
    """Return the nodes that have GPUs, or pods with GPUs, sorted by name.

    Args:
        cluster: The cluster.
        node: Only this one.
    """
    pods = {pod.metadata.uid or _name(pod): pod for pod in cluster.pods}
    pods_by_node: dict[str, list[Pod]] = {}
    for pod in cluster.pods:
        pods_by_node.setdefault(pod.spec.node_name, []).append(pod)
    return tuple(
        InspectedNode(
            ledger,
            tuple(_holders(ledger, pods)),
            tuple(_pending(ledger, pods_by_node.get(name, []))),
            cluster.addresses.get(name),
        )
        for name, ledger in sorted(cluster.ledger.nodes.items())
        if ledger.has_gpus and name == (node or name)
    )


def _holders(ledger: NodeLedger, pods: dict[str, Pod]) -> Iterator[GPUHolder]:
    for holding in sorted(ledger.holdings.values(), key=lambda holding: holding.pod):
        if holding.gpus:
            pod = pods.get(holding.uid)
            yield GPUHolder(
                holding,
                isolation=pod.annotations.get(ISOLATION) if pod else None,
                bound=pod is None or bool(pod.spec.node_name),
            )


def _pending(ledger: NodeLedger, pods: list[Pod]) -> Iterator[PendingPod]:
    for pod in sorted(pods, key=_name):
        held = ledger.holdings.get(pod.metadata.uid or _name(pod))
        if held is None or held.gpus.shares:
            continue
        request = read_request(pod)[0]
        if request.places:
            yield PendingPod(_name(pod), request.memory if request.family is Family.SHARE else 0)


def _name(pod: Pod) -> str:
    return f"{pod.metadata.namespace or 'default'}/{pod.metadata.name}"
