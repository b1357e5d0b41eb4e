"""Detect that other pods took the GPUs that were planned for a pod on a counted node.

Another scheduler may bind pods there at the moment of a plan. Without this check, the plan would be
given up only at its deadline.
"""

from cluster.allocations.gpus import Counted
from cluster.keys import NVIDIA_GPU
from scorer.cache.cluster_state import ClusterState
from scorer.gang.pod_info import PodInfo


def lost_gpus(pod: PodInfo, state: ClusterState) -> str | None:
    """Return why a pod that is not bound yet cannot be bound; None: it may be.

    Compared is the number of GPUs that the node has, healthy or not: while NVIDIA's plugin
    restarts, none is allocatable.

    Args:
        pod: A pod with a record.
        state: The cluster.

    Cost: the pods of its node.
    """
    record = pod.allocation
    if record is None or not isinstance(record.gpus, Counted):
        return None
    node = state.node(record.node)
    if node is None or not node.is_counted:
        return None
    total = max(len(node.cards), node.resources[NVIDIA_GPU])
    others = (other.nvidia for other in state.usages(record.node) if other.node)
    bound = sum(len(gpus) for gpus in others if gpus and gpus.resource == NVIDIA_GPU)
    if bound + len(record.gpus) <= total:
        return None
    return f"other pods have taken the GPUs of {record.node} that were planned for pod {pod.name}"


def may_lose_gpus(pod: PodInfo) -> bool:
    """Return whether other pods may take the GPUs of a pod until it is bound."""
    record = pod.allocation
    return record is not None and isinstance(record.gpus, Counted) and not pod.bound
