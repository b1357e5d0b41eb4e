"""Reasons why a node does not fit a pod: constants, so that nodes can be counted by reason."""

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import TypeAlias

from linkwise.planning.placement.pods.group import Group


class Reason(StrEnum):
    """A reason why a node does not fit a pod: a text for users, without names and numbers."""

    NOT_READY = "not ready"
    CORDONED = "marked unschedulable"
    TAINT = "a taint that the pod does not tolerate"
    SELECTOR = "excluded by the pod's node selector or affinity"
    CLAIMED = "devices of a claim of the pod are elsewhere"
    VOLUME = "a volume of the pod that cannot be used there"
    MODE = "requested GPU resource not offered"
    PARTS = "replicas or partitions of GPUs, which may be of one card: no gang is planned on them"
    DEVICES = "no GPU for which the selectors of the claim hold"
    SLICES = "GPUs missing in the driver's slices for now, see linkwise inspect"
    UNACCOUNTED = "GPUs in use without a record"
    PREPARING = "tables of its GPU links still being computed"
    REFUSED = "links of its GPUs are not used, see linkwise inspect"
    RESERVED = "reserved for the unit that waited longest"
    GPUS = "too few free GPUs"
    UNUSABLE = "not enough without the GPUs that are cordoned or unhealthy"
    LINK = "no free set connected by NVLink alone"
    MATCH = "no free set for which the constraints of the claim hold"
    MEMORY_SHARE = "no card with enough free memory and compute"
    MEMORY_ONLY = "in use by pods that share memory only"
    COMPUTE_TOO = "in use by pods that share compute, too"
    REPLICAS = "too few free replicas"
    SPREAD = "topology spread constraints of the pod not satisfied"
    SPREAD_LABEL = "no label by which the pod is spread"
    AFFINITY = "pod affinity not satisfied"
    ANTI_AFFINITY = "pod anti-affinity not satisfied"
    REPELLED = "anti-affinity of a running pod"
    APART = "the members must not all be on one node"
    CPU = "too little CPU"
    MEMORY = "too little memory"
    PODS = "no room for more pods"
    PORTS = "a host port that is taken"
    FREE_VOLUMES = "no free volume there for a claim of the pod"
    ATTACHED = "no room for more volumes of a driver"
    UNKNOWN = "nothing is known of the node"
    ELSEWHERE = "the pod has its GPUs on another node"
    LOST = "the GPUs that the pod was given are not its own any more"
    GATE = "a gang's member that does not wait for its gang: create it again"
    REQUEST = "a request for GPUs that breaks a rule: create the pod again to see the finding"


@dataclass(frozen=True, slots=True)
class Shortage:
    """A reason that names a resource besides CPU, memory and GPUs: too little of it is free."""

    resource: str

    def __str__(self) -> str:
        """Return the text for users."""
        return f"too little {self.resource}"


Cause: TypeAlias = Reason | Shortage


def set_reason(group: Group) -> Reason:
    """Return why a node with enough free GPUs has no set of them for a member."""
    return Reason.MATCH if group.is_matched else Reason.LINK


def count_reasons(counts: Mapping[Cause, int]) -> str:
    """Return the number of nodes by reason, most frequent first: `too little CPU (3)`."""
    ordered = sorted(counts.items(), key=lambda item: (-item[1], str(item[0])))
    return ", ".join(f"{reason} ({number})" for reason, number in ordered)
