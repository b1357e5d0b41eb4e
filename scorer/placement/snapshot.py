"""The cluster at one moment, as every decision sees it."""

from collections.abc import Callable, Iterable, Mapping, Set
from dataclasses import dataclass, field, replace
from functools import cached_property
from operator import lt

from cluster.ledger import Holding, Ledger, NodeLedger
from cluster.node import Placement
from scorer.placement.node_cache import NodeCache, changed_nodes
from topology.choice import Mode
from topology.table import Table, table_of


@dataclass(frozen=True)
class Snapshot:
    """An immutable view: who has what, what links every node's GPUs, what policy prefers."""

    ledger: Ledger
    mode: Mode = Mode.KEEP
    """What a choice of GPUs on one node prefers."""
    placement: Placement = Placement.BINPACK
    """How whole GPUs are laid out over nodes of equal bandwidth."""
    domains: tuple[str, ...] = ()
    """Node labels whose equal values mean a common network domain, nearest first."""
    nic_bandwidth: float | None = None
    """What a node's NICs give together [GB/s]; None where nobody knows."""
    tables: Mapping[str, Table] = field(default_factory=dict)
    """By node name; nodes without GPUs have none."""
    kept: frozenset[str] = frozenset()
    """Nodes that are reserved for another unit, and closed to those that are planned."""
    memo: NodeCache = field(default_factory=NodeCache, repr=False, compare=False)
    """What was found of these nodes, and of those before and after them."""

    @cached_property
    def nodes(self) -> tuple[NodeLedger, ...]:
        """Every node by name, so that ties end the same way each time."""
        nodes = self.ledger.nodes
        # To see that they are in order already takes less time than to look each up.
        if self._in_order:
            return tuple(nodes.values())
        return tuple(nodes[name] for name in sorted(nodes))

    @cached_property
    def _in_order(self) -> bool:
        """Whether the ledger has the nodes by name."""
        names = list(self.ledger.nodes)
        return all(map(lt, names, names[1:]))

    def hold_all(self, holdings: Iterable[tuple[str, Holding]]) -> "Snapshot":
        """Return the snapshot with several pods more, each on the node named beside it."""
        held = replace(self, ledger=self.ledger.hold_all(holdings))
        # The names are the same ones, in the same order.
        vars(held)["_in_order"] = self._in_order
        return held

    def only(self, node: str) -> "Snapshot":
        """Return the same moment as if there were no other node."""
        return replace(self, ledger=Ledger({node: self.ledger.nodes[node]}), memo=self.memo.anew())

    def apart(self, over: Callable[[], bool] | None = None) -> "Snapshot":
        """Return the same moment for another thread: what is found of it is kept apart.

        Args:
            over: Whether the time for it is over, so that whatever looks at its nodes raises
                `memo.Overdue`; None: it never is.
        """
        return replace(self, memo=self.memo.copied(over))

    def without(self, names: Set[str]) -> "Snapshot":
        """Return the same moment as if there were none of these nodes."""
        if not names:
            return self
        nodes = {name: one for name, one in self.ledger.nodes.items() if name not in names}
        return replace(self, ledger=Ledger(nodes))

    def freed(self) -> "Snapshot":
        """Return the same cluster when every pod with GPUs that can end is gone.

        Cost: that of the nodes that changed since the last time.
        """
        nodes = {name: one.freed for name, one in self.ledger.nodes.items()}
        return replace(self, ledger=Ledger(nodes), memo=self.memo.of_freed)

    def emptied(self) -> "Snapshot":
        """Return the same cluster with nothing running on it.

        Cost: that of `nodes`, while no node itself changes.
        """
        preferences = self.mode, self.placement, self.domains, self.nic_bandwidth
        if (kept := self.memo.emptied) and kept[0] == preferences:
            _, before, empty = kept
            same = len(before) == len(self.nodes) and all(
                before[i].node is self.nodes[i].node for i in changed_nodes(before, self.nodes)
            )
            if same:
                self.memo.emptied = preferences, self.nodes, empty
                return empty
        known = {id(one.node): one for one in kept[2].nodes} if kept else {}
        nodes = {one.node.name: known.get(id(one.node)) or one.emptied() for one in self.nodes}
        memo = kept[2].memo if kept else self.memo.anew()
        empty = replace(self, ledger=Ledger(nodes), memo=memo)
        self.memo.emptied = preferences, self.nodes, empty
        return empty


def snapshot_of(ledger: Ledger, tables: Mapping[str, Table] | None = None) -> Snapshot:
    """Return a snapshot with default preferences; `tables` are those known from before.

    Cost: a class's tables for each machine not seen yet (up to seconds, for 16 GPUs on PCIe).
    """
    known = tables or {}
    machines = {name: found.node.machine for name, found in ledger.nodes.items()}
    return Snapshot(
        ledger,
        tables={
            name: known.get(name) or table_of(machine)
            for name, machine in machines.items()
            if machine is not None
        },
    )
