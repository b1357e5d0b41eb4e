"""The resources that a node offers, as slots, and the slots that are unhealthy.

A slot is a device id of the kubelet. It names no GPU: containers are bound to GPUs by their record.
"""

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain, zip_longest

from agent.driver.reading import GPU
from agent.kubelet.container_devices import ContainerDevices
from linkwise.cluster.keys import (
    DRA_GPU_DRIVER,
    GFD_REPLICAS,
    GPU_CORE,
    GPU_COUNT,
    GPU_MEM,
    NVIDIA_GPU_SHARED,
    RESOURCE_LABELS,
    RESOURCE_NAME,
)
from linkwise.cluster.mode import NodeMode, counting_resource, is_watched, read_mode
from linkwise.topology.machine import Machine

SLOT_PREFIX = "slot-"
"""Device ids of other plugins begin otherwise."""
_CORE_OF_GPU = 100
"""Compute of a GPU [%]."""
_MAX_REPLICAS = 1000
"""The kubelet reads lists of up to 4 MiB: 150,000 slots."""


@dataclass(frozen=True, slots=True)
class Offer:
    """One resource of this node."""

    resource: str
    slots_per_gpu: tuple[int, ...]
    """By GPU index: how many slots it adds."""
    binds: bool = True
    """Its containers are bound to GPUs before they start."""

    @property
    def slots(self) -> tuple[str, ...]:
        """Device ids; after a restart they are the same."""
        return tuple(f"{SLOT_PREFIX}{number}" for number in range(sum(self.slots_per_gpu)))


@dataclass(frozen=True, slots=True)
class NodeOffer:
    """All resources of this node."""

    offers: tuple[Offer, ...]
    reason: str | None = None
    """Why nothing is offered; None: something is, or the agent is not to offer anything."""


@dataclass(frozen=True, slots=True)
class Holder:
    """One container that has slots of a resource."""

    slots: frozenset[str]
    gpus: frozenset[int]
    """Indices of the GPUs that it is bound to; empty before it is bound."""


def unusable_gpus(gpus: Iterable[GPU]) -> dict[int, str]:
    """Return the GPUs that no container may get, by index, with reasons."""
    return {gpu.i: problem for gpu in gpus if (problem := gpu.problem)}


def offers(labels: Mapping[str, str], machine: Machine, gpus: Sequence[GPU]) -> NodeOffer:
    """Return the resources of a node, by its mode. Unusable GPUs count, as unhealthy slots.

    Args:
        labels: Labels of the node.
        machine: Its GPUs.
        gpus: The same GPUs, as the driver reports them.
    """
    mode, problem = read_mode(labels)
    if not mode.is_ours:
        return NodeOffer((), problem)
    if gpus and all(gpu.mig for gpu in gpus):
        return NodeOffer((), "MIG mode is enabled on all GPUs: disable it, or set the mode to mig")
    if mode is NodeMode.TOPOLOGY:
        return _whole(labels, machine)
    if mode is NodeMode.TIMESLICE:
        return _replicas(labels.get(GFD_REPLICAS), machine)
    return _shares(mode, machine)


def _whole(labels: Mapping[str, str], machine: Machine) -> NodeOffer:
    if is_watched(labels):
        return NodeOffer(())
    value = labels.get(RESOURCE_NAME)
    if value not in {None, *RESOURCE_LABELS}:
        known = " or ".join((*RESOURCE_LABELS, DRA_GPU_DRIVER))
        return NodeOffer((), f"label {RESOURCE_NAME}={value}: write {known}")
    resource = counting_resource(NodeMode.TOPOLOGY, labels)
    return NodeOffer((Offer(resource, (1,) * machine.n),))


def _replicas(label: str | None, machine: Machine) -> NodeOffer:
    text = label or ""
    number = int(text) if text.isascii() and text.isdigit() and len(text) <= 4 else 0
    if not 1 <= number <= _MAX_REPLICAS:
        problem = f"label {GFD_REPLICAS}={label}" if label else f"no label {GFD_REPLICAS}"
        return NodeOffer(
            (), f"{problem}: write the replicas of each GPU, from 1 to {_MAX_REPLICAS}"
        )
    return NodeOffer((Offer(NVIDIA_GPU_SHARED, (number,) * machine.n),))


def _shares(mode: NodeMode, machine: Machine) -> NodeOffer:
    if not machine.memory:
        return NodeOffer((), "the memory of the GPUs is unknown, so it cannot be shared")
    memory = Offer(GPU_MEM, machine.memory)
    count = Offer(GPU_COUNT, (1,) * machine.n, binds=False)
    if not mode.shares_compute:
        return NodeOffer((memory, count))
    return NodeOffer((memory, count, Offer(GPU_CORE, (_CORE_OF_GPU,) * machine.n, binds=False)))


def holders(
    resource: str,
    allocated: Iterable[ContainerDevices],
    gpus: Mapping[tuple[str, str, str], Collection[int]],
) -> tuple[Holder, ...]:
    """Return the containers that have slots of a resource.

    Args:
        resource: Name of the resource.
        allocated: Devices of all containers, as the kubelet lists them.
        gpus: Indices of the GPUs of bound containers, by namespace, pod and container.
    """
    return tuple(
        Holder(part.device_ids, frozenset(gpus.get((part.namespace, part.pod, part.container), ())))
        for part in allocated
        if part.resource == resource
    )


def unhealthy_slots(
    offer: Offer, unusable: Collection[int], containers: Iterable[Holder]
) -> frozenset[str]:
    """Return the unhealthy slots: as many as the unusable GPUs add.

    First come slots of containers that are bound to these GPUs, in turn, then free slots, then
    those of containers that are not bound yet. A slot of a container on usable GPUs is never
    unhealthy, since the kubelet refuses such a container when it starts again.

    Args:
        offer: The resource.
        unusable: Indices of the GPUs.
        containers: The containers that have its slots.
    """
    number = sum(count for i, count in enumerate(offer.slots_per_gpu) if i in unusable)
    if not number:
        return frozenset()
    order = {slot: position for position, slot in enumerate(offer.slots)}
    affected: list[list[str]] = []
    unbound: set[str] = set()
    usable: set[str] = set()
    for container in containers:
        if not container.gpus:
            unbound |= container.slots
        elif container.gpus.isdisjoint(unusable):
            usable |= container.slots
        else:
            affected.append(sorted(container.slots & order.keys(), key=order.__getitem__))
    in_turn = [slot for turn in zip_longest(*affected) for slot in turn if slot is not None]
    free = order.keys() - usable - unbound - set(in_turn)
    candidates = dict.fromkeys(
        slot
        for slot in chain(
            in_turn,
            sorted(free, key=order.__getitem__, reverse=True),
            sorted(unbound & order.keys(), key=order.__getitem__),
        )
        if slot not in usable
    )
    return frozenset(list(candidates)[:number])
