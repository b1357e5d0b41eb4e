"""What the API server has shown, and what was written since: from both, the cluster's snapshots.

Pods are the truth. What we write counts from the moment it is decided, and until the watch shows
it: a write whose answer is lost may have been carried out.
"""

from collections.abc import Iterable, Mapping
from dataclasses import replace

from cluster.accounting import account, unresolved_conflict
from cluster.gpu_usage import LedgerError
from cluster.ledger import Conflict, Ledger
from cluster.node import Node
from cluster.node_ledger import NodeLedger
from cluster.pod_usage import PodUsage
from cluster.record import Allocation, RecordError
from scorer.gang.pod_info import PodInfo
from scorer.placement.snapshot import Snapshot
from topology.table import Table, table_of

Key = tuple[str, str]
"""Namespace and name of a pod."""


class ClusterState:
    """Nodes, pods, and who has what; a snapshot costs what changed since the last one."""

    def __init__(self) -> None:
        """Begin with nothing."""
        self._preferences = Snapshot(Ledger())
        self._migrate = False
        self._nodes: dict[str, Node] = {}
        self._tables: dict[str, Table] = {}
        self._pods: dict[Key, PodInfo] = {}
        """As they will be once the watch shows what we wrote."""
        self._assumed: dict[str, tuple[PodInfo, Allocation]] = {}
        """By uid: pods that the watch does not show yet with what we wrote, as it shows them."""
        self._claims: dict[str, dict[str, PodUsage]] = {}
        """By the node on which they hold something, then by uid."""
        self._groups: dict[Key, dict[Key, PodInfo]] = {}
        """Pods that wait or waited for us, by namespace and gang; alone by their own name."""
        self._ledgers: dict[str, NodeLedger] = {}
        self._in_order = True
        """The ledgers are by name."""
        self._conflicts: dict[str, tuple[Conflict, ...]] = {}
        """By the node that is claimed, where there are any."""
        self._stale: dict[str, set[str]] = {}
        """Nodes that are to be accounted anew, and the uids of whose claims changed there."""
        self._snapshot: Snapshot | None = None
        self.capacity_version = 0
        """Grows with every change that may free capacity, so that a refused unit may fit."""
        self._dirty_groups: set[Key] = set()
        self._dirty_nodes: set[str] = set()

    def set_preferences(self, preferences: Snapshot, *, migrate: bool) -> None:
        """Take what the policy prefers.

        Args:
            preferences: A snapshot without nodes.
            migrate: Believe what another scheduler wrote on pods without our record.
        """
        self._preferences, self._snapshot = preferences, None
        self.capacity_version += 1
        if migrate != self._migrate:
            self._migrate = migrate
            self._ledgers.clear()
            for name in self._nodes:
                self._touch(name)

    def update_node(self, name: str, node: Node | None, table: Table | None = None) -> None:
        """Take a node as it is now; None: it is gone.

        Args:
            name: Its name.
            node: The node.
            table: Of its machine; None: built here, unless the node is `preparing`.
        """
        if self._nodes.get(name) == node:
            return
        self._nodes.pop(name, None)
        self._tables.pop(name, None)
        if node is not None:
            self._nodes[name] = node
            if node.machine is not None and not node.preparing:
                self._tables[name] = table or table_of(node.machine)
        self.capacity_version += 1
        self._touch(name)

    def update_pod(self, key: Key, pod: PodInfo | None) -> None:
        """Take a pod as the watch shows it now; None: it is gone."""
        before = self._pods.get(key)
        if before and (pod is None or pod.uid != before.uid):
            self._assumed.pop(before.uid, None)
        if pod is not None and pod.uid in self._assumed:
            if pod.usage and not pod.usage.node and pod.usage.record is None:
                _, allocation = self._assumed[pod.uid]
                self._assumed[pod.uid] = pod, allocation
                pod = pod.with_allocation(allocation)
            else:
                # The watch shows it now, or it needs nothing any more.
                del self._assumed[pod.uid]
        self._set(key, pod)

    def assume(self, pod: PodInfo, allocation: Allocation) -> None:
        """Count GPUs as held by a pod that waits for them, since they are about to be written."""
        self._assumed[pod.uid] = pod, allocation
        self._set(pod.key, pod.with_allocation(allocation))

    def forget(self, pod: PodInfo) -> None:
        """Count a pod's GPUs as free again: what was to be written was refused."""
        found = self._assumed.pop(pod.uid, None)
        if found is not None:
            self._set(pod.key, found[0])

    def is_assumed(self, pod: PodInfo) -> bool:
        """Tell whether a pod is not shown yet with the GPUs that we hold for it."""
        return pod.uid in self._assumed

    def pod(self, key: Key) -> PodInfo | None:
        """Return a pod as it will be once the watch shows what we wrote; None: it is not there."""
        return self._pods.get(key)

    def usages(self, node: str) -> Iterable[PodUsage]:
        """Return the pods that hold something of a node, or will."""
        return self._claims.get(node, {}).values()

    @property
    def preferences(self) -> Snapshot:
        """What the policy prefers, as a snapshot without nodes."""
        return self._preferences

    def ledger(self, name: str) -> NodeLedger | None:
        """Return who has what of one node; None: it is not there. Cost: what changed there."""
        if name in self._stale:
            self._account(name)
        return self._ledgers.get(name)

    def table(self, name: str) -> Table | None:
        """Return what links a node's GPUs; None where it has none, or is not there."""
        return self._tables.get(name)

    def mark_group_dirty(self, group: Key) -> None:
        """Let the planner assemble the units of a group again."""
        self._dirty_groups.add(group)

    def drain_dirty_groups(self) -> frozenset[Key]:
        """Return the groups that changed since the last call. The planner is the only consumer."""
        drained = frozenset(self._dirty_groups)
        self._dirty_groups.clear()
        return drained

    def drain_dirty_nodes(self) -> frozenset[str]:
        """Return the nodes that changed since the last call. The filter is the only consumer."""
        drained = frozenset(self._dirty_nodes)
        self._dirty_nodes.clear()
        return drained

    @property
    def groups(self) -> Iterable[Key]:
        """All gangs' names, and the pods that wait on their own."""
        return self._groups.keys()

    def group(self, at: Key) -> Iterable[PodInfo]:
        """Return the pods of a group: of all gangs of a name, or one pod."""
        return self._groups.get(at, {}).values()

    @property
    def conflicts(self) -> tuple[Conflict, ...]:
        """Pods whose records cannot be honoured. Cost: the nodes on which something changed."""
        for name in list(self._stale):
            self._account(name)
        found = [one for conflicts in self._conflicts.values() for one in conflicts]
        return tuple(sorted(found, key=lambda one: one.pod))

    def snapshot(self) -> Snapshot:
        """Return the cluster as it is now. Cost: the nodes on which something changed."""
        if self._snapshot is not None:
            return self._snapshot
        conflicts = self.conflicts
        if not self._in_order:
            # Whoever reads a snapshot wants its nodes by name.
            self._ledgers = dict(sorted(self._ledgers.items()))
            self._in_order = True
        ledger = Ledger(dict(self._ledgers), conflicts)
        self._snapshot = replace(self._preferences, ledger=ledger, tables=dict(self._tables))
        return self._snapshot

    def _account(self, name: str) -> None:
        node, claims = self._nodes.get(name), self._claims.get(name, {})
        changed = self._stale.pop(name, set())
        if node is None:
            self._ledgers.pop(name, None)
            self._refuse(name, tuple(filter(None, map(unresolved_conflict, claims.values()))))
            return
        ledger = self._ledgers.get(name)
        self._in_order &= ledger is not None
        if ledger is not None and ledger.node is node and not self._conflicts.get(name):
            found = self._reaccount(ledger, {uid: claims.get(uid) for uid in changed})
        else:
            found = None
        self._ledgers[name], refused = (
            (found, ()) if found else account(node, claims.values(), migrate=self._migrate)
        )
        self._refuse(name, refused)

    def _refuse(self, name: str, conflicts: tuple[Conflict, ...]) -> None:
        self._conflicts.pop(name, None)
        if conflicts:
            self._conflicts[name] = conflicts

    def _reaccount(
        self, ledger: NodeLedger, changed: Mapping[str, PodUsage | None]
    ) -> NodeLedger | None:
        """Return the ledger with some claims as they are now; None where all must be looked at.

        While nobody's claim is refused, it does not matter who came first.
        """
        if ledger.unaccounted:
            return None
        for uid in changed:
            ledger = ledger.release(uid)
        try:
            for one in filter(None, changed.values()):
                shares = one.shares_on(ledger.node, migrate=self._migrate)
                ledger = ledger.hold(one.holding(shares))
        except (LedgerError, RecordError):
            return None
        return ledger

    def _set(self, key: Key, pod: PodInfo | None) -> None:
        before = self._pods.pop(key, None)
        if before is not None:
            self._claim(before.uid, before.usage, holds=False)
            self._group(key, before, there=False)
        if pod is not None:
            self._pods[key] = pod
            self._claim(pod.uid, pod.usage, holds=True)
            self._group(key, pod, there=True)
        had = before.usage if before else None
        has = pod.usage if pod else None
        if had != has:
            self.capacity_version += had is not None and bool(had.target)
            for usage in (had, has):
                if usage and (usage.target or usage.record):
                    self._touch(usage.target, usage.uid)

    def _claim(self, uid: str, usage: PodUsage | None, *, holds: bool) -> None:
        if usage and (usage.target or usage.record):
            claims = self._claims.setdefault(usage.target, {})
            if holds:
                claims[uid] = usage
            else:
                del claims[uid]

    def _group(self, key: Key, pod: PodInfo, *, there: bool) -> None:
        name = pod.group
        if name is None:
            return
        at = pod.namespace, name
        self.mark_group_dirty(at)
        group = self._groups.setdefault(at, {})
        if there:
            group[key] = pod
        else:
            group.pop(key, None)
            if not group:
                del self._groups[at]

    def _touch(self, name: str, *uids: str) -> None:
        self._stale.setdefault(name, set()).update(uids)
        self._dirty_nodes.add(name)
        self._snapshot = None
