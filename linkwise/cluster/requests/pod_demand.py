"""The demand of a pod, by the rule of kube-scheduler.

Source: Kubernetes, `PodRequests` of `component-helpers/resource` (1.36).
"""

from collections.abc import Iterable, Iterator, Mapping
from functools import lru_cache
from itertools import islice
from math import ceil

from linkwise.cluster.keys import RESOURCES
from linkwise.cluster.objects.container import Amount, Amounts, Container
from linkwise.cluster.objects.pod import Pod
from linkwise.cluster.objects.pod_status import ContainerStatus
from linkwise.cluster.objects.quantity import SHORT, QuantityError, parse_quantity
from linkwise.cluster.requests.demand import (
    EVERY_PORT,
    OTHERS_MAX,
    PORTS_MAX,
    TOO_MANY_OTHERS,
    Demand,
    HostPort,
)

_OWN = frozenset({"cpu", "memory", *RESOURCES})
"""Resources that a demand has in fields of their own, and GPUs, which a holding has."""
_ANY_ADDRESS = {"", "0.0.0.0", "::"}  # noqa: S104 - compared, never listened on


def demand_of(pod: Pod) -> Demand:
    """Return the demand of a pod, by the rule of the scheduler and the kubelet.

    The total by `pod_total`, or what the pod itself requests instead, plus the overhead. A missing
    request defaults to the limit. While a pod is resized in place, the larger of what it requests
    and what it has counts. An invalid amount counts as 0: no API server accepts such a pod.
    """
    requests = _Requests(pod)
    return Demand(
        requests.amount("cpu", 1000),
        requests.amount("memory", 1),
        _bounded_ports(pod),
        _others(requests),
    )


def requested(pod: Pod, resource: str, unit: int) -> int:
    """Return the amount of a resource that a pod requests, by the rule of `demand_of`.

    Args:
        pod: The pod.
        resource: Name of the resource.
        unit: Parts of one, such as 1000 for millicores; the amount is rounded up to whole parts.
    """
    return _Requests(pod).amount(resource, unit)


def resource_names(pod: Pod) -> set[str]:
    """Return the names of all resources of which a pod requests some, or limits its use."""
    spec, own = pod.spec, pod.spec.resources
    parts = [spec.overhead, own and own.limits, own and own.requests]
    for container in (*spec.containers, *(spec.init_containers or ())):
        parts += (container.limits, container.requests)
    # Amounts of 0, of which a user can write many, would cost a look at each container later.
    return {name for part in parts for name, n in (part or {}).items() if _count(n, 1)}


def pod_total(apps: int, inits: Iterable[tuple[int, bool]]) -> int:
    """Return the total request of a pod for one resource.

    Init containers run one after the other, each beside the sidecars started before it; then the
    app containers run beside all sidecars. The larger of both counts.

    Args:
        apps: Total of all app containers.
        inits: Amount of each init container in order, and whether it is a sidecar.

    Source: Kubernetes documentation, sidecar containers, "Resource sharing within containers".
    """
    sidecars = largest_init = 0
    for amount, is_sidecar in inits:
        if is_sidecar:
            sidecars += amount
        else:
            largest_init = max(largest_init, sidecars + amount)
    return max(sidecars + apps, largest_init)


class _Requests:
    """What a pod requests, with the amounts that its kubelet reports."""

    def __init__(self, pod: Pod) -> None:
        self.pod = pod
        status = pod.status
        reported = (*(status.container_statuses or ()), *(status.init_container_statuses or ()))
        self._statuses: Mapping[str, ContainerStatus] = {
            one.name: one for one in reported if one.resources
        }

    def amount(self, resource: str, unit: int) -> int:
        """Return the amount of a resource, as `requested` does."""
        spec = self.pod.spec
        overhead = _count((spec.overhead or {}).get(resource, 0), unit)
        inits = (
            (self._of_container(container, resource, unit), _is_sidecar(container))
            for container in spec.init_containers or ()
        )
        apps = sum(self._of_container(each, resource, unit) for each in spec.containers)
        return self._of_pod(pod_total(apps, inits), resource, unit) + overhead

    def _of_container(self, container: Container, resource: str, unit: int) -> int:
        limit = container.limits.get(resource, 0)
        amount = _count(container.requests.get(resource, limit), unit)
        status = self._statuses.get(container.name)
        if status is None or not status.resources:
            return amount
        return self._effective(
            amount, resource, unit, status.resources.requests, status.allocated_resources
        )

    def _of_pod(self, total: int, resource: str, unit: int) -> int:
        """Return what the pod itself requests, or the total of its containers."""
        own = self.pod.spec.resources
        if own is None or not (resource in {"cpu", "memory"} or resource.startswith("hugepages-")):
            return total
        requests, limits = own.requests or {}, own.limits or {}
        if resource not in requests:
            # As the API server would have it: it writes the request into each pod.
            return total or _count(limits.get(resource, 0), unit)
        amount, status = _count(requests[resource], unit), self.pod.status
        if status.resources is None:
            return amount
        return self._effective(
            amount, resource, unit, status.resources.requests, status.allocated_resources
        )

    def _effective(self, amount: int, resource: str, unit: int, *has: Amounts | None) -> int:
        """Return the larger of a requested amount and those that the kubelet reports."""
        reported = max(_count((amounts or {}).get(resource, 0), unit) for amounts in has)
        return reported if self.pod.status.is_resize_infeasible else max(amount, reported)


def _others(requests: _Requests) -> tuple[tuple[str, int], ...]:
    names = resource_names(requests.pod) - _OWN
    if not names:
        return ()
    amounts = ((name, requests.amount(name, 1)) for name in sorted(names))
    some = tuple(islice(((name, n) for name, n in amounts if n), OTHERS_MAX + 1))
    return _shared(some) if len(some) <= OTHERS_MAX else TOO_MANY_OTHERS


@lru_cache(maxsize=256)
def _shared(others: tuple[tuple[str, int], ...]) -> tuple[tuple[str, int], ...]:
    """Return one object for all pods that request the same, which may be many."""
    return others


def _bounded_ports(pod: Pod) -> frozenset[HostPort]:
    """Return the host ports, or `EVERY_PORT`. Duplicates count each time."""
    ports = list(islice(_ports(pod), PORTS_MAX + 1))
    return frozenset(ports if len(ports) <= PORTS_MAX else [EVERY_PORT])


def _ports(pod: Pod) -> Iterator[HostPort]:
    """Yield the host ports; with hostNetwork every container port is one, as in API defaulting.

    Of init containers only sidecars count.
    """
    sidecars = (one for one in pod.spec.init_containers or () if _is_sidecar(one))
    for container in (*pod.spec.containers, *sidecars):
        for port in container.ports or ():
            number = port.host_port or (port.container_port if pod.spec.host_network else 0)
            if number:
                address = "" if port.host_ip in _ANY_ADDRESS else port.host_ip
                yield HostPort(address, port.protocol, number)


def _is_sidecar(container: Container) -> bool:
    return container.restart_policy == "Always"


def _count(amount: Amount, unit: int) -> int:
    """Return an amount in whole units, rounded up."""
    # A cluster has few different amounts, but a user can write an amount of any length.
    is_long = isinstance(amount, str) and len(amount) > SHORT
    return _counted.__wrapped__(amount, unit) if is_long else _counted(amount, unit)


@lru_cache(maxsize=4096)
def _counted(amount: Amount, unit: int) -> int:
    try:
        return max(0, ceil(parse_quantity(amount) * unit))
    except QuantityError:
        return 0
