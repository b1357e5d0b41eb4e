"""The cluster as watched, plus assumed allocations; both give the snapshots that plans are made of.

Pods are the source of truth. An allocation is assumed from the decision until the watch shows it:
a write whose response is lost may have been carried out.
"""

from collections import Counter
from collections.abc import Iterable
from itertools import chain

from linkwise.cluster.account.accounting import account, account_changes, unresolved_conflict
from linkwise.cluster.account.ledger import Conflict, Ledger
from linkwise.cluster.account.node_ledger import NodeLedger
from linkwise.cluster.account.pod_usage import PodUsage
from linkwise.cluster.allocations.record import Allocation
from linkwise.cluster.gang import GangKey
from linkwise.cluster.nodes.node import Node
from linkwise.planning.gang.health import Links
from linkwise.planning.gang.pod_info import PodInfo
from linkwise.planning.placement.options import Preferences
from linkwise.planning.placement.state.node_cache import NodeCache
from linkwise.planning.placement.state.snapshot import Snapshot
from linkwise.planning.state.reserved_gpus import Place, ReservedGPUs
from linkwise.planning.state.scheduler_nominations import (
    Cluster,
    is_nominated,
    reserve_for_scheduler,
)
from linkwise.runtime.kube.objects import Key
from linkwise.topology.table import Table, table_of


class ClusterState:
    """Nodes, pods and their GPUs. A snapshot costs the nodes that changed since the last one."""

    def __init__(self) -> None:
        """Start without nodes and pods."""
        self._preferences, self._cache = Preferences(), NodeCache()
        self._migrate = False
        self._nodes: dict[str, Node] = {}
        self._tables: dict[str, Table] = {}
        self._pods: dict[Key, PodInfo] = {}
        """Pods with their assumed allocations."""
        self._assumed: dict[str, tuple[PodInfo, Allocation]] = {}
        """By uid: pods as the watch shows them, without the allocation that is assumed."""
        self._usages: dict[str, dict[str, PodUsage]] = {}
        """By node, then by uid of the pod."""
        self._priorities = Counter[int]()
        """The number of pods with GPUs by our record, by their priority."""
        self._priorities_of_others = Counter[int]()
        """The same of pods with whole GPUs that Linkwise did not place."""
        self._ending: dict[str, str] = {}
        """By uid of a pod with GPUs that is being deleted: its node."""
        self._nominated: set[Key] = set()
        """Pods behind our gate that have a nominated node."""
        self._nominated_by_scheduler: set[Key] = set()
        """Pods without our gate that have one."""
        self._groups: dict[Key, dict[Key, PodInfo]] = {}
        """Pods that wait or waited for GPUs, by namespace and gang, or by their own name."""
        self._ledgers: dict[str, NodeLedger] = {}
        self._is_sorted = True
        """The ledgers are sorted by name."""
        self._conflicts: dict[str, tuple[Conflict, ...]] = {}
        """By node."""
        self._stale: dict[str, set[str]] = {}
        """Nodes whose ledger is outdated, and the uids of the pods that changed there."""
        self._snapshot: Snapshot | None = None
        self.reserved = ReservedGPUs(self._reservation_changed)
        """GPUs of members that are being replaced, and of units for which others are evicted."""
        self.capacity_version = 0
        """Grows with every change that may free capacity, so that a refused unit may fit."""
        self._dirty_groups: set[Key] = set()
        self._dirty_nodes: set[str] = set()

    def set_preferences(self, preferences: Preferences, *, migrate: bool) -> None:
        """Take the preferences of the policy.

        Args:
            preferences: The preferences.
            migrate: Accept gpushare's records on pods without a record of Linkwise.
        """
        self._preferences, self._cache, self._snapshot = preferences, NodeCache(), None
        self.capacity_version += 1
        if migrate != self._migrate:
            self._migrate = migrate
            self._ledgers.clear()
            for name in self._nodes:
                self._mark_node_dirty(name)

    def update_node(self, name: str, node: Node | None, table: Table | None = None) -> None:
        """Take a node; None: it was deleted.

        Args:
            name: Its name.
            node: The node.
            table: Of its machine; None: built here, unless the node is `preparing` or its machine
                is refused.
        """
        known = self._nodes.get(name)
        if known == node:
            return
        if _cards(known) != _cards(node):
            self._mark_pods_dirty(name)
        self._nodes.pop(name, None)
        unused = self._tables.pop(name, None)
        if node is not None:
            self._nodes[name] = node
            if node.machine is not None and not (node.preparing or node.machine_refused):
                self._tables[name] = table or table_of(node.machine)
        if unused and all(unused is not used for used in self._tables.values()):
            # Cached values keep tables in memory.
            self._cache = NodeCache()
        self.capacity_version += 1
        self._dirty_nodes.add(name)
        self._mark_node_dirty(name)

    def update_pod(self, key: Key, pod: PodInfo | None) -> None:
        """Take a pod of the watch; None: it was deleted."""
        before = self._pods.get(key)
        if before and (pod is None or pod.uid != before.uid):
            self._assumed.pop(before.uid, None)
        if pod is not None and pod.uid in self._assumed:
            before_write, allocation = self._assumed[pod.uid]
            if _is_unwritten(pod, before_write):
                self._assumed[pod.uid] = pod, allocation
                pod = pod.with_allocation(allocation)
            else:
                # The watch shows the allocation, or the pod has finished.
                del self._assumed[pod.uid]
        self._set(key, pod)

    def assume(self, pod: PodInfo, allocation: Allocation) -> None:
        """Count GPUs as allocated to a pod that is not bound, before they are written."""
        self._assumed[pod.uid] = pod, allocation
        self._set(pod.key, pod.with_allocation(allocation))

    def forget(self, pod: PodInfo) -> None:
        """Count the assumed GPUs of a pod as free again, since the write was refused."""
        assumed = self._assumed.pop(pod.uid, None)
        if assumed is not None:
            self._set(pod.key, assumed[0])

    def is_assumed(self, pod: PodInfo) -> bool:
        """Return whether the watch does not show the allocation of a pod yet."""
        return pod.uid in self._assumed

    def pod(self, key: Key) -> PodInfo | None:
        """Return a pod with its assumed allocation; None: it does not exist."""
        return self._pods.get(key)

    def pod_of(self, usage: PodUsage) -> PodInfo | None:
        """Return the pod with a usage; None: it does not exist any more."""
        namespace, _, name = usage.name.partition("/")
        pod = self._pods.get((namespace, name))
        return pod if pod and pod.uid == usage.uid else None

    @property
    def pods(self) -> tuple[PodInfo, ...]:
        """All pods, with their assumed allocations."""
        return tuple(self._pods.values())

    def usages(self, node: str) -> Iterable[PodUsage]:
        """Return the usages of pods that are bound to a node, or have an allocation there."""
        return self._usages.get(node, {}).values()

    def lowest_priority(self, *, others: bool) -> int | None:
        """Return the lowest priority of a pod with GPUs by our record; None: there is none.

        Args:
            others: Pods with whole GPUs that Linkwise did not place count, too.
        """
        counted = (self._priorities, self._priorities_of_others if others else ())
        return min(chain.from_iterable(counted), default=None)

    @property
    def nominated(self) -> list[PodInfo]:
        """The pods behind our gate that have a nominated node."""
        return [self._pods[key] for key in self._nominated]

    @property
    def preferences(self) -> Preferences:
        """The preferences of the policy."""
        return self._preferences

    def node(self, name: str) -> Node | None:
        """Return a node; None: it does not exist."""
        return self._nodes.get(name)

    def ledger(self, name: str) -> NodeLedger | None:
        """Return the ledger of a node; None: no such node. Cost: the pods that changed there."""
        if name in self._stale:
            self._account(name)
        return self._ledgers.get(name)

    def ledger_for(self, name: str, priority: int) -> NodeLedger | None:
        """Return the ledger of a node for a pod without a gang; None: no such node."""
        ledger = self.ledger(name)
        for holding in self.reserved.open_on(name, priority):
            ledger = ledger and ledger.without(holding)
        return ledger

    def ending(self) -> list[Place]:
        """Return the GPUs of pods that are being deleted."""
        ledgers = ((uid, self.ledger(node)) for uid, node in self._ending.items())
        return [
            Place(ledger.node.name, ledger.holdings[uid])
            for uid, ledger in ledgers
            if ledger and uid in ledger.holdings
        ]

    def is_ending(self, uid: str) -> bool:
        """Return whether a pod with GPUs is being deleted."""
        return uid in self._ending

    def table(self, name: str) -> Table | None:
        """Return the table of a node's machine; None: it has none, or it does not exist."""
        return self._tables.get(name)

    @property
    def links(self) -> Links:
        """What the bandwidth of a gang depends on, beside its GPUs."""
        return Links(self.table, self._preferences.nic_bandwidth)

    def mark_group_dirty(self, group: Key) -> None:
        """Let the planner assemble the units of a group again."""
        self._dirty_groups.add(group)

    def drain_dirty_groups(self) -> frozenset[Key]:
        """Return the groups that changed since the last call. The planner is the only consumer."""
        drained = frozenset(self._dirty_groups)
        self._dirty_groups.clear()
        return drained

    def drain_dirty_nodes(self) -> frozenset[str]:
        """Return the nodes that changed since the last call. The filter is the only consumer.

        Pods may name nodes that do not exist; these are left out.
        """
        drained = frozenset(self._dirty_nodes)
        self._dirty_nodes.clear()
        return drained

    @property
    def groups(self) -> Iterable[Key]:
        """Namespaces and names of gangs, and of pods that wait without a gang."""
        return self._groups.keys()

    def group(self, key: Key) -> Iterable[PodInfo]:
        """Return the pods of a group: of all gangs of a name, or one pod."""
        return self._groups.get(key, {}).values()

    @property
    def conflicts(self) -> tuple[Conflict, ...]:
        """Pods whose records contradict others. Cost: the nodes that changed."""
        for name in list(self._stale):
            self._account(name)
        conflicts = chain.from_iterable(self._conflicts.values())
        return tuple(sorted(conflicts, key=lambda conflict: conflict.pod))

    def snapshot(self) -> Snapshot:
        """Return the current snapshot. Cost: the nodes that changed."""
        if self._cache.is_full:
            self._cache, self._snapshot = NodeCache(), None
        if self._snapshot is not None:
            return self._snapshot
        nominated = (self._pods[key] for key in self._nominated_by_scheduler)
        cluster = Cluster(self.ledger, self.table, self._preferences.mode)
        reserve_for_scheduler(self.reserved, nominated, cluster, self._ending.keys())
        conflicts = self.conflicts
        if not self._is_sorted:
            self._ledgers = dict(sorted(self._ledgers.items()))
            self._is_sorted = True
        ledger = Ledger(dict(self._ledgers), conflicts, is_sorted=True)
        self._snapshot = Snapshot(ledger, self._preferences, dict(self._tables), cache=self._cache)
        return self._snapshot

    def snapshot_for(self, gang: GangKey, priority: int) -> Snapshot:
        """Return the current snapshot for a unit, which may have what is reserved for it."""
        return self.snapshot().without_holdings(self.reserved.open_to(gang, priority))

    def _account(self, name: str) -> None:
        node, usages = self._nodes.get(name), self._usages.get(name, {})
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
        self._ledgers[name] = self.reserved.held_on(ledger)
        self._set_conflicts(name, conflicts)

    def _set_conflicts(self, name: str, conflicts: tuple[Conflict, ...]) -> None:
        self._conflicts.pop(name, None)
        if conflicts:
            self._conflicts[name] = conflicts

    def _set(self, key: Key, pod: PodInfo | None) -> None:
        before = self._pods.pop(key, None)
        self._nominated.discard(key)
        if key in self._nominated_by_scheduler:
            self._nominated_by_scheduler.remove(key)
            self._snapshot = None
            self.capacity_version += 1
        if before is not None:
            self._ending.pop(before.uid, None)
            self._set_usage(before.uid, before.usage, exists=False)
            self._set_group(key, before, exists=False)
        if pod is not None:
            self._pods[key] = pod
            if pod.waiting and pod.nominated:
                self._nominated.add(key)
            elif is_nominated(pod):
                self._nominated_by_scheduler.add(key)
                self._snapshot = None
            if pod.is_ending and pod.usage:
                self._ending[pod.uid] = pod.usage.target
            self._set_usage(pod.uid, pod.usage, exists=True)
            self._set_group(key, pod, exists=True)
        old = before.usage if before else None
        new = pod.usage if pod else None
        if old != new:
            self.capacity_version += old is not None and bool(old.target)
            for usage in (old, new):
                if usage and (usage.target or usage.record):
                    self._mark_node_dirty(usage.target, usage.uid)

    def _set_usage(self, uid: str, usage: PodUsage | None, *, exists: bool) -> None:
        if usage and (usage.target or usage.record):
            usages = self._usages.setdefault(usage.target, {})
            if exists:
                usages[uid] = usage
            else:
                del usages[uid]
                if not usages:
                    del self._usages[usage.target]
            if usage.allocation or usage.is_of_others:
                ours, others = self._priorities, self._priorities_of_others
                counts = ours if usage.allocation else others
                counts[usage.priority] += 1 if exists else -1
                if not counts[usage.priority]:
                    del counts[usage.priority]

    def _set_group(self, key: Key, pod: PodInfo, *, exists: bool) -> None:
        if pod.group is None:
            return
        group_key = pod.namespace, pod.group
        self.mark_group_dirty(group_key)
        group = self._groups.setdefault(group_key, {})
        if exists:
            group[key] = pod
        else:
            group.pop(key, None)
            if not group:
                del self._groups[group_key]

    def _mark_pods_dirty(self, node: str) -> None:
        """Let the planner assemble the groups of a node's pods again."""
        for usage in self.usages(node):
            pod = self.pod_of(usage)
            if pod and pod.group is not None:
                self.mark_group_dirty((pod.namespace, pod.group))

    def _reservation_changed(self, place: Place) -> None:
        self.capacity_version += 1
        self._mark_node_dirty(place.node, place.holding.uid)

    def _mark_node_dirty(self, name: str, *uids: str) -> None:
        self._stale.setdefault(name, set()).update(uids)
        if name in self._nodes:
            self._dirty_nodes.add(name)
        self._snapshot = None


def _is_unwritten(pod: PodInfo, before: PodInfo) -> bool:
    """Return whether a pod of the watch has the record that it had before a write, and no node."""
    usage, record = pod.usage, before.usage.record if before.usage else None
    return usage is not None and not usage.node and usage.record == record


def _cards(node: Node | None) -> tuple[object, ...]:
    """Return the health of a node and of its cards, and their names in claims."""
    if node is None:
        return ()
    names = node.pool.devices if node.pool else ()
    cards = ((card.uuid, card.healthy, card.faulty) for card in node.cards)
    return node.ready, names, tuple(cards)
