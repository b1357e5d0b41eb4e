"""Allocated parts of one GPU."""

from dataclasses import dataclass, replace

from linkwise.cluster.allocations.gpus import GPUShare
from linkwise.cluster.nodes.node import Node
from linkwise.cluster.requests.amounts import CORE_MAX


class LedgerError(ValueError):
    """A GPU would be allocated twice, or does not exist: the caller did not check."""


@dataclass(frozen=True, slots=True)
class GPUUsage:
    """Allocated parts of one GPU."""

    holders: int = 0
    """Number of shares or replicas, or 1 if allocated whole."""
    whole: bool = False
    memory: int = 0
    """[GiB]"""
    core: int = 0
    """[%]"""

    def more(self, share: GPUShare, node: Node) -> "GPUUsage":
        """Add a share.

        Args:
            share: The share.
            node: The node of the GPU.

        Raises:
            LedgerError: There is not enough left.
        """
        card = node.cards[share.i]
        where = f"GPU{share.i} of {node.name}"
        if share.uuid and card.uuid and share.uuid != card.uuid:
            raise LedgerError(f"{where} is {card.uuid} now, not {share.uuid}")
        if share.mem is None:
            if node.replicas:
                if self.holders >= node.replicas:
                    raise LedgerError(f"all {node.replicas} replicas of {where} are taken")
                return replace(self, holders=self.holders + 1)
            if self.holders:
                raise LedgerError(f"{where} is taken already")
            return GPUUsage(holders=1, whole=True)
        if self.whole:
            raise LedgerError(f"{where} is taken whole")
        memory, core = self.memory + share.mem, self.core + (share.core or 0)
        if memory > (card.memory or 0) or core > CORE_MAX:
            raise LedgerError(
                f"{where} would give {memory} of {card.memory or 0} GiB and {core} % of its compute"
            )
        return GPUUsage(self.holders + 1, whole=False, memory=memory, core=core)

    def less(self, share: GPUShare) -> "GPUUsage":
        """Remove a share, which must be allocated."""
        return GPUUsage(
            self.holders - 1,
            whole=False,
            memory=self.memory - (share.mem or 0),
            core=self.core - (share.core or 0),
        )
