"""The cluster as watched, plus assumed allocations; both give the snapshots that plans are made of.

Pods are the source of truth. An allocation is assumed from the decision until the watch shows it:
a write whose response is lost may have been carried out.
"""

from linkwise.cluster.account.ledger import Conflict
from linkwise.cluster.account.node_ledger import NodeLedger
from linkwise.cluster.account.pod_usage import PodUsage
from linkwise.cluster.allocations.record import Allocation
from linkwise.cluster.gang import GangKey
from linkwise.cluster.nodes.node import Node
from linkwise.cluster.requests.class_resources import NONE, ClassResources
from linkwise.planning.gang.health import Links
from linkwise.planning.gang.pod_info import PodInfo
from linkwise.planning.placement.options import Preferences
from linkwise.planning.placement.state.node_cache import NodeCache
from linkwise.planning.placement.state.snapshot import Snapshot
from linkwise.planning.state.node_ledgers import NodeLedgers
from linkwise.planning.state.pod_groups import PodGroups
from linkwise.planning.state.pod_usages import PodUsages, has_place
from linkwise.planning.state.reserved_gpus import Place, ReservedGPUs
from linkwise.planning.state.scheduler_nominations import (
    Cluster,
    is_nominated,
    reserve_for_scheduler,
)
from linkwise.planning.state.waiting_rules import WaitingRules
from linkwise.runtime.kube.objects import Key
from linkwise.topology.table import Table


class ClusterState:
    """Nodes, pods and their GPUs. A snapshot costs the nodes that changed since the last one."""

    def __init__(self) -> None:
        """Start without nodes and pods."""
        self._preferences, self._cache = Preferences(), NodeCache()
        self._class_resources: ClassResources | None = NONE
        self._pods: dict[Key, PodInfo] = {}
        """Pods with their assumed allocations."""
        self._assumed: dict[str, tuple[PodInfo, Allocation]] = {}
        """By uid: pods as the watch shows them, without the allocation that is assumed."""
        self._nominated: set[Key] = set()
        """Pods behind our gate that have a nominated node."""
        self._nominated_by_scheduler: set[Key] = set()
        """Pods without our gate that have one."""
        self._waiting_rules = WaitingRules()
        self.groups = PodGroups()
        """The pods with their assumed allocations, by group."""
        self.usages = PodUsages()
        """What these pods have of the nodes."""
        self._snapshot: Snapshot | None = None
        self.reserved = ReservedGPUs(self._reservation_changed)
        """GPUs of members that are being replaced, and of units for which others are evicted."""
        self._ledgers = NodeLedgers(self.usages, self.reserved)
        self.capacity_version = 0
        """Grows with every change that may free capacity, so that a refused unit may fit."""
        self._dirty_nodes: set[str] = set()

    def set_preferences(self, preferences: Preferences, *, migrate: bool) -> None:
        """Take the preferences of the policy.

        Args:
            preferences: The preferences.
            migrate: Accept gpushare's records on pods without a record of Linkwise.
        """
        self._preferences, self._cache, self._snapshot = preferences, NodeCache(), None
        self.capacity_version += 1
        self._dirty_nodes.update(self._ledgers.set_migration(accepted=migrate))

    def set_class_resources(self, resources: ClassResources | None) -> None:
        """Take what DeviceClasses offer; None: it is not known."""
        if resources != self._class_resources:
            self._class_resources, self._snapshot = resources, None
            self.capacity_version += 1

    def update_node(self, name: str, node: Node | None, table: Table | None = None) -> None:
        """Take a node; None: it was deleted.

        Args:
            name: Its name.
            node: The node.
            table: Of its machine; None: built here, unless the node is `preparing` or its machine
                is refused.
        """
        known = self.node(name)
        if known == node:
            return
        if _cards(known) != _cards(node):
            self._mark_pods_dirty(name)
        if self._ledgers.update(name, node, table):
            # Cached values keep tables in memory.
            self._cache = NodeCache()
        self.capacity_version += 1
        self._dirty_nodes.add(name)
        self._snapshot = None

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
        return self._ledgers.node(name)

    def ledger(self, name: str) -> NodeLedger | None:
        """Return the ledger of a node; None: no such node. Cost: the pods that changed there."""
        return self._ledgers.ledger(name)

    def ledger_for(self, name: str, priority: int) -> NodeLedger | None:
        """Return the ledger of a node for a pod without a gang; None: no such node."""
        ledger = self.ledger(name)
        for holding in self.reserved.open_on(name, priority):
            ledger = ledger and ledger.without(holding)
        return ledger

    def ending(self) -> list[Place]:
        """Return the GPUs of pods that are being deleted."""
        ledgers = ((uid, self.ledger(node)) for uid, node in self.usages.ending.items())
        return [
            Place(ledger.node.name, ledger.holdings[uid])
            for uid, ledger in ledgers
            if ledger and uid in ledger.holdings
        ]

    def table(self, name: str) -> Table | None:
        """Return the table of a node's machine; None: it has none, or it does not exist."""
        return self._ledgers.table(name)

    @property
    def links(self) -> Links:
        """What the bandwidth of a gang depends on, beside its GPUs."""
        return Links(self.table, self._preferences.nic_bandwidth)

    def drain_dirty_nodes(self) -> frozenset[str]:
        """Return the nodes that changed since the last call. The filter is the only consumer.

        Pods may name nodes that do not exist; these are left out.
        """
        drained = frozenset(self._dirty_nodes)
        self._dirty_nodes.clear()
        return drained

    @property
    def conflicts(self) -> tuple[Conflict, ...]:
        """Pods whose records contradict others. Cost: the nodes that changed."""
        return self._ledgers.conflicts

    def snapshot(self) -> Snapshot:
        """Return the current snapshot. Cost: the nodes that changed."""
        if self._cache.is_full:
            self._cache, self._snapshot = NodeCache(), None
        if self._snapshot is not None:
            return self._snapshot
        nominated = (self._pods[key] for key in self._nominated_by_scheduler)
        cluster = Cluster(self.ledger, self.table, self._preferences.mode)
        reserve_for_scheduler(self.reserved, nominated, cluster, self.usages.ending.keys())
        ledger, tables = self._ledgers.all(), self._ledgers.tables
        claimed = self._class_resources
        if claimed is None:
            listed = (node.node.resources for node in ledger.in_order)
            claimed = ClassResources(frozenset().union(*listed), are_others=True)
        self._snapshot = Snapshot(
            ledger, self._preferences, tables, cache=self._cache, class_resources=claimed
        )
        return self._snapshot

    def snapshot_for(self, gang: GangKey, priority: int) -> Snapshot:
        """Return the current snapshot for a unit, which may have what is reserved for it."""
        return self.snapshot().without_holdings(self.reserved.open_to(gang, priority))

    def _set(self, key: Key, pod: PodInfo | None) -> None:
        before = self._pods.pop(key, None)
        self._nominated.discard(key)
        self._waiting_rules.update(key, pod)
        if key in self._nominated_by_scheduler:
            self._nominated_by_scheduler.remove(key)
            self._snapshot = None
            self.capacity_version += 1
        if before is not None:
            self.usages.remove(before)
            self.groups.remove(before)
        if pod is not None:
            self._pods[key] = pod
            if pod.waiting and pod.nominated:
                self._nominated.add(key)
            elif is_nominated(pod):
                self._nominated_by_scheduler.add(key)
                self._snapshot = None
            self.usages.add(pod)
            self.groups.add(pod)
        old = before.usage if before else None
        new = pod.usage if pod else None
        if old != new:
            self.capacity_version += self._waiting_rules.may_fit(old, new)
            for usage in (old, new):
                if usage and has_place(usage):
                    self._mark_node_dirty(usage.target, usage.uid)

    def _mark_pods_dirty(self, node: str) -> None:
        """Let the planner assemble the groups of a node's pods again."""
        for usage in self.usages.on(node):
            pod = self.pod_of(usage)
            if pod and pod.group is not None:
                self.groups.mark_dirty((pod.namespace, pod.group))

    def _reservation_changed(self, place: Place) -> None:
        self.capacity_version += 1
        self._mark_node_dirty(place.node, place.holding.uid)

    def _mark_node_dirty(self, name: str, *uids: str) -> None:
        self._ledgers.mark_stale(name, *uids)
        if self.node(name):
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
