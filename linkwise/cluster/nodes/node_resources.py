"""Decode Node objects: labels, allocatable resources and the number of GPUs."""

from collections.abc import Mapping
from dataclasses import dataclass, replace

from linkwise.cluster.keys import (
    GFD_COUNT,
    GFD_REPLICAS,
    GPU_CORE,
    GPU_COUNT,
    GPU_MEM,
    GPU_WHOLE,
    MODE,
    MODE_LABELS,
    NODE_CGPU,
    NODE_GPUSHARE,
    NODE_MODE,
    NVIDIA_GPU,
    NVIDIA_GPU_SHARED,
)
from linkwise.cluster.mode import NodeMode, counting_resource, read_mode
from linkwise.cluster.nodes.gpu_parts import GPUParts, PartKind, parts_of
from linkwise.cluster.objects.container import Amounts
from linkwise.cluster.objects.kube_object import KubeObject
from linkwise.cluster.objects.metadata import Metadata
from linkwise.cluster.objects.quantity import QuantityError, parse_quantity
from linkwise.topology.machine import MAX_GPUS

_OF_PLUGINS = (GPU_WHOLE, GPU_MEM, GPU_COUNT, NVIDIA_GPU, NVIDIA_GPU_SHARED)
_ACCOUNTED = {"cpu", "memory", "pods", GPU_CORE, *_OF_PLUGINS}
_OWN = {"cpu", "memory", "pods", "ephemeral-storage"}
"""Resources of Kubernetes, besides huge pages."""


class NodeError(ValueError):
    """A Node object is invalid; the message names the field."""


class _Taint(KubeObject, frozen=True):
    key: str = ""
    value: str = ""
    effect: str = ""


class _NodeSpec(KubeObject, frozen=True):
    taints: list[_Taint] | None = None
    unschedulable: bool | None = None


class _Condition(KubeObject, frozen=True):
    type: str = ""
    status: str = ""


class _NodeStatus(KubeObject, frozen=True):
    allocatable: Amounts | None = None
    capacity: Amounts | None = None
    conditions: list[_Condition] | None = None


class NodeObject(KubeObject, frozen=True):
    """The fields of a Node that Linkwise reads."""

    kind: str = "Node"
    metadata: Metadata = Metadata()
    spec: _NodeSpec = _NodeSpec()
    status: _NodeStatus = _NodeStatus()


@dataclass(frozen=True, slots=True)
class NodeResources:
    """Resources of a node by its Node object alone."""

    labels: Mapping[str, str]
    annotations: Mapping[str, str]
    mode: NodeMode
    allocatable: Mapping[str, int]
    """CPU [millicores], memory [bytes], pods, and every other resource that a pod can request."""
    shared_memory: int
    """Total GPU memory for shares [GiB], with unhealthy cards; 0 if not shared."""
    count: int
    """GPUs, healthy or not."""
    usable: int
    """Allocatable GPUs; the kubelet does not report which."""
    replicas: int = 0
    """Replicas per GPU of a time-sliced node; else 0."""
    parts: GPUParts | None = None
    """What its `nvidia.com/gpu` are if NVIDIA's plugin offers no whole GPUs under this name."""
    plugin_offers_gpus: bool = False
    """A device plugin offers GPUs, or parts of them, under a name of ours or NVIDIA's."""
    warnings: tuple[str, ...] = ()


def read_node_resources(raw: NodeObject, cards: int) -> NodeResources:
    """Return the GPU resources of a Node object.

    Args:
        raw: The Node.
        cards: Number of GPUs that the agent publishes, or 0; used for time-sliced nodes without the
            label.

    Raises:
        NodeError: An amount is not a Kubernetes quantity.
    """
    labels = raw.metadata.labels or {}
    mode, problem = read_mode(labels)
    capacity = _read_amounts(raw.status.capacity, "capacity", raw)
    allocatable = _read_amounts(raw.status.allocatable, "allocatable", raw)
    # Of resources that are not accounted here, a scheduler counts only what is allocatable.
    kept = {name: capacity[name] for name in _ACCOUNTED & capacity.keys()}
    allocatable = {**(kept if allocatable else capacity), **allocatable}
    resource = counting_resource(mode, labels)
    usable = allocatable.get(resource, 0)
    count = max(usable, capacity.get(resource, 0))
    warnings = filter(
        None,
        (
            problem,
            _unlabelled(labels, allocatable),
            _mislabelled(labels, mode, resource, count, allocatable),
        ),
    )
    offer = NodeResources(
        labels,
        raw.metadata.annotations or {},
        mode,
        allocatable,
        shared_memory=max(allocatable.get(GPU_MEM, 0), capacity.get(GPU_MEM, 0)),
        warnings=tuple(warnings),
        count=count,
        usable=usable,
        plugin_offers_gpus=any(
            amounts.get(name) for amounts in (capacity, allocatable) for name in _OF_PLUGINS
        ),
    )
    if mode is NodeMode.TIMESLICE and count:
        return _divide(offer, cards)
    return _with_parts(offer) if mode is NodeMode.DEFAULT else offer


def _unlabelled(labels: Mapping[str, str], allocatable: Mapping[str, int]) -> str | None:
    """Return a warning if a node offers GPU resources of ours without a mode label."""
    if not {*MODE_LABELS, NODE_CGPU, NODE_GPUSHARE}.isdisjoint(labels):
        return None
    offered = [name for name in (GPU_MEM, GPU_WHOLE) if allocatable.get(name)]
    if not offered:
        return None
    return f"it offers {offered[0]} but has no label {MODE}: none of it is given out"


def _mislabelled(
    labels: Mapping[str, str],
    mode: NodeMode,
    resource: str,
    count: int,
    allocatable: Mapping[str, int],
) -> str | None:
    """Return a warning if a node offers NVIDIA's resource instead of that of its mode."""
    if count or not mode.is_ours or not allocatable.get(NVIDIA_GPU):
        return None
    key = MODE if MODE in labels else NODE_MODE
    return (
        f"its label {key} says {mode}, but it offers {NVIDIA_GPU} and no {resource}: no GPU "
        f"is given out; let the device plugin offer {resource}, or remove the label"
    )


def _with_parts(offer: NodeResources) -> NodeResources:
    """Return the resources of a node with its GPUs counted instead of their parts, if there are."""
    renamed = bool(offer.allocatable.get(NVIDIA_GPU_SHARED))
    parts = parts_of(offer.labels, offer.annotations, offer.count, renamed=renamed)
    if parts is None:
        return offer
    cards = parts.cards or 0
    count = cards if cards <= MAX_GPUS else 0
    warnings = offer.warnings
    if parts.kind is PartKind.UNKNOWN:
        problem = (
            f"{parts.count} {NVIDIA_GPU}, and no machine has more than {MAX_GPUS} GPUs: they count "
            f"as parts of GPUs; labels of GPU feature discovery, such as {GFD_REPLICAS}, state it"
        )
        warnings = (*warnings, problem)
    usable = min(offer.usable, count)
    return replace(offer, count=count, usable=usable, parts=parts, warnings=warnings)


def _divide(offer: NodeResources, cards: int) -> NodeResources:
    """Return the resources of a time-sliced node with GPUs counted instead of replicas."""
    gpus = _read_number(offer.labels, GFD_COUNT) or cards
    replicas = _read_number(offer.labels, GFD_REPLICAS) or (offer.count // gpus if gpus else 0)
    counted, problem = f"{offer.count} {NVIDIA_GPU_SHARED}", None
    if not gpus and not replicas:
        problem = f"the number of GPUs of the {counted} is unknown"
    elif offer.count != (gpus or offer.count // replicas) * replicas:
        problem = f"{counted} are not the same number of replicas of each GPU"
    warnings = offer.warnings
    if problem:
        source = f"the node labels {GFD_REPLICAS} and {GFD_COUNT} state it"
        warnings = (*warnings, f"{problem}; {source}")
    if not replicas:
        return replace(offer, count=0, usable=0, warnings=warnings)
    count = offer.count // replicas
    most = gpus or count
    return replace(
        offer,
        count=min(count, most),
        usable=min(offer.usable // replicas, most),
        replicas=replicas,
        warnings=warnings,
    )


def _read_amounts(amounts: Amounts | None, table: str, raw: NodeObject) -> dict[str, int]:
    found = {}
    for name, amount in (amounts or {}).items():
        if "/" not in name and name not in _OWN and not name.startswith("hugepages-"):
            continue
        try:
            exact = parse_quantity(amount)
        except QuantityError as error:
            where = f"node {raw.metadata.name}: status.{table}[{name}]"
            raise NodeError(f"{where}: {error}") from error
        found[name] = max(0, int(exact * 1000 if name == "cpu" else exact))
    return found


def _read_number(labels: Mapping[str, str], key: str) -> int:
    """Return the number in a label from 1 to 9999; 0 if it is invalid."""
    text = labels.get(key, "")
    return int(text) if text.isascii() and text.isdigit() and len(text) <= 4 else 0
