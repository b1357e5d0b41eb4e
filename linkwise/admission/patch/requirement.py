"""Derive node requirements from the GPU request and the class of a pod."""

from collections.abc import Iterator, Mapping

from linkwise.admission.patch.affinity import NodeRequirement
from linkwise.cluster.keys import (
    COMPUTE_CLASS,
    DRIVER_VERSION,
    GFD_PRODUCT,
    MODEL_SERIES,
    NODE_MODE,
    NODE_TYPE,
    NVIDIA_GPU_SHARED,
)
from linkwise.cluster.mode import NodeMode
from linkwise.cluster.nodes.capacity import Capacity
from linkwise.cluster.requests.request import Family, Request
from linkwise.policy.catalogue import GPU, GPU_HPN
from linkwise.policy.document import NodeLabel
from linkwise.policy.snapshot import PolicySnapshot

RESERVED = "reserved"
"""Label value of nodes that are reserved for high-performance networks (ACS)."""
SHARED_PRODUCT = "-SHARED"
"""Suffix of feature discovery for the product of a GPU that is shared under its own name."""

_TOPOLOGY = NodeRequirement(NODE_MODE, (NodeMode.TOPOLOGY.value,), "affinity whole GPUs")
_NOT_TOPOLOGY = NodeRequirement(
    NODE_MODE, (NodeMode.TOPOLOGY.value,), "affinity NVIDIA's whole GPUs", "NotIn"
)
"""Where Linkwise chooses `nvidia.com/gpu` on some nodes: other pods would have no record."""
_TIMESLICE = NodeRequirement(NODE_MODE, (NodeMode.TIMESLICE.value,), "affinity time-slicing")
_NOT_TIMESLICE = NodeRequirement(
    NODE_MODE, (NodeMode.TIMESLICE.value,), "affinity NVIDIA's time-slicing", "NotIn"
)
"""Linkwise chooses the replicas on nodes of mode `timeslice`: other pods would have no record."""
_COMPUTE = NodeRequirement(NODE_MODE, (NodeMode.CORE_MEM.value,), "affinity compute share")
_COMPUTE_OR_MPS = NodeRequirement(
    NODE_MODE, (NodeMode.CORE_MEM.value, NodeMode.MPS.value), "affinity compute share"
)
_RESERVED = NodeRequirement(NODE_TYPE, (RESERVED,), "affinity gpu-hpn")


def node_requirements(
    labels: Mapping[str, str], request: Request, policy: PolicySnapshot, capacity: Capacity
) -> list[NodeRequirement]:
    """Return the requirements on the node of a pod.

    Args:
        labels: Labels of the pod after profiles.
        request: GPU request of the pod.
        policy: Node labels of model and driver, and whether MPS may share compute.
        capacity: Whether Linkwise chooses GPUs under NVIDIA's names on any node.
    """
    mode = _mode_requirement(request, policy, capacity)
    requirements = [] if mode is None else [mode]
    if COMPUTE_CLASS not in labels:
        return requirements
    return [*_class_requirements(labels, policy), *requirements]


def _mode_requirement(
    request: Request, policy: PolicySnapshot, capacity: Capacity
) -> NodeRequirement | None:
    family = request.family
    if request.by_count:
        # By a RuntimeClass containers get the GPUs of a variable, which these pods do not have.
        by_variable = policy.policy.containers.gpu_injection == "runtimeClass"
        return _NOT_TOPOLOGY if by_variable and capacity.exact else None
    if family is Family.WHOLE:
        return _TOPOLOGY
    if family is Family.SHARE and request.core:
        return _COMPUTE_OR_MPS if policy.policy.sharing.compute_by_mps else _COMPUTE
    # Memory without compute: the resource selects the nodes, also those with older labels.
    if family is Family.NVIDIA:
        if request.resource == NVIDIA_GPU_SHARED:
            return _NOT_TIMESLICE
        return _NOT_TOPOLOGY if capacity.exact else None
    return _TIMESLICE if family is Family.REPLICA else None


def _class_requirements(
    labels: Mapping[str, str], policy: PolicySnapshot
) -> Iterator[NodeRequirement]:
    compute_class = labels.get(COMPUTE_CLASS)
    if compute_class == GPU_HPN:
        yield _RESERVED
        if model := labels.get(MODEL_SERIES):
            yield NodeRequirement(MODEL_SERIES, (model,), "affinity gpu-hpn")
    affinity = policy.policy.affinity
    if compute_class == GPU and affinity.platform == "node":
        if model := labels.get(MODEL_SERIES):
            yield _label_requirement(affinity.node_labels.model, model, "affinity model", policy)
        if driver := labels.get(DRIVER_VERSION):
            yield _label_requirement(affinity.node_labels.driver, driver, "affinity driver", policy)


def _label_requirement(
    label: NodeLabel, value: str, rule: str, policy: PolicySnapshot
) -> NodeRequirement:
    values = policy.node_values(label, value)
    if label.key == GFD_PRODUCT and policy.shared:
        products = (value.removesuffix(SHARED_PRODUCT) for value in values)
        names = (name for product in products for name in (product, product + SHARED_PRODUCT))
        values = tuple(dict.fromkeys(names))
    return NodeRequirement(label.key, values, rule)
