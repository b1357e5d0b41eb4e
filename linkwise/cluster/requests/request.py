"""The GPU request of a pod: its family, its totals, and the part of each container."""

from enum import StrEnum

import msgspec
from msgspec import Struct

from linkwise.cluster.keys import GPU_WHOLE, NVIDIA_GPU, NVIDIA_GPU_SHARED
from linkwise.cluster.mode import NodeMode
from linkwise.cluster.requests.container_request import amount_path
from linkwise.cluster.requests.user_claims.pod_claims import UserClaims


class Family(StrEnum):
    """Kinds of GPU resources; a pod may request one kind."""

    SHARE = "share"
    """Memory, optionally with compute, of one or several cards: `aliyun.com/gpu-mem`."""
    WHOLE = "whole"
    """Whole GPUs that Linkwise chooses: `aliyun.com/gpu`, and `nvidia.com/gpu` of a pod that is
    tied to nodes of mode `topology`, waits behind our gate, or has its record."""
    NVIDIA = "nvidia"
    """GPUs that NVIDIA's plugin chooses: `nvidia.com/gpu` and `nvidia.com/gpu.shared` of a pod that
    Linkwise does not place."""
    REPLICA = "replica"
    """Time-sliced replicas that Linkwise chooses: `nvidia.com/gpu.shared` of a pod that is tied to
    nodes of mode `timeslice`, waits behind our gate, or has its record."""


class ContainerRequest(Struct, frozen=True, gc=False):
    """GPU request of one container."""

    container: str
    """Name of the container."""
    index: int
    """Index in `spec.containers` or `spec.initContainers`."""
    init: bool
    """It is an init container (or a sidecar)."""
    sidecar: bool
    """It is a sidecar: an init container that keeps running."""
    resource: str
    """The resource; of a share, its memory."""
    limited: bool = True
    """It is a limit; a request alone is an error."""
    gpus: int = 0
    """Whole GPUs or replicas; 0 for a share."""
    memory: int = 0
    """GPU memory [GiB], over all cards of the pod."""
    core: int = 0
    """Compute [% of one card], over all cards of the pod."""

    @property
    def field(self) -> str:
        """Path of the amount, such as `spec.containers[0].resources.limits[aliyun.com/gpu]`."""
        part = "limits" if self.limited else "requests"
        return amount_path(self.index, self.init, part, self.resource)


class Request(Struct, frozen=True, gc=False):
    """GPU request of a pod: totals by the rule of Kubernetes, and the request of each container."""

    family: Family | None = None
    """None: no GPU request, or an unreadable one."""
    gpus: int = 0
    """Whole GPUs or replicas; for a share, the number of cards."""
    memory: int = 0
    """GPU memory of the pod [GiB], over all its cards."""
    core: int = 0
    """Compute of the pod [% of one card], over all its cards."""
    containers: tuple[ContainerRequest, ...] = ()
    """App containers first, then init containers, in order."""
    by_count: bool = False
    """Whole GPUs that Linkwise plans, also on nodes where NVIDIA's plugin chooses which."""
    by_claim: bool = False
    """Whole GPUs that the pod gets by a ResourceClaim, only on claims nodes."""
    user_claims: UserClaims | None = None
    """The claims that the pod brings; None: Linkwise creates one, if it gets GPUs by a claim."""

    @property
    def places(self) -> bool:
        """Linkwise chooses the node and, except on counted nodes, the GPUs."""
        return self.family is not None and self.family is not Family.NVIDIA

    @property
    def chooses_gpus(self) -> bool:
        """Linkwise chooses the node and, on each node, the GPUs."""
        return self.places and not self.by_count

    @property
    def resource(self) -> str:
        """The requested resource, such as `nvidia.com/gpu`; of a share, its memory."""
        if self.containers:
            return self.containers[0].resource
        is_alibabas = self.family is Family.WHOLE and not self.by_claim
        return GPU_WHOLE if is_alibabas else NVIDIA_GPU

    def decided(self, *, places: bool, by_count: bool = False, by_claim: bool = False) -> "Request":
        """Return a request under NVIDIA's names once it is decided who chooses its GPUs.

        Args:
            places: Linkwise places the pod; else NVIDIA's plugin chooses its GPUs.
            by_count: Whole GPUs may also be on nodes where NVIDIA's plugin chooses which.
            by_claim: The pod gets whole GPUs by a ResourceClaim.
        """
        family = PLACED_AS[self.resource][1] if places else Family.NVIDIA
        is_whole = family is Family.WHOLE
        return msgspec.structs.replace(
            self, family=family, by_count=is_whole and by_count, by_claim=is_whole and by_claim
        )

    def is_part_of(self, other: "Request") -> bool:
        """Return whether it asks for the same on each card, and for no more cards."""
        mine, others = (
            (each.family, each.resource, each.memory_per_card, each.core_per_card)
            for each in (self, other)
        )
        return mine == others and self.gpus <= other.gpus

    def of_cards(self, gpus: int) -> "Request":
        """Return a request for this number of cards, with the same amounts on each."""
        memory, core = gpus * self.memory_per_card, gpus * self.core_per_card
        return msgspec.structs.replace(self, gpus=gpus, memory=memory, core=core)

    @property
    def memory_per_card(self) -> int:
        """GPU memory on each card of a share [GiB]."""
        return self.memory // self.gpus if self.gpus else 0

    @property
    def core_per_card(self) -> int:
        """Compute on each card of a share [%]."""
        return self.core // self.gpus if self.gpus else 0


PLACED_AS = {
    NVIDIA_GPU: (NodeMode.TOPOLOGY, Family.WHOLE),
    NVIDIA_GPU_SHARED: (NodeMode.TIMESLICE, Family.REPLICA),
}
"""By resource under NVIDIA's names: mode of the nodes on which Linkwise chooses, and the family."""


def user_claims_request(claims: UserClaims) -> Request:
    """Return the request of a pod that gets its GPUs by claims that it brings."""
    return Request(Family.WHOLE, claims.gpus, by_claim=True, user_claims=claims)


def mode_of(resource: str) -> NodeMode | None:
    """Return the mode of the nodes on which Linkwise chooses GPUs of a resource of NVIDIA's names.

    None: the resource has no such name.
    """
    placed = PLACED_AS.get(resource)
    return placed[0] if placed else None
