"""The mode of a node: how its GPUs are allocated, by its labels."""

from collections.abc import Mapping
from enum import StrEnum

from linkwise.cluster.keys import (
    DRA_GPU_DRIVER,
    GPU_COUNT,
    GPU_WHOLE,
    MODE,
    NODE_CGPU,
    NODE_GPUSHARE,
    NODE_MODE,
    NODE_PLACEMENT,
    NVIDIA_GPU,
    NVIDIA_GPU_SHARED,
    RESOURCE_LABELS,
    RESOURCE_NAME,
)


class NodeMode(StrEnum):
    """Allocation of the GPUs of a node: values of the label `linkwise.dev/mode`."""

    DEFAULT = "default"
    """Whole GPUs, chosen by NVIDIA's plugin. Also a node without GPUs."""
    TOPOLOGY = "topology"
    SHARE = "share"
    CGPU = "cgpu"
    CORE_MEM = "core_mem"
    MPS = "mps"
    TIMESLICE = "timeslice"
    MIG = "mig"
    DISABLED = "disabled"

    @property
    def shares_memory(self) -> bool:
        """Cards are allocated by memory."""
        return self in _SHARING_MEMORY

    @property
    def shares_compute(self) -> bool:
        """Cards are allocated by memory and compute."""
        return self in _SHARING_COMPUTE

    @property
    def is_ours(self) -> bool:
        """Linkwise chooses the GPUs of pods on this node."""
        return self in _OURS


# Read for every card of every node for every pod; building the sets each time was slow.
_SHARING_COMPUTE = frozenset({NodeMode.CORE_MEM, NodeMode.MPS})
_SHARING_MEMORY = _SHARING_COMPUTE | {NodeMode.SHARE, NodeMode.CGPU}
_OURS = _SHARING_MEMORY | {NodeMode.TOPOLOGY, NodeMode.TIMESLICE}

_COUNTED_BY = {
    NodeMode.DEFAULT: NVIDIA_GPU,
    NodeMode.SHARE: GPU_COUNT,
    NodeMode.CGPU: GPU_COUNT,
    NodeMode.CORE_MEM: GPU_COUNT,
    NodeMode.MPS: GPU_COUNT,
    NodeMode.TIMESLICE: NVIDIA_GPU_SHARED,
}


def counting_resource(mode: NodeMode, labels: Mapping[str, str]) -> str:
    """Return the resource that counts the GPUs of a node; of a time-sliced node, its replicas.

    Nodes of mode `topology` have a label for it. Empty for a mode that is not ours.

    Args:
        mode: Mode of the node.
        labels: Labels of the node.
    """
    if mode is NodeMode.TOPOLOGY:
        # A cluster file may have the name with its slash, which an API server refuses.
        label = labels.get(RESOURCE_NAME, "").replace("/", "-")
        return RESOURCE_LABELS.get(label, GPU_WHOLE)
    return _COUNTED_BY.get(mode, "")


def is_watched(labels: Mapping[str, str]) -> bool:
    """Return whether NVIDIA's DRA driver offers the GPUs of a node, and the agent only watches.

    A label says so: slices and sockets of the driver are missing while it starts, and its folder
    is left when it is removed.
    """
    return labels.get(RESOURCE_NAME) == DRA_GPU_DRIVER


class PackingStrategy(StrEnum):
    """Distribution of shares: values of the node label `ack.node.gpu.placement`."""

    BINPACK = "binpack"
    SPREAD = "spread"


def read_mode(labels: Mapping[str, str]) -> tuple[NodeMode, str | None]:
    """Return the mode of a node, and a warning if its labels are wrong.

    An unknown value may belong to another system: such a node is left alone. So is one whose labels
    name two modes, since nobody knows which one its device plugin serves.
    """
    key = MODE if MODE in labels else NODE_MODE
    word, alias = labels.get(key), labels.get(NODE_MODE)
    if word is None:
        if labels.get(NODE_CGPU) == "true":
            return NodeMode.CGPU, None
        return (NodeMode.SHARE if labels.get(NODE_GPUSHARE) == "true" else NodeMode.DEFAULT), None
    if word not in set(NodeMode):
        known = ", ".join(NodeMode)
        return NodeMode.DISABLED, f"{key}={word} is no mode ({known}): the node is left alone"
    if alias is None:
        return NodeMode(word), _without_alias(NodeMode(word))
    if alias != word:
        return NodeMode.DISABLED, (
            f"{MODE}={word} and {NODE_MODE}={alias} disagree: the node gets no new pods until both "
            "are equal, or one is removed"
        )
    return NodeMode(word), None


def _without_alias(mode: NodeMode) -> str | None:
    """Return a warning for a node of a mode whose pods require the alias, which it lacks."""
    if not mode.is_ours:
        return None
    return (
        f"it has {MODE}={mode} without {NODE_MODE}, which pods require: install policy "
        f"linkwise-mode-alias, or label it {NODE_MODE}={mode}, too"
    )


def with_alias(labels: Mapping[str, str]) -> dict[str, str]:
    """Return the labels of a node with the alias of its mode, as the API server completes them."""
    added = {NODE_MODE: labels[MODE]} if MODE in labels else {}
    return {**added, **labels}


def read_placement(
    labels: Mapping[str, str], default: PackingStrategy
) -> tuple[PackingStrategy, str | None]:
    """Return how shares are distributed on a node, and a warning if its label is unknown.

    Args:
        labels: Labels of the node.
        default: The value without a label.
    """
    word = labels.get(NODE_PLACEMENT, default)
    if word not in set(PackingStrategy):
        problem = f"{NODE_PLACEMENT}={word} is neither binpack nor spread: {default} is taken"
        return default, problem
    return PackingStrategy(word), None
