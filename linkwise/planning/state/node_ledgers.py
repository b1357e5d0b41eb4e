"""The nodes with their ledgers, which are computed again where pods changed."""

from itertools import chain

from linkwise.cluster.account.accounting import account, account_changes, unresolved_conflict
from linkwise.cluster.account.ledger import Conflict, Ledger
from linkwise.cluster.account.node_ledger import NodeLedger
from linkwise.cluster.nodes.node import Node
from linkwise.planning.state.pod_usages import PodUsages
from linkwise.planning.state.reserved_gpus import ReservedGPUs
from linkwise.topology.table import Table, table_of


class NodeLedgers:
    """Nodes, the tables of their machines, and the accounts of their GPUs."""

    def __init__(self, usages: PodUsages, reserved: ReservedGPUs) -> None:
        """Start without nodes.

        Args:
            usages: What pods have of the nodes; after a change call `mark_stale`.
            reserved: GPUs that ledgers count as taken; the same.
        """
        self._usages, self._reserved = usages, reserved
        self._migrate = False
        self._nodes: dict[str, Node] = {}
        self._tables: dict[str, Table] = {}
        self._ledgers: dict[str, NodeLedger] = {}
        self._is_sorted = True
        """The ledgers are sorted by name."""
        self._conflicts: dict[str, tuple[Conflict, ...]] = {}
        """By node."""
        self._stale: dict[str, set[str]] = {}
        """Nodes whose ledger is outdated, and the uids of the pods that changed there."""

    def set_migration(self, *, accepted: bool) -> list[str]:
        """Accept gpushare's records, or not; return the nodes whose ledgers changed."""
        if accepted == self._migrate:
            return []
        self._migrate = accepted
        self._ledgers.clear()
        for name in self._nodes:
            self.mark_stale(name)
        return list(self._nodes)

    def update(self, name: str, node: Node | None, table: Table | None) -> bool:
        """Take a node; None: it was deleted. Return whether no node has its former table now.

        Args:
            name: Its name.
            node: The node.
            table: Of its machine; None: built here, unless the node is `preparing` or its machine
                is refused.
        """
        self._nodes.pop(name, None)
        unused = self._tables.pop(name, None)
        if node is not None:
            self._nodes[name] = node
            if node.machine is not None and not (node.preparing or node.machine_refused):
                self._tables[name] = table or table_of(node.machine)
        self.mark_stale(name)
        return bool(unused) and all(unused is not used for used in self._tables.values())

    def mark_stale(self, name: str, *uids: str) -> None:
        """Compute the ledger of a node again when it is next asked for.

        Args:
            name: Of the node.
            uids: Of the pods that changed there; without any, only the node changed.
        """
        self._stale.setdefault(name, set()).update(uids)

    def node(self, name: str) -> Node | None:
        """Return a node; None: it does not exist."""
        return self._nodes.get(name)

    def table(self, name: str) -> Table | None:
        """Return the table of a node's machine; None: it has none, or it does not exist."""
        return self._tables.get(name)

    @property
    def tables(self) -> dict[str, Table]:
        """A copy of the tables, by node."""
        return dict(self._tables)

    def ledger(self, name: str) -> NodeLedger | None:
        """Return the ledger of a node; None: no such node. Cost: the pods that changed there."""
        if name in self._stale:
            self._account(name)
        return self._ledgers.get(name)

    @property
    def conflicts(self) -> tuple[Conflict, ...]:
        """Pods whose records contradict others. Cost: the nodes that changed."""
        for name in list(self._stale):
            self._account(name)
        conflicts = chain.from_iterable(self._conflicts.values())
        return tuple(sorted(conflicts, key=lambda conflict: conflict.pod))

    def all(self) -> Ledger:
        """Return the ledgers of all nodes. Cost: the nodes that changed."""
        conflicts = self.conflicts
        if not self._is_sorted:
            self._ledgers = dict(sorted(self._ledgers.items()))
            self._is_sorted = True
        return Ledger(dict(self._ledgers), conflicts, is_sorted=True)

    def _account(self, name: str) -> None:
        node, usages = self._nodes.get(name), self._usages.by_uid(name)
        changed = self._stale.pop(name, set())
        if node is None:
            self._ledgers.pop(name, None)
            self._set_conflicts(
                name, tuple(filter(None, map(unresolved_conflict, usages.values())))
            )
            return
        ledger = self._ledgers.get(name)
        self._is_sorted &= ledger is not None
        updated = None
        if ledger is not None and ledger.node is node and not self._conflicts.get(name):
            usages_now = {uid: usages.get(uid) for uid in changed}
            updated = account_changes(ledger, usages_now, migrate=self._migrate)
        ledger, conflicts = (
            (updated, ()) if updated else account(node, usages.values(), migrate=self._migrate)
        )
        self._ledgers[name] = self._reserved.held_on(ledger)
        self._set_conflicts(name, conflicts)

    def _set_conflicts(self, name: str, conflicts: tuple[Conflict, ...]) -> None:
        self._conflicts.pop(name, None)
        if conflicts:
            self._conflicts[name] = conflicts
