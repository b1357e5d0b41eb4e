"""The part of a plan on one node: its workers and their GPUs."""

from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

from linkwise.cluster.account.node_ledger import NodeLedger
from linkwise.planning.placement.assignment.partition import choose_linked
from linkwise.topology.choice import ChoiceMode, ChoiceRequest, choose
from linkwise.topology.per_table import per_table
from linkwise.topology.table import Table


@dataclass(frozen=True)
class NodeAssignment:
    """Workers on one node, and their GPUs."""

    ledger: NodeLedger
    table: Table
    mask: int
    """Their GPUs."""
    workers: int = 1

    @property
    def name(self) -> str:
        """The node's name."""
        return self.ledger.node.name

    @cached_property
    def bandwidth(self) -> float:
        """A of these GPUs [GB/s]; 0 for one GPU."""
        return self.table.bandwidth(self.mask)


class CountedAssignment(NamedTuple):
    """Workers on one node where NVIDIA's plugin chooses their GPUs."""

    name: str
    """The node's name."""
    workers: int


class Selection(NamedTuple):
    """The GPUs selected on a machine, and what they cost the machine."""

    mask: int
    bandwidth: float
    """A, with the GPUs of other members [GB/s]; 0 for one GPU."""
    free_after: int
    """Number of GPUs that stay free."""
    damage: float
    """Loss of 0.25·(V_2 + V_4) of the free GPUs [GB/s]."""
    near: int
    """Sum of the PCIe levels between each GPU and its nearest NIC."""


class SelectionOptions(NamedTuple):
    """Options of the selection on each node of a plan; a tuple, which has the fastest hash."""

    mode: ChoiceMode
    linked: bool = False
    """Every worker's set must be connected by NVLink alone; on one node the whole set, too."""
    multi_node: bool = False
    siblings: int = 0
    """Mask of the GPUs of other members there: the best set together with these is selected."""


@per_table(1 << 16)
def select_gpus(
    table: Table, free: int, sizes: tuple[int, ...], options: SelectionOptions
) -> Selection | None:
    """Select GPUs of a machine for workers; None where no set satisfies the options.

    Args:
        table: The machine.
        free: Mask of its free GPUs.
        sizes: GPUs of each worker.
        options: How to select them.
    """
    siblings = options.siblings & ~free
    request = ChoiceRequest(
        free | siblings,
        sum(sizes) + siblings.bit_count(),
        required=siblings,
        mode=options.mode,
        multi_node=options.multi_node,
        linked=options.linked and not options.multi_node,
    )
    mask = choose_linked(table, request, sizes) if options.linked else choose(table, request)
    if mask is None:
        return None
    bandwidth, mask = table.bandwidth(mask), mask & ~siblings
    free_after = free & ~mask
    damage = round(table.remainder(free) - table.remainder(free_after), 6)
    return Selection(mask, bandwidth, free_after.bit_count(), damage, int(table.near[mask]))
