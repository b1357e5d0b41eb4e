"""Nodes with whole GPUs, compared with what a pod requires of its node."""

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from linkwise.cluster.objects.pod import NewPodSpec
from linkwise.cluster.objects.selector import node_matches

_MAX_MATCHED = 100
"""Terms, requirements and values of a pod's node affinity that are matched with each node."""
_MAX_MATCHES = 50_000
"""The same over all nodes."""


class WholeGPUs(NamedTuple):
    """A node with whole GPUs under NVIDIA's resource name."""

    name: str
    labels: Mapping[str, str]
    gpus: int
    """Its GPUs, healthy or not."""


def is_bounded(spec: NewPodSpec, nodes: int) -> bool:
    """Return whether a pod is compared with so many nodes.

    One with very many requirements or values is not, since each of them costs time for each node.
    """
    size = _size(spec)
    return size <= _MAX_MATCHED and size * nodes <= _MAX_MATCHES


def fits_any(nodes: Sequence[WholeGPUs], spec: NewPodSpec, gpus: int, *, is_matched: bool) -> bool:
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
