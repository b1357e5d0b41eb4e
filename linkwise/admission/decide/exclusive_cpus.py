"""Warn of exclusive CPUs, which a kubelet chooses without regard to GPUs of Linkwise."""

from linkwise.cluster.finding import Code, Finding, Severity
from linkwise.cluster.nodes.capacity import Capacity
from linkwise.cluster.objects.container import NewContainer
from linkwise.cluster.objects.pod import NewPodSpec
from linkwise.cluster.objects.quantity import QuantityError, parse_quantity
from linkwise.cluster.requests.container_request import (
    all_containers,
    amount_path,
    indexed_containers,
)

_CPU = "cpu"


def cpu_findings(spec: NewPodSpec, capacity: Capacity) -> list[Finding]:
    """Return a warning about the first container with exclusive CPUs for each kind of kubelet.

    Only a snapshot of a cluster has the policies of kubelets.
    """
    if not capacity.numa_notes or not all(map(_is_guaranteed, all_containers(spec))):
        return []
    found = (found for found in indexed_containers(spec) if _has_exclusive_cpus(found[2]))
    init, index, container = next(found, (False, 0, None))
    if container is None:
        return []
    return [
        Finding(
            Code.EXCLUSIVE_CPUS,
            Severity.WARNING,
            amount_path(index, init, "limits", _CPU),
            container.limits[_CPU],
            f"the container has exclusive CPUs; {note}",
            "leave out the limit of CPUs, unless the container needs CPUs of its own",
        )
        for note in capacity.numa_notes
    ]


def _is_guaranteed(container: NewContainer) -> bool:
    """Return whether the limits of CPUs and memory are set, and equal to the requests."""
    limits, requests = container.limits, container.requests
    try:
        return all(
            parse_quantity(limits.get(name, 0))
            == parse_quantity(requests.get(name, limits.get(name, 0)))
            > 0
            for name in (_CPU, "memory")
        )
    except QuantityError:
        return False


def _has_exclusive_cpus(container: NewContainer) -> bool:
    return parse_quantity(container.limits[_CPU]).denominator == 1
