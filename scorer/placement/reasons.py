"""Why a node is not taken: a few constants, so that nodes can be counted by them."""

from collections.abc import Mapping
from enum import StrEnum


class Reason(StrEnum):
    """What keeps a pod from a node. The words are for people and never hold names or numbers."""

    NOT_READY = "not ready"
    CORDONED = "marked unschedulable"
    TAINT = "a taint that the pod does not tolerate"
    SELECTOR = "excluded by the pod's node selector or affinity"
    MODE = "another kind of GPU resource"
    UNACCOUNTED = "GPUs in use that nobody accounts for"
    PREPARING = "tables of its GPU links still being computed"
    KEPT = "kept for one that has waited longest"
    GPUS = "too few free GPUs"
    UNUSABLE = "not enough without the GPUs that are cordoned or unhealthy"
    LINK = "no free set connected by NVLink alone"
    MEMORY_SHARE = "no card with enough free memory and compute"
    MEMORY_ONLY = "in use by pods that share memory only"
    COMPUTE_TOO = "in use by pods that share compute, too"
    REPLICAS = "too few free replicas"
    CPU = "too little CPU"
    MEMORY = "too little memory"
    PODS = "no room for more pods"
    PORTS = "a host port that is taken"
    UNKNOWN = "nothing is known of the node"
    ELSEWHERE = "the pod has its GPUs on another node"
    LOST = "the GPUs that the pod was given are not its own any more"
    GATE = "a gang's member that does not wait for its gang: make it anew"
    REQUEST = "a request for GPUs that breaks a rule: make the pod anew, and it is told"


def count_reasons(counted: Mapping[Reason, int]) -> str:
    """Return one clause that counts nodes by reason, most frequent first: `too little CPU (3)`."""
    ordered = sorted(counted.items(), key=lambda item: (-item[1], item[0]))
    return ", ".join(f"{reason} ({number})" for reason, number in ordered)
