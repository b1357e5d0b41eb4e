"""The needs of a pod on its node besides GPUs: CPU, memory, other resources and host ports."""

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal, NamedTuple

PORTS_MAX = 256
"""Maximum host ports per pod that are stored: a pod with more counts as using every port."""
OTHERS_MAX = 32
"""Maximum other resources per pod that are stored; usual pods have up to five."""
TOO_MANY_OTHERS = (("", 1),)
"""Stands for more: no node has a resource without a name, so that such a pod fits nowhere."""


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
    """Every other resource and its amount, rounded up and not 0, in the order of names: ephemeral
    storage [bytes], huge pages [bytes], and extended resources, except the GPUs that Linkwise
    accounts. Of a pod at most `OTHERS_MAX`; `TOO_MANY_OTHERS` where it has more."""

    def amount(self, resource: str) -> int:
        """Return the amount of one of the other resources."""
        return next((amount for name, amount in self.others if name == resource), 0)

    def added_to(self, amounts: Mapping[str, int], times: Literal[1, -1] = 1) -> Mapping[str, int]:
        """Return amounts by name with the other resources added, or taken away; none is 0."""
        if not self.others:
            return amounts
        changed = dict(amounts)
        for name, amount in self.others:
            changed[name] = changed.get(name, 0) + times * amount
        return {name: amount for name, amount in changed.items() if amount}

    @property
    def has_too_many_ports(self) -> bool:
        """The pod has more host ports than are stored."""
        return EVERY_PORT in self.ports

    @property
    def has_too_many_others(self) -> bool:
        """The pod requests more different resources than are stored."""
        return self.others == TOO_MANY_OTHERS


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
    others: dict[str, int] = {}
    for demand in demands:
        for name, amount in demand.others:
            others[name] = combine((others.get(name, 0), amount))
    return Demand(
        combine(demand.cpu for demand in demands),
        combine(demand.memory for demand in demands),
        frozenset().union(*(demand.ports for demand in demands)),
        tuple(sorted(others.items())),
    )
