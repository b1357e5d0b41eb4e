"""Count the GPUs that namespaces hold, whole or in part, for chargeback."""

from collections.abc import Iterable, Iterator
from typing import Literal, NamedTuple, TypeAlias

from linkwise.cluster.account.node_ledger import NodeLedger
from linkwise.cluster.allocations.gpus import Counted, GPUs, GPUShare
from linkwise.cluster.keys import GPU_MEM, NVIDIA_GPU_SHARED
from linkwise.cluster.nodes.node import Node
from linkwise.cluster.requests.amounts import CORE_MAX

Share: TypeAlias = Literal["whole", "replica", "memory", "compute"]
"""What a pod has of a GPU: all, a turn in time, some memory, or some memory and compute."""


class GPUClass(NamedTuple):
    """GPUs that are charged alike."""

    namespace: str
    resource: str
    """The resource by which pods request them."""
    share: Share


def gpu_amounts(ledgers: Iterable[NodeLedger]) -> dict[GPUClass, float]:
    """Return how many GPUs the pods of each namespace hold; a share counts as its part of a GPU.

    Cost: linear in the number of pods.
    """
    amounts: dict[GPUClass, float] = {}
    for ledger in ledgers:
        for held in ledger.holdings.values():
            namespace = held.pod.partition("/")[0]
            for resource, share, amount in _parts(ledger, held.gpus):
                key = GPUClass(namespace, resource, share)
                amounts[key] = amounts.get(key, 0) + amount
    return amounts


def _parts(ledger: NodeLedger, gpus: GPUs) -> Iterator[tuple[str, Share, float]]:
    node = ledger.node
    if isinstance(gpus, Counted):
        # A pod that names its node itself may request any number.
        number = min(gpus.number, max(len(node.cards), node.resources.get(gpus.resource, 0)))
        if gpus.resource == NVIDIA_GPU_SHARED:
            replicas = node.resources.get(NVIDIA_GPU_SHARED, 0)
            part = min(1.0, len(node.cards) / replicas) if node.cards and replicas else 1.0
            yield gpus.resource, "replica", number * part
        else:
            yield gpus.resource, "whole", number
    for share in gpus.shares:
        yield _part(node, share)


def _part(node: Node, share: GPUShare) -> tuple[str, Share, float]:
    if share.mem is None:
        if node.replicas:
            return node.gpu_resource, "replica", 1 / node.replicas
        return node.gpu_resource, "whole", 1
    memory = node.cards[share.i].memory
    part = min(1.0, share.mem / memory) if memory else 1.0
    if share.core:
        # A pod that uses little memory and most of the compute leaves little for others.
        return GPU_MEM, "compute", max(part, share.core / CORE_MAX)
    return GPU_MEM, "memory", part
