"""CPU, memory and host ports of a pod."""

from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import islice
from math import ceil
from typing import NamedTuple

from linkwise.cluster.objects.container import Amount, Container
from linkwise.cluster.objects.pod import Pod
from linkwise.cluster.objects.quantity import SHORT, QuantityError, parse_quantity

PORTS_MAX = 256
"""Maximum host ports per pod that are stored: a pod with more counts as using every port."""
_ANY_ADDRESS = {"", "0.0.0.0", "::"}  # noqa: S104 - compared, never listened on


class HostPort(NamedTuple):
    """A port of the node itself; an empty address stands for all of the node's addresses."""

    ip: str
    protocol: str
    port: int


EVERY_PORT = HostPort("", "", 0)
"""Stands for all ports of a node; no container can ask for port 0."""


class PortsTaken:
    """Host ports in use, with one look-up per query.

    As in kube-scheduler's HostPortInfo, a port on all addresses conflicts with it on every address.
    """

    def __init__(self, ports: Iterable[HostPort] = ()) -> None:
        """Start with some ports. Cost: linear."""
        self._addresses: dict[tuple[str, int], set[str]] = {}
        self.add(ports)

    def add(self, ports: Iterable[HostPort]) -> None:
        """Add ports."""
        for ip, protocol, port in ports:
            self._addresses.setdefault((protocol, port), set()).add(ip)

    def conflict(self, ports: Collection[HostPort]) -> bool:
        """Return whether any of these ports conflicts with one in use."""
        taken = self._addresses
        if not taken or not ports:
            return False
        every = EVERY_PORT[1:]
        return every in taken or any(
            one == EVERY_PORT
            or (
                (addresses := taken.get((one.protocol, one.port))) is not None
                and (not one.ip or "" in addresses or one.ip in addresses)
            )
            for one in ports
        )


@dataclass(frozen=True, slots=True)
class Demand:
    """Resources of a pod besides GPUs."""

    cpu: int = 0
    """[millicores]"""
    memory: int = 0
    """[bytes]"""
    ports: frozenset[HostPort] = frozenset()
    """At most `PORTS_MAX`; `EVERY_PORT` alone where the pod has more."""
    others: tuple[tuple[str, int], ...] = ()
    """Every other resource and its amount, rounded up and not 0, by name: ephemeral storage
    [bytes], huge pages [bytes], and extended resources, except the GPUs that Linkwise accounts."""

    def amount(self, resource: str) -> int:
        """Return the amount of one of the other resources."""
        return next((amount for name, amount in self.others if name == resource), 0)

    @property
    def has_too_many_ports(self) -> bool:
        """The pod has more host ports than are stored."""
        return EVERY_PORT in self.ports


NO_DEMAND = Demand()


def total_demand(demands: Sequence[Demand]) -> Demand:
    """Return the sum of each resource, and every port."""
    return _combined(demands, sum)


def largest_demand(demands: Sequence[Demand]) -> Demand:
    """Return the largest amount of each resource that any has, and every port.

    Args:
        demands: At least one.
    """
    return _combined(demands, max)


def _combined(demands: Sequence[Demand], combine: Callable[[Iterable[int]], int]) -> Demand:
    # Nearly no pod has others, and the pods of a gang have the same.
    names = sorted({name for others in {d.others for d in demands} for name, _ in others})
    return Demand(
        combine(d.cpu for d in demands),
        combine(d.memory for d in demands),
        frozenset().union(*(d.ports for d in demands)),
        tuple((name, combine(d.amount(name) for d in demands)) for name in names),
    )


def demand_of(pod: Pod) -> Demand:
    """Return the demand of a pod, by the rule of the scheduler and the kubelet.

    The total by `pod_total` plus the overhead. A missing request defaults to the limit. An invalid
    amount counts as 0: no API server accepts such a pod.
    """
    return Demand(requested(pod, "cpu", 1000), requested(pod, "memory", 1), _bounded_ports(pod))


def requested(pod: Pod, resource: str, unit: int) -> int:
    """Return the amount of a resource that a pod requests, by the rule of `demand_of`.

    Args:
        pod: The pod.
        resource: Name of the resource.
        unit: Parts of one, such as 1000 for millicores; the amount is rounded up to whole parts.
    """
    apps = sum(_asked(container, resource, unit) for container in pod.spec.containers)
    inits = (
        (_asked(container, resource, unit), _is_sidecar(container))
        for container in pod.spec.init_containers or ()
    )
    overhead = _count((pod.spec.overhead or {}).get(resource, 0), unit)
    return pod_total(apps, inits) + overhead


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


def _asked(container: Container, resource: str, unit: int) -> int:
    limit = container.limits.get(resource, 0)
    return _count(container.requests.get(resource, limit), unit)


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
