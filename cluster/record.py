"""The record of an allocation on its pod: ours, and the same in the words of others."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class GPUShare:
    """What a pod has of one GPU: all of it, one replica of it, or some memory and compute."""

    i: int
    """GPU index on its node."""
    uuid: str | None = None
    mem: int | None = None
    """Memory [GiB]; None: the whole GPU, or one replica where the node is time-sliced."""
    core: int | None = None
    """Compute [%] of the card; None where none was asked."""
