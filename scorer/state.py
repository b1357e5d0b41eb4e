"""What the API server has shown, and what was written since: from both, the cluster's snapshots.

Pods are the truth. What we write counts from the moment it is decided, and until the watch shows
it: a write whose answer is lost may have been carried out.
"""

from collections.abc import Iterable
from dataclasses import replace

from cluster.accounting import account, homeless
from cluster.claimant import Claimant
from cluster.ledger import Conflict, Ledger, NodeLedger
from cluster.node import Node
from cluster.record import Allocation
from scorer.seen import Seen
from scorer.snapshot import Snapshot
from topology.table import Table, table_of

Key = tuple[str, str]
"""Namespace and name of a pod."""


class State:
    """Nodes, pods, and who has what; a snapshot costs what changed since the last one."""

    def __init__(self) -> None:
        """Begin with nothing."""
        self._preferences = Snapshot(Ledger())
        self._migrate = False
        self._nodes: dict[str, Node] = {}
        self._tables: dict[str, Table] = {}
        self._pods: dict[Key, Seen] = {}
        """As they will be once the watch shows what we wrote."""
        self._ours: dict[str, tuple[Seen, Allocation]] = {}
        """By uid: pods that the watch does not show yet with what we wrote, as it shows them."""
        self._claims: dict[str, dict[str, Claimant]] = {}
        """By the node on which they hold something, then by uid."""
        self._groups: dict[Key, dict[Key, Seen]] = {}
        """Pods that wait or waited for us, by namespace and gang; alone by their own name."""
        self._ledgers: dict[str, NodeLedger] = {}
        self._conflicts: dict[str, tuple[Conflict, ...]] = {}
        self._stale: set[str] = set()
        self._snapshot: Snapshot | None = None
        self.freed = 0
        """Grows with everything that may make room: what did not fit may fit now."""
        self.regrouped: set[Key] = set()
        """Groups of which a pod changed; whoever reads them clears it."""

    def prefer(self, preferences: Snapshot, *, migrate: bool) -> None:
        """Take what the policy prefers.

        Args:
            preferences: A snapshot without nodes.
            migrate: Believe what another scheduler wrote on pods without our record.
        """
        self._preferences, self._snapshot = preferences, None
        self.freed += 1
        if migrate != self._migrate:
            self._migrate = migrate
            self._stale |= self._nodes.keys()

    def put_node(self, name: str, node: Node | None) -> None:
        """Take a node as it is now; None: it is gone."""
        if self._nodes.get(name) == node:
            return
        self._nodes.pop(name, None)
        self._tables.pop(name, None)
        if node is not None:
            self._nodes[name] = node
            if node.machine is not None:
                self._tables[name] = table_of(node.machine)
        self.freed += 1
        self._touch(name)

    def put_pod(self, key: Key, pod: Seen | None) -> None:
        """Take a pod as the watch shows it now; None: it is gone."""
        before = self._pods.get(key)
        if before and (pod is None or pod.uid != before.uid):
            self._ours.pop(before.uid, None)
        if pod is not None and pod.uid in self._ours:
            if pod.claimant and not pod.claimant.node and pod.claimant.record is None:
                _, allocation = self._ours[pod.uid]
                self._ours[pod.uid] = pod, allocation
                pod = pod.given(allocation)
            else:
                # The watch shows it now, or it needs nothing any more.
                del self._ours[pod.uid]
        self._set(key, pod)

    def hold(self, pod: Seen, allocation: Allocation) -> None:
        """Count GPUs as held by a pod that waits for them, since they are about to be written."""
        self._ours[pod.uid] = pod, allocation
        self._set(pod.key, pod.given(allocation))

    def let_go(self, pod: Seen) -> None:
        """Count a pod's GPUs as free again: what was to be written was refused."""
        found = self._ours.pop(pod.uid, None)
        if found is not None:
            self._set(pod.key, found[0])

    @property
    def groups(self) -> Iterable[Key]:
        """All gangs' names, and the pods that wait on their own."""
        return self._groups.keys()

    def group(self, at: Key) -> Iterable[Seen]:
        """Return the pods of a group: of all gangs of a name, or one pod."""
        return self._groups.get(at, {}).values()

    def snapshot(self) -> Snapshot:
        """Return the cluster as it is now. Cost: the nodes on which something changed."""
        if self._snapshot is not None:
            return self._snapshot
        for name in self._stale:
            self._account(name)
        self._stale.clear()
        found = [one for conflicts in self._conflicts.values() for one in conflicts]
        ledger = Ledger(dict(self._ledgers), tuple(sorted(found, key=lambda one: one.pod)))
        self._snapshot = replace(self._preferences, ledger=ledger, tables=dict(self._tables))
        return self._snapshot

    def _account(self, name: str) -> None:
        node, claims = self._nodes.get(name), self._claims.get(name, {}).values()
        if node is None:
            self._ledgers.pop(name, None)
            self._conflicts[name] = tuple(filter(None, map(homeless, claims)))
        else:
            found = account(node, claims, migrate=self._migrate)
            self._ledgers[name], self._conflicts[name] = found

    def _set(self, key: Key, pod: Seen | None) -> None:
        before = self._pods.pop(key, None)
        if before is not None:
            self._claim(before.uid, before.claimant, holds=False)
            self._group(key, before, there=False)
        if pod is not None:
            self._pods[key] = pod
            self._claim(pod.uid, pod.claimant, holds=True)
            self._group(key, pod, there=True)
        had = before.claimant if before else None
        has = pod.claimant if pod else None
        if had != has:
            self.freed += had is not None and bool(had.target)
            for claimant in (had, has):
                if claimant and (claimant.target or claimant.record):
                    self._touch(claimant.target)

    def _claim(self, uid: str, claimant: Claimant | None, *, holds: bool) -> None:
        if claimant and (claimant.target or claimant.record):
            claims = self._claims.setdefault(claimant.target, {})
            if holds:
                claims[uid] = claimant
            else:
                del claims[uid]

    def _group(self, key: Key, pod: Seen, *, there: bool) -> None:
        name = pod.group
        if name is None:
            return
        at = pod.namespace, name
        self.regrouped.add(at)
        group = self._groups.setdefault(at, {})
        if there:
            group[key] = pod
        else:
            group.pop(key, None)
            if not group:
                del self._groups[at]

    def _touch(self, name: str) -> None:
        self._stale.add(name)
        self._snapshot = None
