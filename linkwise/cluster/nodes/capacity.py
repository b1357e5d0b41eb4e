"""Maximum capacity of the nodes: admission reports requests that no node can ever satisfy."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from linkwise.cluster.cel.values import DeviceFacts
from linkwise.cluster.keys import (
    CLAIMS,
    GPU_CORE,
    GPU_MEM,
    GPU_WHOLE,
    MODE,
    NVIDIA_GPU,
    NVIDIA_GPU_SHARED,
)
from linkwise.cluster.mode import NodeMode
from linkwise.cluster.nodes.gpu_kinds import may_select
from linkwise.cluster.nodes.whole_gpus import WholeGPUs, fits_any, is_bounded
from linkwise.cluster.objects.pod import NewPodSpec
from linkwise.cluster.requests.request import Family, Request


@dataclass(frozen=True, slots=True)
class Excess:
    """A request that no node can satisfy, even if the cluster is empty."""

    requested: str
    """The request, such as `20 GiB of one card`."""
    offered: str
    """The maximum on any node, such as `at most 15 GiB of one card`."""


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
        return fits_any(self.exact, spec, gpus, is_matched=is_bounded(spec, len(self.exact)))

    def needs_claim(self, spec: NewPodSpec, gpus: int) -> bool:
        """Return whether a pod may be bound to a claims node, and to no exact or counted one.

        Args:
            spec: Spec of the pod.
            gpus: Number of GPUs that the pod asks for.
        """
        if not self.claims:
            return False
        others = (*self.exact, *self.counted)
        is_matched = is_bounded(spec, len(self.claims) + len(others))
        return fits_any(self.claims, spec, gpus, is_matched=is_matched) and not fits_any(
            others, spec, gpus, is_matched=is_matched
        )

    def has_claims_node(self, spec: NewPodSpec, gpus: int) -> bool:
        """Return whether a pod may be bound to a claims node with as many GPUs.

        Args:
            spec: Spec of the pod.
            gpus: Number of GPUs that the pod asks for.
        """
        return fits_any(self.claims, spec, gpus, is_matched=is_bounded(spec, len(self.claims)))

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
            return f"label the nodes that offer {resource} with {MODE}={mode}"
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
            return f"the nodes that offer {resource} have no label {MODE}"
        return f"no node offers {wanted or resource}"


def _node_mode(request: Request) -> NodeMode | None:
    """Return the mode that nodes need for a request; None for resources under NVIDIA's names."""
    if request.family is Family.WHOLE:
        return None if request.resource == NVIDIA_GPU else NodeMode.TOPOLOGY
    if request.family is Family.SHARE:
        return NodeMode.CORE_MEM if request.core else NodeMode.SHARE
    return None
