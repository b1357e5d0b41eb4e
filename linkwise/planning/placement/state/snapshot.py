"""The cluster at one moment: the input of every placement decision."""

from collections.abc import Callable, Iterable, Mapping, Set
from dataclasses import dataclass, field, replace

from linkwise.cluster.account.ledger import Ledger
from linkwise.cluster.account.node_ledger import Holding, NodeLedger
from linkwise.cluster.requests.class_resources import NONE, ClassResources
from linkwise.cluster.requests.neighbors.namespaces import Labels
from linkwise.cluster.requests.user_claims.pod_claims import NO_NEEDS, DeviceNeeds
from linkwise.cluster.volumes.objects import VolumeObjects
from linkwise.planning.placement.options import Preferences
from linkwise.planning.placement.state.generations import changed_nodes
from linkwise.planning.placement.state.node_cache import NodeCache, NodesWithoutPods
from linkwise.topology.table import Table, table_of

_DEFAULT = Preferences()


@dataclass(frozen=True)
class Snapshot:
    """An immutable view of nodes, their GPU links and holders, under the policy's preferences."""

    ledger: Ledger
    preferences: Preferences = _DEFAULT
    tables: Mapping[str, Table] = field(default_factory=dict)
    """By node name; nodes without GPUs have none."""
    cache: NodeCache = field(default_factory=NodeCache, repr=False, compare=False)
    """Values of these nodes, shared with the snapshots before and after this one."""
    class_resources: ClassResources = NONE
    """Resources for which kube-scheduler makes claims where a node has none of them."""
    volumes: VolumeObjects | None = field(default=None, repr=False, compare=False)
    """What is known of volumes, for pods that do not exist yet; None: nothing."""
    namespaces: Mapping[str, Labels] | None = field(default=None, repr=False, compare=False)
    """The labels of namespaces, for pods that do not exist yet; None: they are not known."""
    needs: DeviceNeeds = NO_NEEDS
    """The needs by which GPUs are closed and sets are not allowed, see `selected_nodes`."""

    around: "Snapshot | None" = field(default=None, repr=False, compare=False)
    """The cluster of which these are some nodes: pods on the others count for affinity and topology
    spread, too. None: these are all nodes."""

    @property
    def whole(self) -> "Snapshot":
        """The cluster of which these are some nodes, or all."""
        return self.around or self

    @property
    def nodes(self) -> tuple[NodeLedger, ...]:
        """Every node, in the order of names."""
        return self.ledger.in_order

    def hold_all(self, holdings: Iterable[tuple[str, Holding]]) -> "Snapshot":
        """Return the snapshot with more pods, each on the node named beside it."""
        held = tuple(holdings)
        around = self.around.hold_all(held) if self.around else None
        return replace(self, ledger=self.ledger.hold_all(held), around=around)

    def only(self, *names: str) -> "Snapshot":
        """Return the same moment with these nodes alone."""
        ledger = Ledger({name: self.ledger.nodes[name] for name in names})
        return replace(self, ledger=ledger, cache=self.cache.fresh(), around=self.whole)

    def fork(self, is_over: Callable[[], bool] | None = None) -> "Snapshot":
        """Return the same moment with a cache of its own, for another thread.

        Args:
            is_over: Whether the time for planning is over; from then on planning raises
                `DeadlineExceeded`. None: it has no end.
        """
        around = self.around.fork(is_over) if self.around else None
        return replace(self, cache=self.cache.fork(is_over), around=around)

    def without(self, names: Set[str]) -> "Snapshot":
        """Return the same moment without these nodes."""
        if not names:
            return self
        nodes = {name: node for name, node in self.ledger.nodes.items() if name not in names}
        return replace(self, ledger=Ledger(nodes), around=self.whole)

    def open_nodes(self) -> "Snapshot":
        """Return the same moment with the nodes alone that are ready and not cordoned."""
        closed = (node.node for node in self.nodes)
        return self.without({one.name for one in closed if one.unschedulable or not one.ready})

    def without_holdings(self, holdings: Iterable[tuple[str, Holding]]) -> "Snapshot":
        """Return the same moment without these entries of the ledger, each on its node."""
        nodes, gone = self.ledger.nodes, tuple(holdings)
        changed: dict[str, NodeLedger] = {}
        for name, holding in gone:
            if before := changed.get(name, nodes.get(name)):
                changed[name] = before.without(holding)
        if not changed:
            return self
        around = self.around.without_holdings(gone) if self.around else None
        ledger = replace(self.ledger, nodes={**nodes, **changed})
        return replace(self, ledger=ledger, around=around)

    def without_gpu_pods(self) -> "Snapshot":
        """Return the same cluster without the pods with GPUs that can end.

        Cost: the nodes that changed since the last call.
        """
        nodes = {name: node.without_gpu_pods for name, node in self.ledger.nodes.items()}
        cache = self.cache.without_gpu_pods
        return replace(self, ledger=Ledger(nodes), cache=cache, around=None)

    def without_pods(self) -> "Snapshot":
        """Return the same cluster with nothing running on it.

        Cost: that of `nodes`, while no node itself changes.
        """
        known = self.cache.nodes_without_pods
        if known and _are_same(known.before, self.nodes):
            without_pods = replace(known, before=self.nodes)
        else:
            by_node = {id(node.node): node for node in known.ledger.in_order} if known else {}
            nodes = (by_node.get(id(node.node)) or node.without_pods() for node in self.nodes)
            ledger = Ledger({node.node.name: node for node in nodes})
            cache = known.cache if known else self.cache.fresh()
            without_pods = NodesWithoutPods(self.nodes, ledger, cache)
        self.cache.nodes_without_pods = without_pods
        ledger, cache = without_pods.ledger, without_pods.cache
        return replace(self, ledger=ledger, cache=cache, around=None)


def snapshot_of(
    ledger: Ledger,
    tables: Mapping[str, Table] | None = None,
    preferences: Preferences = _DEFAULT,
    class_resources: ClassResources = NONE,
) -> Snapshot:
    """Return a snapshot with the link tables of its nodes.

    Args:
        ledger: The nodes.
        tables: Those that are built already, by node.
        preferences: Those of the policy.
        class_resources: What DeviceClasses offer.

    Cost: the tables of each new class of machine (up to seconds, for 16 GPUs on PCIe).
    """
    known = tables or {}
    machines = {name: node.node.machine for name, node in ledger.nodes.items()}
    return Snapshot(
        ledger,
        tables={
            name: known.get(name) or table_of(machine)
            for name, machine in machines.items()
            if machine is not None
        },
        preferences=preferences,
        class_resources=class_resources,
    )


def _are_same(before: tuple[NodeLedger, ...], now: tuple[NodeLedger, ...]) -> bool:
    """Return whether the nodes themselves are the same, whatever runs on them."""
    changed = changed_nodes(before, now)
    return len(before) == len(now) and all(before[i].node is now[i].node for i in changed)
