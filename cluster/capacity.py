"""What the cluster offers at most, so that a request no node can ever take is told at creation."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from cluster.keys import GPU_CORE, GPU_MEM, GPU_WHOLE, NODE_MODE, NVIDIA_GPU, NVIDIA_GPU_SHARED
from cluster.mode import Mode
from cluster.request import Family, Request

if TYPE_CHECKING:
    # Costs 20 ms to import, which a check without a cluster need not wait for.
    from cluster.node import Node

# In Python 3.11 a member of an enum takes ten times as long to look up as a name.
_SHARE, _WHOLE, _NVIDIA = Family.SHARE, Family.WHOLE, Family.NVIDIA


@dataclass(frozen=True, slots=True)
class Excess:
    """A request that no node can take, however empty the cluster."""

    asked: str
    """What the pod asks for, such as `20 GiB of one card`."""
    offered: str
    """The most there is, such as `at most 15 GiB of one card`."""


@dataclass(frozen=True, slots=True)
class Capacity:
    """The most that any node offers of each kind, healthy and free or not."""

    nodes: int = 0
    """How many nodes are known; with none, nothing is judged."""
    memory_cards: tuple[int, ...] = ()
    """Item N-1: the most memory that N cards of one node have each [GiB]."""
    compute_cards: tuple[int, ...] = ()
    """The same over the nodes that give out compute too."""
    whole: int = 0
    """Most GPUs of a node on which Linkwise chooses whole GPUs."""
    nvidia: int = 0
    """Most `nvidia.com/gpu` of a node."""
    replicas: int = 0
    """Most `nvidia.com/gpu.shared` of a node on which Linkwise chooses them."""
    nvidia_replicas: int = 0
    """Most `nvidia.com/gpu.shared` of a node on which NVIDIA's plugin chooses them."""
    by_nvidias_names: tuple[Mapping[str, str], ...] = field(default=(), repr=False)
    """Labels of each node that offers GPUs under NVIDIA's resource names."""
    unlabelled: frozenset[str] = frozenset()
    """Resources of nodes whose labels do not say how they are given out."""
    _label_sets: dict[frozenset[str], tuple[Mapping[str, str], ...]] = field(
        default_factory=dict, init=False, repr=False, compare=False
    )
    """A cache of `label_sets`, by keys; it ends with this capacity, when a node changes."""

    def label_sets(self, keys: frozenset[str]) -> tuple[Mapping[str, str], ...]:
        """Return what these labels are on nodes that offer GPUs under NVIDIA's names, each once.

        Cost: one pass over the nodes for each set of keys, which the policy decides.
        """
        if keys not in self._label_sets:
            found = {
                tuple((key, labels[key]) for key in sorted(keys) if key in labels)
                for labels in self.by_nvidias_names
            }
            self._label_sets[keys] = tuple(dict(one) for one in sorted(found))
        return self._label_sets[keys]

    def relabelling(self, request: Request) -> str | None:
        """Say which label or resource to change so that nodes take a request; None: neither helps.

        Args:
            request: Something that no node takes, however empty.
        """
        if request.family is _WHOLE:
            resource, mode, most = GPU_WHOLE, Mode.TOPOLOGY, self.whole
        elif request.family is _SHARE:
            cards = self.compute_cards if request.core else self.memory_cards
            mode = Mode.CORE_MEM if request.core else Mode.SHARE
            resource, most = GPU_MEM, len(cards)
        else:
            return None
        if most:
            return None
        if resource in self.unlabelled:
            return f"label the nodes that offer {resource} with {NODE_MODE}={mode}"
        return f"ask for {NVIDIA_GPU}, which nodes offer" if self.nvidia else None

    def excess(self, request: Request) -> Excess | None:
        """Say what a request asks for beyond every node; None where some node may take it.

        Nothing is said without nodes, since then nobody has looked yet.
        """
        if not self.nodes or request.family is None:
            return None
        if request.family is _SHARE:
            return self._share_excess(request)
        if request.family is _WHOLE:
            resource, most = GPU_WHOLE, self.whole
        elif request.family is _NVIDIA:
            resource = request.counted
            most = self.nvidia if resource == NVIDIA_GPU else self.nvidia_replicas
        else:
            resource, most = NVIDIA_GPU_SHARED, self.replicas
        if request.gpus <= most:
            return None
        offered = f"at most {most} on one node" if most else self._not_offered(resource)
        return Excess(f"{request.gpus} {resource}", offered)

    def _share_excess(self, request: Request) -> Excess | None:
        cards = self.compute_cards if request.core else self.memory_cards
        n, each = request.gpus, request.memory_per_card
        if n <= len(cards) and each <= cards[n - 1]:
            return None
        asked = f"{each} GiB of one card" if n == 1 else f"{each} GiB of each of {n} cards"
        if not cards:
            wanted = f"{GPU_MEM} with {GPU_CORE}" if request.core else GPU_MEM
            return Excess(asked, self._not_offered(GPU_MEM, wanted))
        if n > len(cards):
            return Excess(asked, f"at most {len(cards)} cards on one node")
        where = "one card" if n == 1 else f"each of {n} cards of one node"
        return Excess(asked, f"at most {cards[n - 1]} GiB of {where}")

    def _not_offered(self, resource: str, wanted: str = "") -> str:
        if resource in self.unlabelled:
            return f"the nodes that offer {resource} have no label {NODE_MODE}"
        return f"no node offers {wanted or resource}"


def capacity_of(nodes: Iterable["Node"]) -> Capacity:
    """Return what nodes offer at most. Cards that are unhealthy now count: they come back."""
    known = tuple(nodes)
    return Capacity(
        nodes=len(known),
        memory_cards=_cards_of(node for node in known if node.mode.shares_memory),
        compute_cards=_cards_of(node for node in known if node.mode.shares_compute),
        whole=max((len(node.cards) for node in known if node.mode is Mode.TOPOLOGY), default=0),
        nvidia=max((node.resources.get(NVIDIA_GPU, 0) for node in known), default=0),
        replicas=max(
            (len(node.cards) * node.replicas for node in known if node.mode is Mode.TIMESLICE),
            default=0,
        ),
        by_nvidias_names=tuple(
            node.labels
            for node in known
            if node.resources.get(NVIDIA_GPU) or node.resources.get(NVIDIA_GPU_SHARED)
        ),
        nvidia_replicas=max(
            (
                node.resources.get(NVIDIA_GPU_SHARED, 0)
                for node in known
                if node.mode is not Mode.TIMESLICE
            ),
            default=0,
        ),
        unlabelled=frozenset(
            name
            for node in known
            if node.mode is Mode.DEFAULT
            for name in (GPU_MEM, GPU_WHOLE)
            if node.resources.get(name)
        ),
    )


def _cards_of(nodes: Iterable["Node"]) -> tuple[int, ...]:
    most: list[int] = []
    for node in nodes:
        sizes = sorted((card.memory or 0 for card in node.cards), reverse=True)
        most += [0] * (len(sizes) - len(most))
        for place, size in enumerate(sizes):
            most[place] = max(most[place], size)
    return tuple(most)
