"""The ledger: an immutable account of the GPUs of every node."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property

from linkwise.cluster.account.gpu_usage import LedgerError
from linkwise.cluster.account.node_ledger import Holding, NodeLedger


@dataclass(frozen=True, slots=True)
class Conflict:
    """An unbound pod whose record is invalid: it has to be evicted."""

    pod: str
    uid: str
    node: str | None
    """The node of its record; None if the record is unreadable."""
    reason: str


@dataclass(frozen=True)
class Ledger:
    """Account of every node; `hold` and `release` return a new ledger.

    Cost: one copy of the mapping of nodes.
    """

    nodes: Mapping[str, NodeLedger] = field(default_factory=dict)
    """By node name, in the order of names, so that ties are broken the same way each time."""
    conflicts: tuple[Conflict, ...] = ()
    is_sorted: bool = field(default=False, repr=False, compare=False)
    """The given nodes are in this order; else they are sorted. A copy by `replace` keeps it."""

    def __post_init__(self) -> None:
        if not self.is_sorted:
            names = sorted(self.nodes)
            if names != list(self.nodes):
                object.__setattr__(self, "nodes", {name: self.nodes[name] for name in names})
            object.__setattr__(self, "is_sorted", True)

    @cached_property
    def in_order(self) -> tuple[NodeLedger, ...]:
        """The nodes, in the order of names."""
        return tuple(self.nodes.values())

    def hold(self, node: str, holding: Holding) -> "Ledger":
        """Return the ledger with another pod on a node.

        Raises:
            LedgerError: There is no such node, or as `NodeLedger.hold`.
        """
        return self.hold_all([(node, holding)])

    def hold_all(self, holdings: Iterable[tuple[str, Holding]]) -> "Ledger":
        """Return the ledger with several more pods, each on its node.

        Raises:
            LedgerError: There is no such node, or as `NodeLedger.hold`.
        """
        changed: dict[str, NodeLedger] = {}
        for node, holding in holdings:
            if node not in self.nodes:
                raise LedgerError(f"{holding.pod} cannot be on {node}: there is no such node")
            changed[node] = changed.get(node, self.nodes[node]).hold(holding)
        return replace(self, nodes={**self.nodes, **changed})

    def release(self, uid: str) -> "Ledger":
        """Return the ledger without a pod; itself if the pod is unknown."""
        for ledger in self.nodes.values():
            if uid in ledger.holdings:
                rest = {**self.nodes, ledger.node.name: ledger.release(uid)}
                return replace(self, nodes=rest)
        return self
