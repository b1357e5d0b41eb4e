"""Maximum capacity of the nodes: admission reports requests that no node can ever satisfy."""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, NamedTuple

from linkwise.cluster.cel.values import DeviceFacts
from linkwise.cluster.keys import (
    CLAIMS,
    GPU_CORE,
    GPU_MEM,
    GPU_WHOLE,
    NODE_MODE,
    NVIDIA_GPU,
    NVIDIA_GPU_SHARED,
    RESOURCE_NAME,
    RESOURCES,
)
from linkwise.cluster.mode import NodeMode, is_watched
from linkwise.cluster.nodes.gpu_kinds import kinds_of, may_select
from linkwise.cluster.objects.pod import NewPodSpec
from linkwise.cluster.objects.selector import node_matches
from linkwise.cluster.requests.request import Family, Request

if TYPE_CHECKING:
    # The import costs 20 ms, which a check without a cluster should not pay.
    from linkwise.cluster.nodes.node import Node


_MAX_MATCHED = 100
"""Terms, requirements and values of a pod's node affinity that are matched with each node."""
_MAX_MATCHES = 50_000
"""The same over all nodes."""


@dataclass(frozen=True, slots=True)
class Excess:
    """A request that no node can satisfy, even if the cluster is empty."""

    requested: str
    """The request, such as `20 GiB of one card`."""
    offered: str
    """The maximum on any node, such as `at most 15 GiB of one card`."""


class WholeGPUs(NamedTuple):
    """A node with whole GPUs under NVIDIA's resource name."""

    name: str
    labels: Mapping[str, str]
    gpus: int
    """Its GPUs, healthy or not."""


@dataclass(frozen=True, slots=True)
class Capacity:
    """Maximum of any node by kind of request; allocated and unhealthy GPUs count."""

    nodes: int = 0
    """Number of known nodes; with none, no request is checked."""
    memory_cards: tuple[int, ...] = ()
    """Item N-1: largest memory that each of N cards of one node has [GiB]."""
    compute_cards: tuple[int, ...] = ()
    """The same on nodes that also share compute."""
    whole: int = 0
    """GPUs of the largest node on which Linkwise chooses `aliyun.com/gpu`."""
    nvidia: int = 0
    """Largest `nvidia.com/gpu` of a node."""
    exact: tuple[WholeGPUs, ...] = field(default=(), repr=False)
    """Nodes on which Linkwise chooses `nvidia.com/gpu` of device plugins."""
    exact_gpus: int = 0
    """GPUs of the largest of these."""
    counted: tuple[WholeGPUs, ...] = field(default=(), repr=False)
    """Nodes on which NVIDIA's plugin chooses `nvidia.com/gpu`."""
    claims: tuple[WholeGPUs, ...] = field(default=(), repr=False)
    """Nodes on which pods get their GPUs by claims."""
    claims_gpus: int = 0
    """GPUs of the largest of these."""
    gpu_kinds: frozenset[DeviceFacts] = field(default=frozenset(), repr=False)
    """Kinds of their GPUs; none: they are not known."""
    may_claim: bool = False
    """There are nodes that `may_offer_claims`: the driver's slices may only be missing yet."""
    replicas: int = 0
    """Largest `nvidia.com/gpu.shared` of a node on which Linkwise chooses replicas."""
    nvidia_replicas: int = 0
    """Largest `nvidia.com/gpu.shared` of a node on which NVIDIA's plugin chooses replicas."""
    by_nvidias_names: tuple[Mapping[str, str], ...] = field(default=(), repr=False)
    """Labels of each node that offers GPUs under NVIDIA's resource names."""
    unlabelled: frozenset[str] = frozenset()
    """GPU resources of nodes without a label for the mode."""
    numa_notes: tuple[str, ...] = ()
    """What exclusive CPUs mean on nodes on which Linkwise chooses GPUs; one note for equal ones."""
    _label_sets: dict[frozenset[str], tuple[Mapping[str, str], ...]] = field(
        default_factory=dict, init=False, repr=False, compare=False
    )
    """Cache of `label_sets` by keys."""

    def label_sets(self, keys: frozenset[str]) -> tuple[Mapping[str, str], ...]:
        """Return the distinct values of some labels on nodes with GPUs under NVIDIA's names.

        Cost: one pass over the nodes for each new set of keys.
        """
        if keys not in self._label_sets:
            label_sets = {
                tuple((key, labels[key]) for key in sorted(keys) if key in labels)
                for labels in self.by_nvidias_names
            }
            self._label_sets[keys] = tuple(map(dict, sorted(label_sets)))
        return self._label_sets[keys]

    def has_exact_node(self, spec: NewPodSpec, gpus: int) -> bool:
        """Return whether Linkwise chooses `nvidia.com/gpu` on a node that a pod may be bound to.

        The node matches the pod's nodeSelector and required node affinity, and has as many GPUs.

        Args:
            spec: Spec of the pod.
            gpus: Number of GPUs that the pod asks for.
        """
        return _fits_any(self.exact, spec, gpus, is_matched=_is_bounded(spec, len(self.exact)))

    def needs_claim(self, spec: NewPodSpec, gpus: int) -> bool:
        """Return whether a pod may be bound to a claims node, and to no exact or counted one.

        Args:
            spec: Spec of the pod.
            gpus: Number of GPUs that the pod asks for.
        """
        if not self.claims:
            return False
        others = (*self.exact, *self.counted)
        is_matched = _is_bounded(spec, len(self.claims) + len(others))
        return _fits_any(self.claims, spec, gpus, is_matched=is_matched) and not _fits_any(
            others, spec, gpus, is_matched=is_matched
        )

    def has_claims_node(self, spec: NewPodSpec, gpus: int) -> bool:
        """Return whether a pod may be bound to a claims node with as many GPUs.

        Args:
            spec: Spec of the pod.
            gpus: Number of GPUs that the pod asks for.
        """
        return _fits_any(self.claims, spec, gpus, is_matched=_is_bounded(spec, len(self.claims)))

    def may_satisfy(self, selectors: tuple[str, ...]) -> bool:
        """Return whether GPUs of some claims node may satisfy the selectors of a claim."""
        return may_select(selectors, self.gpu_kinds)

    def suggested_change(self, request: Request) -> str | None:
        """Return which node label or resource to change; None where neither would help.

        Args:
            request: A request that no node can satisfy.
        """
        resource, maximum = self._offer(request)
        if maximum:
            return None
        mode = _node_mode(request)
        if mode is not None and resource in self.unlabelled:
            return f"label the nodes that offer {resource} with {NODE_MODE}={mode}"
        if resource == NVIDIA_GPU and self.may_claim and not request.by_claim:
            return f'label the pod {CLAIMS}: "true" if NVIDIA\'s DRA driver is to give it GPUs'
        others = [name for name in self._offered() if name != resource]
        return f"ask for {' or '.join(others)}, which nodes offer" if others else None

    def _offered(self) -> list[str]:
        """Return the resources that nodes offer; those of whole GPUs, if there are any."""
        whole = [NVIDIA_GPU] * bool(self.nvidia) + [GPU_WHOLE] * bool(self.whole)
        parts = [GPU_MEM] * bool(self.memory_cards)
        parts += [NVIDIA_GPU_SHARED] * bool(self.replicas or self.nvidia_replicas)
        return whole or parts

    def excess(self, request: Request) -> Excess | None:
        """Return why no node can satisfy a request; None where some node may, or none is known."""
        if not self.nodes or request.family is None:
            return None
        if request.family is Family.SHARE:
            return self._share_excess(request)
        resource, maximum = self._offer(request)
        if request.gpus <= maximum:
            return None
        if maximum:
            offered = f"at most {maximum} on one node"
        elif request.by_claim:
            offered = "no node with GPUs of NVIDIA's DRA driver is known"
        else:
            offered = self._not_offered(resource)
        return Excess(f"{request.gpus} {resource}", offered)

    def _offer(self, request: Request) -> tuple[str, int]:
        """Return the requested resource, and its maximum on one node [GPUs]."""
        if request.family is Family.WHOLE:
            if request.by_claim:
                return NVIDIA_GPU, self.claims_gpus
            if request.resource == NVIDIA_GPU:
                return NVIDIA_GPU, self.nvidia if request.by_count else self.exact_gpus
            return GPU_WHOLE, self.whole
        if request.family is Family.SHARE:
            return GPU_MEM, len(self._share_cards(request))
        if request.family is Family.REPLICA:
            return NVIDIA_GPU_SHARED, self.replicas
        resource = request.resource
        return resource, self.nvidia if resource == NVIDIA_GPU else self.nvidia_replicas

    def _share_cards(self, request: Request) -> tuple[int, ...]:
        return self.compute_cards if request.core else self.memory_cards

    def _share_excess(self, request: Request) -> Excess | None:
        cards = self._share_cards(request)
        n, each = request.gpus, request.memory_per_card
        if n <= len(cards) and each <= cards[n - 1]:
            return None
        requested = f"{each} GiB of one card" if n == 1 else f"{each} GiB of each of {n} cards"
        if not cards:
            wanted = f"{GPU_MEM} with {GPU_CORE}" if request.core else GPU_MEM
            return Excess(requested, self._not_offered(GPU_MEM, wanted))
        if n > len(cards):
            return Excess(requested, f"at most {len(cards)} cards on one node")
        where = "one card" if n == 1 else f"each of {n} cards of one node"
        return Excess(requested, f"at most {cards[n - 1]} GiB of {where}")

    def _not_offered(self, resource: str, wanted: str = "") -> str:
        if resource in self.unlabelled:
            return f"the nodes that offer {resource} have no label {NODE_MODE}"
        return f"no node offers {wanted or resource}"


def _node_mode(request: Request) -> NodeMode | None:
    """Return the mode that nodes need for a request; None for resources under NVIDIA's names."""
    if request.family is Family.WHOLE:
        return None if request.resource == NVIDIA_GPU else NodeMode.TOPOLOGY
    if request.family is Family.SHARE:
        return NodeMode.CORE_MEM if request.core else NodeMode.SHARE
    return None


def capacity_of(
    nodes: Iterable["Node"], claims_gpus: int = 0, gpu_kinds: Iterable[DeviceFacts] = ()
) -> Capacity:
    """Return the capacity of nodes. Unhealthy cards count, since they may recover.

    Args:
        nodes: The nodes.
        claims_gpus: GPUs of the largest claims node, if `nodes` do not say which these are: then
            each node that `may_offer_claims` counts as one of this size. 0: there is none.
        gpu_kinds: Kinds of the GPUs of claims nodes, besides those of which `nodes` have pools.
    """
    known = tuple(nodes)
    exact = tuple(
        WholeGPUs(node.name, node.labels, len(node.cards))
        for node in known
        if _offers(node, NVIDIA_GPU)
    )
    claims = tuple(
        WholeGPUs(node.name, node.labels, len(node.cards) or claims_gpus)
        for node in known
        if node.is_claims or (claims_gpus and may_offer_claims(node))
    )
    return Capacity(
        nodes=len(known),
        memory_cards=_cards_of(node for node in known if node.mode.shares_memory),
        compute_cards=_cards_of(node for node in known if node.mode.shares_compute),
        whole=max((len(node.cards) for node in known if _offers(node, GPU_WHOLE)), default=0),
        exact=exact,
        exact_gpus=max((node.gpus for node in exact), default=0),
        counted=tuple(
            WholeGPUs(node.name, node.labels, node.resources[NVIDIA_GPU])
            for node in known
            if node.is_counted
        ),
        claims=claims,
        claims_gpus=max((node.gpus for node in claims), default=0),
        gpu_kinds=kinds_of(facts for node in known if node.pool for facts in node.pool.facts).union(
            gpu_kinds
        ),
        may_claim=any(map(may_offer_claims, known)),
        nvidia=max((node.resources.get(NVIDIA_GPU, 0) for node in known), default=0),
        replicas=max(
            (len(node.cards) * node.replicas for node in known if node.mode is NodeMode.TIMESLICE),
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
                if node.mode is not NodeMode.TIMESLICE
            ),
            default=0,
        ),
        unlabelled=frozenset(
            name
            for node in known
            if node.mode is NodeMode.DEFAULT
            for name in (GPU_MEM, GPU_WHOLE)
            if node.resources.get(name)
        ),
        numa_notes=_numa_notes(known),
    )


def _numa_notes(nodes: Iterable["Node"]) -> tuple[str, ...]:
    notes = Counter(
        node.kubelet.numa_note
        for node in nodes
        if node.mode is not NodeMode.DEFAULT and node.kubelet.may_pin_cpus
    )
    return tuple(
        f"on {count} {'node' if count == 1 else 'nodes'}, {note}"
        for note, count in notes.items()
        if note
    )


def _offers(node: "Node", resource: str) -> bool:
    """Return whether Linkwise chooses whole GPUs of a node under this resource name."""
    is_ours = node.mode is NodeMode.TOPOLOGY and not node.is_claims
    return is_ours and node.gpu_resource == resource and bool(node.cards)


def may_offer_claims(node: "Node") -> bool:
    """Return whether a node may be a claims node, by its Node object.

    No device plugin offers its GPUs, and no label says that the agent will.
    """
    return (
        node.mode is NodeMode.TOPOLOGY
        and (RESOURCE_NAME not in node.labels or is_watched(node.labels))
        and not any(map(node.resources.get, RESOURCES))
    )


def _is_bounded(spec: NewPodSpec, nodes: int) -> bool:
    """Return whether a pod is compared with so many nodes.

    One with very many requirements or values is not, since each of them costs time for each node.
    """
    size = _size(spec)
    return size <= _MAX_MATCHED and size * nodes <= _MAX_MATCHES


def _fits_any(nodes: Sequence[WholeGPUs], spec: NewPodSpec, gpus: int, *, is_matched: bool) -> bool:
    """Return whether a pod may be bound to a node with as many GPUs.

    Args:
        nodes: The nodes.
        spec: Spec of the pod.
        gpus: Number of GPUs that the pod asks for.
        is_matched: Its requirements on nodes are compared; else any node with as many GPUs is taken
            for one.

    Cost: at most one match for each node.
    """
    return any(
        node.gpus >= gpus and (not is_matched or node_matches(spec, node.name, node.labels))
        for node in nodes
    )


def _size(spec: NewPodSpec) -> int:
    """Return the size of nodeSelector and required node affinity: terms, requirements, values."""
    terms = spec.required_terms
    return (
        len(spec.node_selector or ())
        + len(terms)
        + sum(
            1 + len(requirement.values or ())
            for term in terms
            for requirement in (*(term.match_expressions or ()), *(term.match_fields or ()))
        )
    )


def _cards_of(nodes: Iterable["Node"]) -> tuple[int, ...]:
    maxima: list[int] = []
    for node in nodes:
        sizes = sorted((card.memory or 0 for card in node.cards), reverse=True)
        maxima += [0] * (len(sizes) - len(maxima))
        maxima[: len(sizes)] = map(max, maxima, sizes)
    return tuple(maxima)
