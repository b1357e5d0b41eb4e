"""Reads a cluster from a file: its nodes, the pods that hold GPUs, and its other objects."""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import cache

from linkwise.cluster.account.accounting import Accounting
from linkwise.cluster.account.ledger import Ledger
from linkwise.cluster.keys import SCORER
from linkwise.cluster.memo import Memo
from linkwise.cluster.nodes.device_claims import ClaimObject, HeldClaim
from linkwise.cluster.nodes.lost_gpus import RecordedGPU
from linkwise.cluster.nodes.node import Node
from linkwise.cluster.nodes.node_devices import devices_by_node, devices_of_node
from linkwise.cluster.nodes.node_resources import NodeObject
from linkwise.cluster.nodes.resource_slice import PoolSlice
from linkwise.cluster.nodes.taint_rules import TaintRule
from linkwise.cluster.objects.pod import Pod
from linkwise.cluster.requests.class_resources import NONE, ClassResources, offered_by, resources_of
from linkwise.cluster.requests.neighbors.namespaces import Labels, NamespaceObject, selecting
from linkwise.cluster.requests.user_claims.device_class import DeviceClass
from linkwise.cluster.scorer_lease import ScorerLease
from linkwise.cluster.volumes.objects import VolumeObjects
from linkwise.manifest.lines import without_nulls
from linkwise.manifest.typed import read_as
from linkwise.manifest.value import InputError, Value
from linkwise.planning.gang.pod_info import PodInfo, pod_info, with_claim_places
from linkwise.planning.gang.pod_namespaces import with_namespaces
from linkwise.planning.state.node_info import NodeConfigMap, measured
from linkwise.policy.snapshot import PolicySnapshot
from linkwise.views.files.machine import find_machine
from linkwise.views.files.objects import NodeAddresses
from linkwise.views.files.other_objects import Other, read_other
from linkwise.views.files.policies import stored_policy
from linkwise.views.files.short_form import (
    ShortNode,
    is_short_form,
    read_short_form,
    with_holdings,
)
from linkwise.views.files.stored_node import build_stored_node, completed
from linkwise.views.files.stored_volumes import (
    StoredVolume,
    StoredVolumes,
    with_all_volumes,
)


@dataclass(frozen=True, slots=True)
class Cluster:
    """The nodes and pods of a cluster, and the holders of its GPUs."""

    ledger: Ledger
    pods: tuple[Pod, ...] = ()
    """Every pod, whatever its state."""
    pod_infos: tuple[PodInfo, ...] = ()
    """The same pods as the planner keeps them."""
    warnings: tuple[str, ...] = ()
    """Guesses and omissions, for people."""
    addresses: Mapping[str, str] = field(default_factory=dict)
    """The InternalIP of each node that has one, by the node's name."""
    class_resources: ClassResources = NONE
    """What DeviceClasses offer."""
    excluded: Mapping[str, Mapping[str, float]] = field(default_factory=dict)
    """By id of a unit: the nodes where it could not be bound, until when [s since 1970]."""
    volumes: VolumeObjects | None = None
    """What is known of volumes; None: they are left to kube-scheduler."""
    namespaces: Mapping[str, Labels] | None = None
    """The labels of namespaces; None: no namespace is there."""

    @property
    def nodes(self) -> tuple[Node, ...]:
        """The nodes, in the order of names."""
        return tuple(ledger.node for ledger in self.ledger.nodes.values())


class ClusterMemo:
    """What was made of the objects of a cluster the last time, for those that are unchanged."""

    def __init__(self) -> None:
        """Start with nothing."""
        self.policies = Memo(stored_policy)
        self.devices = Memo(devices_of_node)
        self.nodes = Memo(build_stored_node)
        self.pod_infos = Memo(pod_info)
        self.recorded = Memo[tuple[RecordedGPU, ...]](lambda usage: usage.recorded)
        self.accounting = Accounting()


def collect_objects(objects: Iterable[Value], file: str) -> "ClusterObjects":
    """Return the objects of a cluster, nodes and pods reduced to what placement reads.

    Args:
        objects: Kubernetes objects and short forms; unknown kinds are kept in `others`.
        file: The file's name; matrix files that it names are relative to its folder.

    Raises:
        InputError: An object is wrong; with its line.
    """
    collected = ClusterObjects(file)
    for value in objects:
        collected.add(value)
    return collected


@dataclass(slots=True)
class ClusterObjects:
    """The objects of a cluster, before a policy is applied to them."""

    file: str
    nodes: dict[str, tuple[Value, NodeObject]] = field(default_factory=dict)
    """By name, each with its place in the file."""
    short_forms: list[Value] = field(default_factory=list)
    pods: list[Pod] = field(default_factory=list)
    others: list[Value] = field(default_factory=list)
    """Everything but nodes and pods."""
    config_maps: dict[str, dict[str, NodeConfigMap]] = field(default_factory=dict)
    """ConfigMaps about a node, by the node's name and their own."""
    slices: list[PoolSlice] = field(default_factory=list)
    """GPUs in ResourceSlices."""
    claims: list[HeldClaim] = field(default_factory=list)
    """ResourceClaims that hold GPUs."""
    other_claims: list[ClaimObject] = field(default_factory=list)
    """ResourceClaims that hold no GPUs, and tie their pods to some nodes."""
    classes: list[frozenset[str]] = field(default_factory=list)
    """The resources that each DeviceClass offers."""
    rules: list[TaintRule] = field(default_factory=list)
    """DeviceTaintRules about GPUs."""
    volumes: StoredVolumes = field(default_factory=StoredVolumes)
    namespaces: dict[str, Labels] = field(default_factory=dict)
    """The labels of each namespace."""
    addresses: dict[str, str] = field(default_factory=dict)
    refused_machines: dict[str, str] = field(default_factory=dict)
    """By node: why the scorer does not use its machine."""
    unfenced: dict[str, str] = field(default_factory=dict)
    """By node: why claims of others may get its GPUs."""
    excluded: dict[str, Mapping[str, float]] = field(default_factory=dict)
    """By id of a unit: the nodes that it does not use, and until when [s since 1970]."""

    def add(self, value: Value) -> None:
        """Add one object.

        Raises:
            InputError: It is wrong, or a node of its name is there already.
        """
        if is_short_form(value):
            self.short_forms.append(value)
            return
        match value.need("kind").plain:
            case "Node":
                self._add_node(value, without_nulls(value.mapping()))
            case "Pod":
                self.pods.append(read_as(Pod, without_nulls(value.mapping()), value))
            case _:
                self.put(value, read_other(value))

    def put(self, value: Value, other: Other) -> None:
        """Add an object that is no node and no pod, as `read_other` returned it."""
        if isinstance(other, StoredVolume):
            self.volumes.put(other)
            return
        match other:
            case ScorerLease():
                if other.metadata.name == SCORER:
                    self.refused_machines.update(other.refused_machines)
                    self.unfenced.update(other.unfenced_nodes)
                    self.excluded.update(other.excluded_nodes)
            case PoolSlice():
                self.slices.append(other)
            case HeldClaim():
                self.claims.append(other)
            case TaintRule():
                self.rules.append(other)
            case ClaimObject():
                self.other_claims.append(other)
            case NamespaceObject():
                self.namespaces[other.metadata.name] = other.labels
                self.others.append(value)
            case DeviceClass():
                self.classes.append(resources_of(other))
                self.others.append(value)
            case _:
                self._put_config_map(other)
                self.others.append(value)

    def _put_config_map(self, config_map: NodeConfigMap | None) -> None:
        if config_map is not None and config_map.node:
            of_node = self.config_maps.setdefault(config_map.node, {})
            of_node.setdefault(config_map.metadata.name, config_map)

    def _add_node(self, value: Value, plain: dict[str, object]) -> None:
        node = completed(read_as(NodeObject, plain, value))
        name = node.metadata.name
        if name in self.nodes:
            raise _duplicate(value, name, self.nodes[name][0])
        self.nodes[name] = value.place(), node
        for internal in read_as(NodeAddresses, plain, value).internal[:1]:
            self.addresses[name] = internal.address

    def build(self, policy: PolicySnapshot, memo: ClusterMemo | None = None) -> Cluster:
        """Return the cluster.

        Args:
            policy: Gives the mode and placement of nodes without such a label, and link speeds.
            memo: Of the last cluster of these objects; None: everything is computed.

        Raises:
            InputError: An object is wrong; with its line.
        """
        memo = memo or ClusterMemo()
        volumes = self.volumes.objects
        kept = memo.pod_infos.map((pod,) for pod in self.pods)
        claimed = ((claim.metadata, claim.place) for claim in self.other_claims)
        places = {(its.namespace, its.name): place for its, place in claimed if place}
        placed = [with_claim_places(info, places) for info in kept]
        select = selecting(namespaces := self.namespaces or None)
        infos = [with_namespaces(one, select) for one in with_all_volumes(placed, volumes)]
        short = self._short_nodes(policy)
        nodes = [
            *map(self.volumes.limited, memo.nodes.map(self._node_calls(policy, memo, infos))),
            *(measured(short_node.node, policy) for short_node in short.values()),
        ]
        ledger = memo.accounting.ledger(
            nodes,
            (info.usage for info in infos if info.usage),
            claims=self.claims,
            migrate=policy.policy.migration.gpushare,
        )
        ledgers = dict(ledger.nodes)
        for name, short_node in short.items():
            ledgers[name] = with_holdings(ledgers[name], short_node)
        return Cluster(
            Ledger(ledgers, ledger.conflicts),
            tuple(self.pods),
            tuple(infos),
            tuple(f"node {node.name}: {w}" for node in nodes for w in self._warnings(node)),
            self.addresses,
            offered_by(self.classes),
            self.excluded,
            volumes,
            namespaces,
        )

    def _node_calls(
        self, policy: PolicySnapshot, memo: ClusterMemo, infos: Iterable[PodInfo]
    ) -> Iterator[tuple[object, ...]]:
        """Yield the arguments of `build_stored_node` for each node."""
        devices = devices_by_node(self.slices, self.claims, self.rules, memo.devices)
        usages = [info.usage for info in infos if info.usage and info.usage.target]
        recorded: dict[str, set[RecordedGPU]] = {}
        for usage, gpus in zip(usages, memo.recorded.map((each,) for each in usages), strict=True):
            if gpus:
                recorded.setdefault(usage.target, set()).update(gpus)
        for name, (value, node) in self.nodes.items():
            config_maps = tuple(self.config_maps.get(name, {}).values())
            refused = self.refused_machines.get(name)
            found = devices.get(name), *sorted(recorded.get(name, ()))
            yield value, node, config_maps, policy, found, refused

    def _warnings(self, node: Node) -> tuple[str, ...]:
        reason = self.unfenced.get(node.name)
        unfenced = (f"claims of others may get its GPUs: {reason}",) if reason else ()
        return (*node.warnings, *unfenced)

    def _short_nodes(self, policy: PolicySnapshot) -> dict[str, ShortNode]:
        """Return the nodes of the short forms, by name."""
        machine = cache(lambda name: find_machine(name, near=self.file))
        nodes: dict[str, ShortNode] = {}
        for value in self.short_forms:
            for short_node in read_short_form(value, machine, policy.policy.placement.strategy):
                name = short_node.node.name
                if name in nodes or name in self.nodes:
                    first = nodes[name].value if name in nodes else self.nodes[name][0]
                    raise _duplicate(short_node.value, name, first)
                nodes[name] = short_node
        return nodes


def _duplicate(value: Value, name: str, first: Value) -> InputError:
    return value.error(f"node {name} is already defined at {first.source}.")
