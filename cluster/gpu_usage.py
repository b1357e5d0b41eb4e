"""What is given out of one GPU, and never twice."""

from dataclasses import dataclass, replace

from cluster.amounts import CORE_MAX
from cluster.node import Node
from cluster.record import GPUShare


class LedgerError(ValueError):
    """A GPU is given twice, or does not exist: whoever asked had not looked before."""


@dataclass(frozen=True, slots=True)
class GPUUsage:
    """What is given out of one GPU."""

    holders: int = 0
    """Shares, replicas, or the one pod that has it whole."""
    whole: bool = False
    memory: int = 0
    """[GiB]"""
    core: int = 0
    """[%]"""

    def more(self, share: GPUShare, node: Node) -> "GPUUsage":
        """Return it with a share more.

        Args:
            share: What is given out.
            node: Whose GPU it is.

        Raises:
            LedgerError: There is not so much.
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
        """Return it with a share less, which it has."""
        return GPUUsage(
            self.holders - 1,
            whole=False,
            memory=self.memory - (share.mem or 0),
            core=self.core - (share.core or 0),
        )
