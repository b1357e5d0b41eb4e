"""Which node labels a pod's request and class require."""

from collections.abc import Iterator, Mapping

from cluster.keys import (
    COMPUTE_CLASS,
    DRIVER_VERSION,
    GFD_PRODUCT,
    MODEL_SERIES,
    NODE_MODE,
    NODE_TYPE,
    NVIDIA_GPU_SHARED,
)
from cluster.mode import Mode
from cluster.request import Family, Request
from policy.catalogue import GPU, GPU_HPN
from policy.document import NodeLabel
from policy.snapshot import PolicySnapshot
from webhook.affinity import NodeRequirement

RESERVED = "reserved"
"""Value of the node label for nodes that were bought for high-performance networks (ACS)."""
SHARED_PRODUCT = "-SHARED"
"""What feature discovery appends to the product of a GPU that is shared under its own name."""

# In Python 3.11 a member of an enum takes ten times as long to look up as a name.
_WHOLE, _SHARE, _REPLICA, _NVIDIA = Family.WHOLE, Family.SHARE, Family.REPLICA, Family.NVIDIA

_TOPOLOGY = NodeRequirement(NODE_MODE, (Mode.TOPOLOGY.value,), "affinity whole GPUs")
_TIMESLICE = NodeRequirement(NODE_MODE, (Mode.TIMESLICE.value,), "affinity time-slicing")
_NOT_TIMESLICE = NodeRequirement(
    NODE_MODE, (Mode.TIMESLICE.value,), "affinity NVIDIA's time-slicing", "NotIn"
)
"""On nodes of that mode Linkwise chooses the replicas; those of a pod that it did not place would
have no record."""
_COMPUTE = NodeRequirement(NODE_MODE, (Mode.CORE_MEM.value,), "affinity compute share")
_COMPUTE_OR_MPS = NodeRequirement(
    NODE_MODE, (Mode.CORE_MEM.value, Mode.MPS.value), "affinity compute share"
)
_RESERVED = NodeRequirement(NODE_TYPE, (RESERVED,), "affinity gpu-hpn")


def node_requirements(
    labels: Mapping[str, str], request: Request, policy: PolicySnapshot
) -> list[NodeRequirement]:
    """Return what every node must have that may take a pod.

    Args:
        labels: The pod's, after profiles.
        request: What the pod asks for.
        policy: How model and driver stand on nodes, and whether MPS may share compute.
    """
    mode = _of_mode(request, policy)
    found = [] if mode is None else [mode]
    return [*_of_class(labels, policy), *found] if COMPUTE_CLASS in labels else found


def _of_mode(request: Request, policy: PolicySnapshot) -> NodeRequirement | None:
    family = request.family
    if family is _WHOLE:
        return _TOPOLOGY
    if family is _SHARE and request.core:
        return _COMPUTE_OR_MPS if policy.policy.sharing.compute_by_mps else _COMPUTE
    # Memory alone: the resource tells the nodes, also those with the older labels.
    if family is _NVIDIA and request.counted == NVIDIA_GPU_SHARED:
        return _NOT_TIMESLICE
    return _TIMESLICE if family is _REPLICA else None


def _of_class(labels: Mapping[str, str], policy: PolicySnapshot) -> Iterator[NodeRequirement]:
    compute_class = labels.get(COMPUTE_CLASS)
    if compute_class == GPU_HPN:
        yield _RESERVED
        if model := labels.get(MODEL_SERIES):
            yield NodeRequirement(MODEL_SERIES, (model,), "affinity gpu-hpn")
    affinity = policy.policy.affinity
    if compute_class == GPU and affinity.platform == "node":
        if model := labels.get(MODEL_SERIES):
            yield _mapped(affinity.node_labels.model, model, "affinity model", policy)
        if driver := labels.get(DRIVER_VERSION):
            yield _mapped(affinity.node_labels.driver, driver, "affinity driver", policy)


def _mapped(label: NodeLabel, value: str, rule: str, policy: PolicySnapshot) -> NodeRequirement:
    values = policy.node_values(label, value)
    if label.key == GFD_PRODUCT and policy.shared:
        plain = (product.removesuffix(SHARED_PRODUCT) for product in values)
        both = (name for product in plain for name in (product, product + SHARED_PRODUCT))
        values = tuple(dict.fromkeys(both))
    return NodeRequirement(label.key, values, rule)
