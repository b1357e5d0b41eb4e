"""What a pod takes of a node besides GPUs: CPU, memory and host ports."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import lru_cache
from math import ceil
from typing import NamedTuple

from cluster.pod import Amount, Container, Pod
from cluster.quantity import SHORT, QuantityError, parse_quantity

_ANY_ADDRESS = {"", "0.0.0.0", "::"}  # noqa: S104 - compared, never listened on


class HostPort(NamedTuple):
    """A port of the node itself; an empty address stands for all of the node's addresses."""

    ip: str
    protocol: str
    port: int

    def clashes(self, other: "HostPort") -> bool:
        """Say whether both cannot be open at once."""
        if (self.protocol, self.port) != (other.protocol, other.port):
            return False
        return self.ip == other.ip or "" in {self.ip, other.ip}


@dataclass(frozen=True, slots=True)
class Demand:
    """What a pod takes of its node besides GPUs."""

    cpu: int = 0
    """[millicores]"""
    memory: int = 0
    """[bytes]"""
    ports: frozenset[HostPort] = frozenset()


def demand_of(pod: Pod) -> Demand:
    """Return a pod's demand, by the rule that the scheduler and the kubelet count with.

    The total by `pod_total`, and the pod's overhead, is asked. A missing request is its limit. An
    amount that is no quantity counts as none: no API server takes such a pod.
    """
    return Demand(_total(pod, "cpu", 1000), _total(pod, "memory", 1), frozenset(_ports(pod)))


def pod_total(apps: int, inits: Iterable[tuple[int, bool]]) -> int:
    """Return how much of a resource a pod takes.

    Init containers run one after the other, each beside the sidecars started before it; then the
    app containers run beside all sidecars. The larger of both counts.

    Args:
        apps: What all app containers take together.
        inits: What each init container takes, in their order, and whether it is a sidecar.

    Source: Kubernetes documentation, sidecar containers, "Resource sharing within containers".
    """
    sidecars = largest_init = 0
    for amount, is_sidecar in inits:
        if is_sidecar:
            sidecars += amount
        else:
            largest_init = max(largest_init, sidecars + amount)
    return max(sidecars + apps, largest_init)


def _ports(pod: Pod) -> Iterator[HostPort]:
    """Yield the host ports; with the host's network every port is one, as the API server fills in.

    The port numbers of init containers count only where these keep running.
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


def _total(pod: Pod, resource: str, unit: int) -> int:
    apps = sum(_asked(container, resource, unit) for container in pod.spec.containers)
    inits = (
        (_asked(container, resource, unit), _is_sidecar(container))
        for container in pod.spec.init_containers or ()
    )
    overhead = _count((pod.spec.overhead or {}).get(resource, 0), unit)
    return pod_total(apps, inits) + overhead


def _asked(container: Container, resource: str, unit: int) -> int:
    limit = container.limits.get(resource, 0)
    return _count(container.requests.get(resource, limit), unit)


def _count(amount: Amount, unit: int) -> int:
    """Return an amount in whole units, rounded up."""
    # Few amounts are different in a cluster, but nobody but their authors bounds their length.
    is_long = isinstance(amount, str) and len(amount) > SHORT
    return _counted.__wrapped__(amount, unit) if is_long else _counted(amount, unit)


@lru_cache(maxsize=4096)
def _counted(amount: Amount, unit: int) -> int:
    try:
        return max(0, ceil(parse_quantity(amount) * unit))
    except QuantityError:
        return 0
