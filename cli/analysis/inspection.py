"""Who has which GPU of a cluster: what `linkwise inspect` shows, before it is shown. Pure."""

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property

from cli.files.cluster_file import Cluster
from cluster.keys import GFD_PRODUCT, ISOLATION
from cluster.mode import Mode
from cluster.node import Node
from cluster.node_ledger import Holding, NodeLedger
from cluster.pod import Pod
from cluster.record import GPUShare, Isolation
from cluster.request import Family, read_request
from topology.machine import gpus_of, mask_of
from topology.table import Table, table_of


@dataclass(frozen=True, slots=True)
class Holder:
    """A pod that has something of a node's GPUs."""

    holding: Holding
    isolation: str | None
    """What keeps it within its share, as its record says; None where it does not say."""
    bound: bool
    """False while its record names the node, and the scheduler has not yet bound it there."""

    @property
    def namespace(self) -> str:
        """Its namespace."""
        return self.holding.pod.partition("/")[0]

    @property
    def name(self) -> str:
        """Its name."""
        return self.holding.pod.partition("/")[2]

    def shares_of(self, i: int) -> tuple[GPUShare, ...]:
        """Return what it has of GPU i; several where it has several replicas of it."""
        return tuple(share for share in self.holding.shares if share.i == i)


@dataclass(frozen=True, slots=True)
class Pending:
    """A pod that has GPUs of the node, and nobody knows which."""

    name: str
    """`namespace/name`."""
    memory: int
    """What it asks for [GiB]; 0 where it asks for whole GPUs or replicas."""


@dataclass(frozen=True)
class NodeView:
    """A node with GPUs."""

    ledger: NodeLedger
    holders: tuple[Holder, ...]
    """Those whose GPUs are known, and those that NVIDIA's plugin serves; by name."""
    pending: tuple[Pending, ...]
    address: str | None
    """Its InternalIP."""

    @property
    def node(self) -> Node:
        """The node."""
        return self.ledger.node

    @cached_property
    def table(self) -> Table:
        """Bandwidths of its machine's sets."""
        if self.node.machine is None:
            raise AssertionError("a node without GPUs has no view")
        return table_of(self.node.machine)

    @property
    def model(self) -> str | None:
        """Its GPUs' product, where its machine or the label of feature discovery tells it."""
        known = self.node.machine.model if self.node.machine else None
        return known or self.node.labels.get(GFD_PRODUCT)

    @property
    def is_counted(self) -> bool:
        """Whether NVIDIA's plugin chooses its GPUs: nobody knows which of them are free."""
        return self.node.mode is Mode.DEFAULT and any(one.holding.nvidia for one in self.holders)

    @property
    def indices(self) -> range:
        """The indices of its GPUs."""
        return range(len(self.node.cards))

    def of(self, i: int) -> tuple[Holder, ...]:
        """Return who has something of GPU i."""
        return tuple(holder for holder in self.holders if holder.shares_of(i))

    def bandwidth(self, gpus: tuple[int, ...]) -> float | None:
        """Return A of some GPUs [GB/s]; None for one of them, or where nothing tells the links."""
        if len(gpus) < 2 or not self.node.machine_known:
            return None
        return self.table.bandwidth(mask_of(gpus))

    def total(self, i: int) -> int:
        """Return the memory of GPU i [GiB]; 0 where nothing tells it."""
        return self.node.cards[i].memory or 0

    def used(self, i: int) -> int:
        """Return how much of that is given out [GiB]; all of it where the GPU is given whole."""
        taken = self.ledger.taken[i]
        return self.total(i) if taken.whole else taken.memory

    def has(self, holder: Holder, i: int) -> int:
        """Return how much memory of GPU i a pod has [GiB]."""
        shares = holder.shares_of(i)
        if any(share.mem is None for share in shares):
            return self.used(i)
        return sum(share.mem or 0 for share in shares)

    @property
    def free(self) -> tuple[int, ...]:
        """GPUs of which it is known that nobody has anything, and on which something may go."""
        unknown = self.ledger.unaccounted or self.is_counted
        return () if unknown else gpus_of(self.ledger.free_mask)

    @property
    def namespaces(self) -> frozenset[str]:
        """Those of the pods that have GPUs here."""
        unknown = (pod.name.partition("/")[0] for pod in self.pending)
        return frozenset((*(holder.namespace for holder in self.holders), *unknown))

    @property
    def enforced(self) -> frozenset[str]:
        """What keeps its shares within their limits; empty where nothing is shared."""
        return frozenset(
            holder.isolation or Isolation.NONE
            for holder in self.holders
            if any(share.mem for share in holder.holding.shares) or self.node.replicas
        )


def views(cluster: Cluster, node: str | None = None) -> tuple[NodeView, ...]:
    """Return the nodes that have GPUs, or pods with GPUs, by name.

    Args:
        cluster: The cluster.
        node: Only this one.
    """
    pods = {pod.metadata.uid or _name(pod): pod for pod in cluster.pods}
    asking: dict[str, list[Pod]] = {}
    for pod in cluster.pods:
        asking.setdefault(pod.spec.node_name, []).append(pod)
    return tuple(
        NodeView(
            ledger,
            tuple(_holders(ledger, pods)),
            tuple(_pending(ledger, asking.get(name, []))),
            cluster.addresses.get(name),
        )
        for name, ledger in sorted(cluster.ledger.nodes.items())
        if ledger.has_gpus and name == (node or name)
    )


def _holders(ledger: NodeLedger, pods: dict[str, Pod]) -> Iterator[Holder]:
    for holding in sorted(ledger.holdings.values(), key=lambda one: one.pod):
        if holding.shares or holding.nvidia:
            pod = pods.get(holding.uid)
            yield Holder(
                holding,
                isolation=pod.annotations.get(ISOLATION) if pod else None,
                bound=pod is None or bool(pod.spec.node_name),
            )


def _pending(ledger: NodeLedger, pods: list[Pod]) -> Iterator[Pending]:
    for pod in sorted(pods, key=_name):
        held = ledger.holdings.get(pod.metadata.uid or _name(pod))
        if held is None or held.shares:
            continue
        request = read_request(pod)[0]
        if request.places:
            yield Pending(_name(pod), request.memory if request.family is Family.SHARE else 0)


def _name(pod: Pod) -> str:
    return f"{pod.metadata.namespace or 'default'}/{pod.metadata.name}"
