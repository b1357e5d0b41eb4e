"""GPUs that NVIDIA's device plugin would share: which name to ask for, and how many.

A pod may land on nodes of several groups, which its nodeSelector narrows down. What holds for all
of them is decided here; what holds for some is left to the scheduler.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import TypeAlias

import msgspec

from cluster.capacity import Capacity
from cluster.finding import Code, Finding, Severity
from cluster.keys import GPU_MEM, NVIDIA_GPU, NVIDIA_GPU_SHARED
from cluster.pod import Amounts, NewContainer, NewPod
from cluster.pointer import escape
from cluster.request import Request
from policy.sharing import Shared, SharingGroup, shared_by
from webhook.patch import Operation, add, remove

NodeSharing: TypeAlias = tuple[Shared | None, ...]
"""How GPUs are shared on each kind of node that a pod may land on; None: not at all."""

_RULE = "sharing rename"


def sharing_on_nodes(
    pod: NewPod, groups: tuple[SharingGroup, ...], capacity: Capacity
) -> NodeSharing:
    """Return how `nvidia.com/gpu` is shared where a pod may land; a node is of its first group.

    Where nodes are known these are judged; else every node that the groups' labels allow.
    """
    selected = pod.spec.node_selector or {}
    if capacity.by_nvidias_names:
        return _landing_on(capacity, selected, groups)
    found: list[Shared | None] = []
    for group in groups:
        labels = group.node_labels
        if any(selected.get(key, value) != value for key, value in labels.items()):
            continue
        found.append(_offer(group))
        if labels.items() <= selected.items():
            return tuple(found)
    return (*found, None)


def _landing_on(
    capacity: Capacity, selected: Mapping[str, str], groups: tuple[SharingGroup, ...]
) -> NodeSharing:
    """Return how GPUs are shared on the nodes that exist and that a nodeSelector allows."""
    keys = frozenset(key for group in groups for key in group.node_labels)
    named = {key: value for key, value in selected.items() if key in keys}
    found: dict[Shared | None, None] = {}
    for labels in capacity.label_sets(keys):
        if named.items() <= labels.items():
            fits = (group for group in groups if group.node_labels.items() <= labels.items())
            first = next(fits, None)
            found[_offer(first) if first else None] = None
    return tuple(found)


def _offer(group: SharingGroup) -> Shared | None:
    return next((one for one in shared_by(group) if one.device == NVIDIA_GPU), None)


def offering(where: NodeSharing, request: Request) -> NodeSharing:
    """Return the kinds of nodes that offer what a pod asks for."""
    return tuple(offer for offer in where if _name(offer) == request.counted)


def replicas(where: NodeSharing) -> int:
    """Return how many pods share a GPU on all these nodes; 0 where they differ, or share none."""
    if not where:
        return 0
    numbers = {offer.replicas if offer else 0 for offer in where}
    return numbers.pop() if len(numbers) == 1 else 0


def sharing_findings(where: NodeSharing, request: Request) -> Iterator[Finding]:
    """Yield what is wrong, or not as it seems, with a request for shared GPUs.

    Args:
        where: The kinds of nodes that offer what the pod asks for.
        request: Of the families that NVIDIA's plugin knows.
    """
    offers = [offer for offer in where if offer]
    shared = bool(offers) and len(offers) == len(where)
    if shared and all(offer.fails_above_one for offer in offers):
        yield from _above_one(offers[0], request)
    sliced = shared and all(offer.strategy == "time-slicing" for offer in offers)
    if request.asks and (sliced or (request.counted == NVIDIA_GPU_SHARED and not offers)):
        ask = request.asks[0]
        yield Finding(
            Code.NOT_ENFORCED,
            Severity.WARNING,
            ask.field,
            ask.gpus,
            "a GPU shared by time-slicing: nothing keeps its pods to their part of memory or time",
            f"let the framework cap its memory, or ask for {GPU_MEM} on nodes that enforce it",
        )


def _above_one(offer: Shared, request: Request) -> Iterator[Finding]:
    for ask in request.asks:
        if ask.gpus > 1:
            yield Finding(
                Code.SHARED_ONE,
                Severity.ERROR,
                ask.field,
                ask.gpus,
                f"{ask.gpus} {offer.resource} in one container, where each GPU is shared by "
                f"{offer.replicas} and a container may have 1: more is not a larger part of a GPU",
                "ask for 1, or for whole GPUs",
            )


def _name(offer: Shared | None) -> str:
    return offer.resource if offer else NVIDIA_GPU


@dataclass(frozen=True, slots=True)
class Renaming:
    """A pod that asks for GPUs by the name that its nodes have for them."""

    pod: NewPod
    operations: tuple[Operation, ...]
    old: str
    new: str

    def as_written(self, finding: Finding) -> Finding:
        """Return a finding with the field as the pod's author wrote it."""
        return replace(finding, field=finding.field.replace(f"[{self.new}]", f"[{self.old}]"))


def rename_resource(pod: NewPod, where: NodeSharing) -> Renaming | None:
    """Return a pod renamed to what all nodes offer where it may land; None where they differ.

    A pod that names both is left alone: it is refused as it is.
    """
    names = {_name(offer) for offer in where}
    if len(names) != 1 or not any(where):
        return None
    new = names.pop()
    old = NVIDIA_GPU if new == NVIDIA_GPU_SHARED else NVIDIA_GPU_SHARED
    if new not in {NVIDIA_GPU, NVIDIA_GPU_SHARED} or _asks(pod, new) or not _asks(pod, old):
        return None
    init = pod.spec.init_containers
    spec = msgspec.structs.replace(
        pod.spec,
        containers=[_renamed(container, old, new) for container in pod.spec.containers],
        init_containers=init and [_renamed(container, old, new) for container in init],
    )
    renamed = msgspec.structs.replace(pod, spec=spec)
    return Renaming(renamed, tuple(_steps(pod, old, new)), old, new)


def _asks(pod: NewPod, resource: str) -> bool:
    return any(
        resource in container.limits or resource in container.requests
        for container in (*pod.spec.containers, *(pod.spec.init_containers or ()))
    )


def _steps(pod: NewPod, old: str, new: str) -> Iterator[Operation]:
    for list_name, containers in (
        ("containers", pod.spec.containers),
        ("initContainers", pod.spec.init_containers or ()),
    ):
        for index, container in enumerate(containers):
            for kind, amounts in (("limits", container.limits), ("requests", container.requests)):
                if old in amounts:
                    path = f"/spec/{list_name}/{index}/resources/{kind}/"
                    yield remove(path + escape(old), _RULE)
                    yield add(path + escape(new), amounts[old], _RULE)


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
