"""A node's part in a plan: how many workers sit there, and on which GPUs."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache
from typing import NamedTuple

from cluster.ledger import NodeLedger
from scorer.placement.partition import choose_linked
from topology.choice import Ask, Mode, choose
from topology.table import Table


@dataclass(frozen=True, slots=True)
class Candidate:
    """A node that can take some workers of a group."""

    node: NodeLedger
    table: Table
    room: int
    """How many workers it can take."""

    @property
    def name(self) -> str:
        """The node's name."""
        return self.node.node.name


@dataclass(frozen=True)
class NodeAssignment:
    """Some workers on one node."""

    candidate: Candidate
    workers: int
    mask: int
    """Their GPUs."""

    @cached_property
    def name(self) -> str:
        """The node's name."""
        return self.candidate.name

    @cached_property
    def bandwidth(self) -> float:
        """A of the GPUs taken here [GB/s]; 0 for one GPU."""
        return self.candidate.table.bandwidth(self.mask)

    @property
    def left(self) -> int:
        """Mask of the GPUs that stay free here."""
        return self.candidate.node.free_mask & ~self.mask


class Offer(NamedTuple):
    """What a machine gives to some workers when these GPUs of it are free."""

    mask: int
    bandwidth: float
    """A [GB/s]; 0 for one GPU."""
    left: int
    """How many GPUs stay free."""
    damage: float
    """How much worse what stays free is than what was: lost 0.25·(V_2 + V_4) [GB/s]."""
    near: int
    """How near the GPUs are to a NIC each, as the sum of their PCIe levels."""


@dataclass(frozen=True, slots=True)
class SelectionOptions:
    """How GPUs are to be chosen on each node of a plan."""

    mode: Mode
    linked: bool = False
    """Every worker set must be connected by NVLink alone; on one node the whole set, too."""
    multi_node: bool = False


@lru_cache(maxsize=1 << 16)
def offer(table: Table, free: int, sizes: tuple[int, ...], wish: SelectionOptions) -> Offer | None:
    """Return what a machine gives to workers, or None where no set of GPUs satisfies the wish.

    Args:
        table: The machine.
        free: Mask of its free GPUs.
        sizes: GPUs of each worker.
        wish: What is asked of them.
    """
    ask = Ask(
        free,
        sum(sizes),
        mode=wish.mode,
        multi_node=wish.multi_node,
        linked=wish.linked and not wish.multi_node,
    )
    mask = choose_linked(table, ask, sizes) if wish.linked else choose(table, ask)
    if mask is None:
        return None
    left = free & ~mask
    damage = round(table.remainder(free) - table.remainder(left), 6)
    return Offer(mask, table.bandwidth(mask), left.bit_count(), damage, int(table.near[mask]))


def bandwidth_over(seats: Sequence[NodeAssignment], nic_bandwidth: float | None) -> float | None:
    """Return the modelled all-reduce bandwidth of workers over these nodes [GB/s].

    On one node it is A. Over n nodes it is the worst node's A, where nodes with one GPU do not
    count, and at most NIC bandwidth · n/(2(n−1)) where that is known. None where it is not defined,
    or where nobody knows how the GPUs taken of one of the nodes are linked.
    """
    several = [seat for seat in seats if seat.mask.bit_count() > 1]
    if not all(seat.candidate.node.node.machine_known for seat in several):
        return None
    limits = [seat.bandwidth for seat in several]
    n = len(seats)
    if n > 1 and nic_bandwidth is not None:
        limits.append(nic_bandwidth * n / (2 * (n - 1)))
    return round(min(limits), 6) if limits else None
