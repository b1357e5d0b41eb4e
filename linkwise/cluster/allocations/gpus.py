"""The GPUs of a pod on its node: the GPUs themselves, their number, or why neither is known.

Records, ledgers, plans and the Gang resource all carry these values. Each known variant has its
shares and its length, so that most code needs no distinction.
"""

from dataclasses import dataclass
from typing import ClassVar, TypeAlias

_LENGTH_MAX = 2**63 - 1
"""The largest length in Python."""


@dataclass(frozen=True, slots=True)
class GPUShare:
    """Part of one GPU: all of it, one replica, or some memory and compute."""

    i: int
    """GPU index on its node."""
    uuid: str | None = None
    mem: int | None = None
    """Memory [GiB]; None: the whole GPU, or one replica on a time-sliced node."""
    core: int | None = None
    """Compute [%] of the card; None if not requested."""


@dataclass(frozen=True, slots=True)
class Exact:
    """GPUs that are known, because Linkwise or another scheduler chose them."""

    shares: tuple[GPUShare, ...] = ()
    """In the order of containers; the GPU of a replica may repeat."""

    def __len__(self) -> int:
        """Return the number of GPUs, whole or in part, or of replicas."""
        return len(self.shares)

    @property
    def indices(self) -> tuple[int, ...]:
        """GPU indices, ascending; of replicas one entry each."""
        return tuple(sorted(share.i for share in self.shares))


@dataclass(frozen=True, slots=True)
class Counted:
    """GPUs or replicas that NVIDIA's plugin chooses on the node: only their number is known."""

    resource: str
    """`nvidia.com/gpu` or `nvidia.com/gpu.shared`."""
    number: int
    """At least 1."""
    shares: ClassVar[tuple[GPUShare, ...]] = ()
    indices: ClassVar[tuple[int, ...]] = ()

    def __len__(self) -> int:
        """Return the number of GPUs, or of replicas; `_LENGTH_MAX` if there are more."""
        # Users may ask for any number.
        return min(self.number, _LENGTH_MAX)


@dataclass(frozen=True, slots=True)
class Unreadable:
    """It is not known which GPUs a pod has, nor how many."""

    reason: str


GPUs: TypeAlias = Exact | Counted
"""GPUs that a ledger counts."""
NO_GPUS = Exact()


def number_counted(gpus: GPUs, resource: str | None = None) -> int:
    """Return the number of GPUs that NVIDIA's plugin chooses.

    Args:
        gpus: Of a pod.
        resource: Only of this resource; None: of any.
    """
    if isinstance(gpus, Counted) and resource in {None, gpus.resource}:
        return gpus.number
    return 0
