"""The GPUs of each namespace, now and over the time that is kept. Pure."""

from collections.abc import Iterable, Mapping

from msgspec import Struct

from linkwise.views.analysis.fleet import NamespaceUsage


class NamespaceRow(Struct, frozen=True):
    """The GPUs of one namespace."""

    namespace: str
    pods: int
    gpus: int
    memory: int
    """[GiB]"""
    replicas: int
    nodes: int
    hours: float
    """GPU-hours in the time that is kept."""


def namespace_rows(
    usage: Iterable[NamespaceUsage], gpu_seconds: Mapping[str, float]
) -> list[NamespaceRow]:
    """Return the GPUs of namespaces that hold some, or held some before.

    Args:
        usage: What they hold.
        gpu_seconds: The GPU time of each namespace [s].
    """
    rows = [
        NamespaceRow(
            each.namespace,
            each.pods,
            each.gpus,
            each.memory,
            each.replicas,
            len(each.nodes),
            gpu_seconds.get(each.namespace, 0) / 3600,
        )
        for each in usage
    ]
    present = {row.namespace for row in rows}
    past = (
        NamespaceRow(namespace, 0, 0, 0, 0, 0, seconds / 3600)
        for namespace, seconds in sorted(gpu_seconds.items())
        if namespace not in present and seconds
    )
    return [*rows, *past]
