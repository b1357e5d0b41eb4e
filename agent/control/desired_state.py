"""The resources that a node should offer now, and the problems to report. Pure."""

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from enum import StrEnum

from agent.driver.reading import DriverReading
from agent.kubelet.container_devices import ContainerDevices
from agent.plugin.devices import (
    SLOT_PREFIX,
    Offer,
    holders,
    offers,
    unhealthy_slots,
    unusable_gpus,
)
from linkwise.cluster.keys import (
    GPU_CORE,
    GPU_MEM,
    GPU_WHOLE,
    MODE,
    MODE_LABELS,
    NVIDIA_GPU,
    NVIDIA_GPU_SHARED,
    RESOURCE_LABELS,
    RESOURCE_NAME,
    RESOURCES,
)
from linkwise.cluster.mode import NodeMode, read_mode
from linkwise.topology.machine import Machine

ContainerKey = tuple[str, str, str]
"""Namespace, pod and container."""
UNUSED = "none"
"""In place of a mode that is in use."""


class ProblemReason(StrEnum):
    """Reasons of Events about the node."""

    GPU_UNHEALTHY = "GPUUnhealthy"
    MODE_NOT_SWITCHED = "ModeNotSwitched"
    NOTHING_OFFERED = "NoGPUsOffered"
    NOT_LIMITED = "SharesNotLimited"


@dataclass(frozen=True, slots=True)
class Problem:
    """A problem of the node, for an Event, which many users can read: it names no pods."""

    reason: ProblemReason
    message: str


@dataclass(frozen=True, slots=True)
class Observation:
    """Everything that decides what a node offers."""

    labels: Mapping[str, str]
    """Of the Node."""
    reading: DriverReading
    machine: Machine
    """The same GPUs with their links."""
    allocated: tuple[ContainerDevices, ...]
    """Devices of all containers, as the kubelet lists them."""
    unlisted: tuple[ContainerDevices, ...]
    """Devices of containers by other books; only the UID of the pod is known if there is no
    namespace. After a restart of the kubelet, it lists nothing for a moment."""
    bound: Mapping[ContainerKey, Collection[int]]
    """GPU indices of the containers that were bound."""
    mode: NodeMode | None
    """The mode in effect before; None at the start."""
    no_cdi: str | None
    """Why the GPUs of this node cannot be given to containers; None: they can."""


@dataclass(frozen=True, slots=True)
class DesiredState:
    """What the node offers."""

    mode: NodeMode
    """The mode in effect, which stays while a container has devices of it."""
    mode_in_use: str
    """The same while a container has devices of it, else `UNUSED`."""
    slots: Mapping[Offer, frozenset[str]]
    """Unhealthy slots of each resource."""
    problems: tuple[Problem, ...]


def desired_state(seen: Observation) -> DesiredState:
    """Return what a node should offer."""
    unusable = unusable_gpus(seen.reading.gpus)
    in_use = _in_use(seen)
    labels, problems = _labels_in_effect(seen, in_use)
    offered = _offered(seen, labels, problems)
    slots = {
        offer: unhealthy_slots(offer, unusable, holders(offer.resource, seen.allocated, seen.bound))
        for offer in offered
    }
    for gpu in seen.reading.gpus:
        if gpu.fault:
            message = f"GPU {gpu.i} ({gpu.uuid}): {gpu.fault}"
            problems.append(Problem(ProblemReason.GPU_UNHEALTHY, message))
    mode = read_mode(labels)[0]
    return DesiredState(mode, mode.value if in_use else UNUSED, slots, tuple(problems))


def _in_use(seen: Observation) -> list[ContainerDevices]:
    """Return the devices that containers have of the agent's resources, by all books."""
    parts = (*seen.allocated, *seen.unlisted)
    return [part for part in parts if part.resource in RESOURCES and _has_slots(part)]


def _labels_in_effect(
    seen: Observation, in_use: Collection[ContainerDevices]
) -> tuple[Mapping[str, str], list[Problem]]:
    """Return the labels of the node, with the mode before where it is still in use."""
    if not in_use:
        return seen.labels, []
    wanted = offers(seen.labels, seen.machine, seen.reading.gpus)
    resources = {part.resource for part in in_use}
    kept = _labels_of(seen, resources)
    if resources <= {offer.resource for offer in wanted.offers} and (
        seen.mode is None or read_mode(seen.labels)[0] is seen.mode
    ):
        return seen.labels, []
    message = (
        f"mode {read_mode(seen.labels)[0]} waits: {', '.join(sorted(resources))} of mode "
        f"{read_mode(kept)[0]} is in use by pods of this node; end these pods, or set the label "
        f"{MODE} back: a kubelet that restarts ends pods that require the mode before"
    )
    return kept, [Problem(ProblemReason.MODE_NOT_SWITCHED, message)]


def _offered(
    seen: Observation, labels: Mapping[str, str], problems: list[Problem]
) -> tuple[Offer, ...]:
    """Return the resources that are offered; where none is, append the reason."""
    wanted = offers(labels, seen.machine, seen.reading.gpus)
    resources = {offer.resource for offer in wanted.offers}
    others = [
        part for part in seen.allocated if part.resource in resources and not _has_slots(part)
    ]
    reason = wanted.reason
    if wanted.offers and seen.no_cdi:
        reason = seen.no_cdi
    elif others:
        reason = (
            "another device plugin gave devices to pods of this node: end these pods, and keep "
            "that plugin off this node"
        )
    if reason is None:
        return wanted.offers
    problems.append(Problem(ProblemReason.NOTHING_OFFERED, reason))
    return ()


def _has_slots(part: ContainerDevices) -> bool:
    return any(device.startswith(SLOT_PREFIX) for device in part.device_ids)


def _labels_of(seen: Observation, resources: Collection[str]) -> Mapping[str, str]:
    """Return labels with the mode before, or after a restart one that offers what is in use."""
    if seen.mode is not None and seen.mode.is_ours:
        mode = seen.mode
    elif GPU_MEM in resources:
        mode = NodeMode.CORE_MEM if GPU_CORE in resources else NodeMode.SHARE
    elif NVIDIA_GPU_SHARED in resources:
        mode = NodeMode.TIMESLICE
    else:
        mode = NodeMode.TOPOLOGY
    resource = NVIDIA_GPU if NVIDIA_GPU in resources else GPU_WHOLE
    value = next(value for value, name in RESOURCE_LABELS.items() if name == resource)
    return {**seen.labels, **dict.fromkeys(MODE_LABELS, mode.value), RESOURCE_NAME: value}
