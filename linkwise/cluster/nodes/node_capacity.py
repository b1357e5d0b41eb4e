"""Compute the capacity of the known nodes."""

from collections import Counter
from collections.abc import Iterable
from typing import TYPE_CHECKING

from linkwise.cluster.cel.values import DeviceFacts
from linkwise.cluster.keys import (
    GPU_MEM,
    GPU_WHOLE,
    NVIDIA_GPU,
    NVIDIA_GPU_SHARED,
    RESOURCE_NAME,
    RESOURCES,
)
from linkwise.cluster.mode import NodeMode, is_watched
from linkwise.cluster.nodes.capacity import Capacity
from linkwise.cluster.nodes.gpu_kinds import kinds_of
from linkwise.cluster.nodes.whole_gpus import WholeGPUs

if TYPE_CHECKING:
    # The import costs 20 ms, which a check without a cluster should not pay.
    from linkwise.cluster.nodes.node import Node


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


def _cards_of(nodes: Iterable["Node"]) -> tuple[int, ...]:
    maxima: list[int] = []
    for node in nodes:
        sizes = sorted((card.memory or 0 for card in node.cards), reverse=True)
        maxima += [0] * (len(sizes) - len(maxima))
        maxima[: len(sizes)] = map(max, maxima, sizes)
    return tuple(maxima)
