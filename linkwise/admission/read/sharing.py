"""GPUs that NVIDIA's device plugin shares: resource names, replicas and findings.

The nodes of a pod may belong to several groups of the policy's `sharing`, restricted by its
nodeSelector. Properties that all of them have are handled here; the scheduler handles the rest.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import TypeAlias

import msgspec

from linkwise.admission.operations import Operation, add, remove
from linkwise.cluster.finding import Code, Finding, Severity
from linkwise.cluster.keys import GPU_MEM, NVIDIA_GPU, NVIDIA_GPU_SHARED
from linkwise.cluster.nodes.capacity import Capacity
from linkwise.cluster.objects.container import Amounts, NewContainer
from linkwise.cluster.objects.pod import NewPod
from linkwise.cluster.pointer import escape
from linkwise.cluster.requests.container_request import (
    all_containers,
    container_pointer,
    indexed_containers,
)
from linkwise.cluster.requests.request import Request
from linkwise.policy.sharing import Shared, SharingGroup, shared_by

NodeSharing: TypeAlias = tuple[Shared | None, ...]
"""Distinct ways in which the nodes of a pod share GPUs; None: not shared."""

_RULE = "sharing rename"


def sharing_on_nodes(
    pod: NewPod, groups: tuple[SharingGroup, ...], capacity: Capacity
) -> NodeSharing:
    """Return how the possible nodes of a pod share `nvidia.com/gpu`.

    A node belongs to the first group that matches. Where no nodes are known, all label sets of the
    groups are possible.
    """
    selected = pod.spec.node_selector or {}
    if capacity.by_nvidias_names:
        return _sharing_on_known_nodes(capacity, selected, groups)
    sharing: list[Shared | None] = []
    for group in groups:
        labels = group.node_labels
        if any(selected.get(key, value) != value for key, value in labels.items()):
            continue
        sharing.append(_shared_gpu(group))
        if labels.items() <= selected.items():
            return tuple(sharing)
    return (*sharing, None)


def _sharing_on_known_nodes(
    capacity: Capacity, selected: Mapping[str, str], groups: tuple[SharingGroup, ...]
) -> NodeSharing:
    """Return how the nodes that a nodeSelector matches share GPUs."""
    keys = frozenset(key for group in groups for key in group.node_labels)
    relevant = {key: value for key, value in selected.items() if key in keys}
    sharing: dict[Shared | None, None] = {}
    for labels in capacity.label_sets(keys):
        if relevant.items() <= labels.items():
            matching = (group for group in groups if group.node_labels.items() <= labels.items())
            first = next(matching, None)
            sharing[_shared_gpu(first) if first else None] = None
    return tuple(sharing)


def _shared_gpu(group: SharingGroup) -> Shared | None:
    return next((shared for shared in shared_by(group) if shared.device == NVIDIA_GPU), None)


def offering(sharing: NodeSharing, request: Request) -> NodeSharing:
    """Return the ways of sharing under the requested resource name."""
    return tuple(shared for shared in sharing if _resource(shared) == request.resource)


def replicas(sharing: NodeSharing) -> int:
    """Return the replicas of each GPU; 0 where nodes differ, or do not share."""
    numbers = {shared.replicas if shared else 0 for shared in sharing}
    return numbers.pop() if len(numbers) == 1 else 0


def sharing_findings(sharing: NodeSharing, request: Request) -> Iterator[Finding]:
    """Yield findings about a request for shared GPUs.

    Args:
        sharing: The ways of sharing under the requested resource name.
        request: A request under NVIDIA's names.
    """
    shared = [each for each in sharing if each]
    all_share = bool(shared) and len(shared) == len(sharing)
    if all_share and all(each.fails_above_one for each in shared):
        yield from _above_one(shared[0], request)
    time_sliced = all_share and all(each.strategy == "time-slicing" for each in shared)
    if request.containers and (
        time_sliced or (request.resource == NVIDIA_GPU_SHARED and not shared)
    ):
        container = request.containers[0]
        yield Finding(
            Code.NOT_ENFORCED,
            Severity.WARNING,
            container.field,
            container.gpus,
            "a GPU shared by time-slicing: no limit on the memory or time of its pods is enforced",
            f"limit the memory in the framework, or ask for {GPU_MEM} on nodes that enforce it",
        )


def _above_one(shared: Shared, request: Request) -> Iterator[Finding]:
    for container in request.containers:
        if container.gpus > 1:
            yield Finding(
                Code.SHARED_ONE,
                Severity.ERROR,
                container.field,
                container.gpus,
                f"{container.gpus} {shared.resource} in one container, where each GPU is shared by "
                f"{shared.replicas} and a container may have 1: more is not a larger part of a GPU",
                "ask for 1, or for whole GPUs",
            )


def _resource(shared: Shared | None) -> str:
    return shared.resource if shared else NVIDIA_GPU


@dataclass(frozen=True, slots=True)
class Renaming:
    """A pod whose requests are renamed to the resource that its nodes offer."""

    pod: NewPod
    operations: tuple[Operation, ...]
    old: str
    new: str

    def as_written(self, finding: Finding) -> Finding:
        """Return a finding with the field name before renaming."""
        return replace(finding, field=finding.field.replace(f"[{self.new}]", f"[{self.old}]"))


def rename_resource(pod: NewPod, sharing: NodeSharing) -> Renaming | None:
    """Return a pod renamed to the resource that all its nodes offer; None where nodes differ.

    A pod that names both resources is not renamed; validation refuses it.
    """
    names = {_resource(shared) for shared in sharing}
    if len(names) != 1 or not any(sharing):
        return None
    new = names.pop()
    old = NVIDIA_GPU if new == NVIDIA_GPU_SHARED else NVIDIA_GPU_SHARED
    if new not in {NVIDIA_GPU, NVIDIA_GPU_SHARED} or _names(pod, new) or not _names(pod, old):
        return None
    init = pod.spec.init_containers
    spec = msgspec.structs.replace(
        pod.spec,
        containers=[_renamed(container, old, new) for container in pod.spec.containers],
        init_containers=init and [_renamed(container, old, new) for container in init],
    )
    renamed = msgspec.structs.replace(pod, spec=spec)
    return Renaming(renamed, tuple(_operations(pod, old, new)), old, new)


def _names(pod: NewPod, resource: str) -> bool:
    return any(
        resource in container.limits or resource in container.requests
        for container in all_containers(pod.spec)
    )


def _operations(pod: NewPod, old: str, new: str) -> Iterator[Operation]:
    for init, index, container in indexed_containers(pod.spec):
        for part, amounts in (("limits", container.limits), ("requests", container.requests)):
            if old in amounts:
                pointer = f"{container_pointer(init, index)}/resources/{part}/"
                yield remove(pointer + escape(old), _RULE)
                yield add(pointer + escape(new), amounts[old], _RULE)


def _renamed(container: NewContainer, old: str, new: str) -> NewContainer:
    if container.resources is None:
        return container
    resources = msgspec.structs.replace(
        container.resources,
        limits=_renamed_key(container.resources.limits, old, new),
        requests=_renamed_key(container.resources.requests, old, new),
    )
    return msgspec.structs.replace(container, resources=resources)


def _renamed_key(amounts: Amounts | None, old: str, new: str) -> Amounts | None:
    if amounts is None:
        return None
    return {new if key == old else key: amount for key, amount in amounts.items()}
