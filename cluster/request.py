"""What a pod asks of the GPUs, and everything that is wrong with it."""

from dataclasses import dataclass
from enum import StrEnum

from cluster.finding import Finding
from cluster.pod import Pod


class Family(StrEnum):
    """The kinds of GPU resources; a pod may ask for one of them."""

    SHARE = "share"
    """Memory, and perhaps compute, of one card or of several: `aliyun.com/gpu-mem`."""
    WHOLE = "whole"
    """Whole GPUs that Linkwise chooses: `aliyun.com/gpu`."""
    NVIDIA = "nvidia"
    """Whole GPUs that NVIDIA's plugin chooses: `nvidia.com/gpu`."""
    REPLICA = "replica"
    """Time-sliced replicas: `nvidia.com/gpu.shared`."""


@dataclass(frozen=True, slots=True)
class Ask:
    """What one container asks for."""

    container: str
    """Name of the container."""
    index: int
    """Its place in `spec.containers`, or in `spec.initContainers`."""
    init: bool
    """It stands among the init containers (a sidecar does too)."""
    field: str
    """Path of the amount, such as `spec.containers[0].resources.limits[aliyun.com/gpu]`; of a
    share that of its memory."""
    gpus: int = 0
    """Whole GPUs or replicas; 0 for a share."""
    memory: int = 0
    """GPU memory [GiB], over all cards of the pod."""
    core: int = 0
    """Compute [% of one card], over all cards of the pod."""


@dataclass(frozen=True, slots=True)
class Request:
    """What a pod asks for: the totals by Kubernetes' rule, and each container's part."""

    family: Family | None = None
    """None: the pod asks for no GPU, or for nothing that can be read."""
    gpus: int = 0
    """Whole GPUs, or replicas; for a share the number of cards it lies on."""
    memory: int = 0
    """GPU memory of the pod [GiB], over all its cards."""
    core: int = 0
    """Compute of the pod [% of one card], over all its cards."""
    asks: tuple[Ask, ...] = ()
    """App containers first, then init containers, in the order of the pod."""

    @property
    def places(self) -> bool:
        """Linkwise chooses the GPUs; for `nvidia.com/gpu` NVIDIA's plugin does."""
        return self.family is not None and self.family is not Family.NVIDIA

    @property
    def memory_per_card(self) -> int:
        """GPU memory on each card of a share [GiB]."""
        return self.memory // self.gpus if self.gpus else 0

    @property
    def core_per_card(self) -> int:
        """Compute on each card of a share [%]."""
        return self.core // self.gpus if self.gpus else 0


def read_request(pod: Pod) -> tuple[Request, tuple[Finding, ...]]:
    """Return what a pod asks for, and every problem that needs only the pod to be seen."""
    raise NotImplementedError
