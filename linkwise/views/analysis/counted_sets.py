"""The GPUs of each pod or gang on a node where NVIDIA's plugin chooses them. Pure."""

from dataclasses import dataclass

from linkwise.cluster.account.node_ledger import Holding, NodeLedger
from linkwise.cluster.allocations.gpus import Counted
from linkwise.cluster.keys import NVIDIA_GPU
from linkwise.topology.table import table_of


@dataclass(frozen=True, slots=True)
class CountedSet:
    """The GPUs of one pod, or of the pods of one gang, on a node of NVIDIA's plugin."""

    resource: str
    """`nvidia.com/gpu` or `nvidia.com/gpu.shared`."""
    holdings: tuple[Holding, ...]
    """By pod name."""
    gang: str | None
    """`namespace/name`."""
    count: int
    """Number of GPUs, or of replicas."""
    is_whole: bool
    """They are all GPUs of the node, so it is known which."""
    bandwidth: float | None
    """All-reduce bandwidth of all GPUs of the node [GB/s]; None: not known, or one GPU."""
    is_unknown: bool
    """The bandwidth depends on the choice of NVIDIA's plugin."""


def counted_sets(ledger: NodeLedger) -> tuple[CountedSet, ...]:
    """Return the sets of a node by pod or gang, in the order of their first pods' names."""
    by_unit: dict[tuple[str, str], list[Holding]] = {}
    for holding in sorted(ledger.holdings.values(), key=lambda holding: holding.pod):
        if isinstance(holding.gpus, Counted):
            unit = holding.gpus.resource, holding.gang or holding.uid
            by_unit.setdefault(unit, []).append(holding)
    return tuple(_set(ledger, resource, holdings) for (resource, _), holdings in by_unit.items())


def _set(ledger: NodeLedger, resource: str, holdings: list[Holding]) -> CountedSet:
    node = ledger.node
    count = sum(len(holding.gpus) for holding in holdings)
    is_gpus = resource == NVIDIA_GPU
    is_whole = is_gpus and count == len(node.cards) and not (ledger.unaccounted or node.parts)
    is_known = is_whole and count > 1 and node.machine is not None and node.machine_known
    table = table_of(node.machine) if is_known and node.machine else None
    return CountedSet(
        resource=resource,
        holdings=tuple(holdings),
        gang=holdings[0].gang,
        count=count,
        is_whole=is_whole,
        bandwidth=table.bandwidth((1 << count) - 1) if table else None,
        is_unknown=is_gpus and count > 1 and not is_whole,
    )
