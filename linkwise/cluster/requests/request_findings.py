"""Findings about the GPU request of a whole pod."""

from collections.abc import Iterable, Iterator

from linkwise.cluster.finding import Code, Finding, Severity, quoted
from linkwise.cluster.keys import GPU_COUNT, GPU_MEM, HOSTNAME
from linkwise.cluster.requests.container_request import ContainerResources

CARDS_FIELD = f"metadata.labels[{GPU_COUNT}]"


def family_findings(families: Iterable[tuple[str, ContainerResources]]) -> Iterator[Finding]:
    """Yield a finding at the first use of each additional family.

    Args:
        families: The first resource of each family and its container, in order of appearance.
    """
    (first, resources), *others = families
    first_field = resources.field(first)
    for other, resources in others:
        yield Finding(
            Code.TWO_FAMILIES,
            Severity.ERROR,
            resources.field(other),
            resources.named[other],
            f"a pod asks for one kind of GPU resource, and this one names {first} ({first_field}) "
            f"and {other}",
            f"keep either {first} or {other}, in all containers and init containers",
        )


def label_finding(label: str) -> Finding:
    """Return the finding about a label that is no number of cards."""
    return Finding(
        Code.COUNT_LABEL,
        Severity.ERROR,
        CARDS_FIELD,
        label,
        f"{quoted(label)} is no number of cards: the label is a whole number of at least 1",
        'write a number such as "2", or remove the label to use one card',
    )


def unused_label_finding(label: str, resource: str) -> Finding:
    """Return the finding about a number of cards beside a resource that is no share."""
    return Finding(
        Code.COUNT_UNUSED,
        Severity.WARNING,
        CARDS_FIELD,
        label,
        f"the label spreads a share ({GPU_MEM}) over cards and has no effect on {resource}",
        f"remove the label, or ask for {GPU_MEM}",
    )


def node_name_finding(node_name: str) -> Finding:
    """Return the finding about a pod that names its node."""
    return Finding(
        Code.NODE_NAME,
        Severity.ERROR,
        "spec.nodeName",
        node_name,
        "a pod with a nodeName bypasses the scheduler, so its GPUs would not be chosen",
        f"remove nodeName; a nodeSelector {HOSTNAME}: {node_name} asks for the same node",
    )
