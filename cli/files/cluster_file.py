"""Reads a cluster from a file: its nodes, the pods that hold GPUs, and its other objects."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from functools import cache

from cli.files.machine import find_machine
from cli.files.objects import NodeAddresses
from cli.files.short_form import ShortNode, is_short_form, read_short_form
from cli.files.source import shown_name
from cluster.account.accounting import ledger_of
from cluster.account.gpu_usage import LedgerError
from cluster.account.ledger import Ledger
from cluster.account.node_ledger import NodeLedger
from cluster.keys import SCORER
from cluster.nodes.device_claims import ClaimObject, HeldClaim
from cluster.nodes.node import Node, NodeError, NodeObject
from cluster.nodes.node_devices import NodeDevices, devices_by_node
from cluster.nodes.resource_slice import PoolSlice, SliceObject
from cluster.nodes.taint_rules import RuleObject, TaintRule
from cluster.objects.pod import Pod
from cluster.scorer_lease import ScorerLease
from manifest.lines import without_nulls
from manifest.typed import read_as
from manifest.value import InputError, Value
from policy.snapshot import PolicySnapshot
from scorer.cache.node_info import NodeConfigMap, build_node, measured
from topology.machine import TopologyError

_NODES = "Add Nodes, as kubectl get nodes -o yaml gives them, or take linkwise snapshot's file."


@dataclass(frozen=True, slots=True)
class Cluster:
    """The nodes and pods of a cluster, and the holders of its GPUs."""

    ledger: Ledger
    pods: tuple[Pod, ...] = ()
    """Every pod, whatever its state."""
    warnings: tuple[str, ...] = ()
    """Guesses and omissions, for people."""
    addresses: Mapping[str, str] = field(default_factory=dict)
    """The InternalIP of each node that has one, by the node's name."""

    @property
    def nodes(self) -> tuple[Node, ...]:
        """The nodes, in the order of names."""
        return tuple(ledger.node for ledger in self.ledger.nodes.values())


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
    rules: list[TaintRule] = field(default_factory=list)
    """DeviceTaintRules about GPUs."""
    addresses: dict[str, str] = field(default_factory=dict)
    refused_machines: dict[str, str] = field(default_factory=dict)
    """By node: why the scorer does not use its machine."""
    unfenced: dict[str, str] = field(default_factory=dict)
    """By node: why claims of others may get its GPUs."""

    def add(self, value: Value) -> None:
        """Add one object.

        Raises:
            InputError: It is wrong, or a node of its name is there already.
        """
        if is_short_form(value):
            self.short_forms.append(value)
            return
        plain = without_nulls(value.mapping())
        match value.need("kind").plain:
            case "Node":
                self._add_node(value, plain)
            case "Pod":
                self.pods.append(read_as(Pod, plain, value))
            case "ConfigMap":
                config_map = read_as(NodeConfigMap, plain, value)
                if config_map.node:
                    of_node = self.config_maps.setdefault(config_map.node, {})
                    of_node.setdefault(config_map.metadata.name, config_map)
                self.others.append(value)
            case "Lease":
                lease = read_as(ScorerLease, plain, value)
                if lease.metadata.name == SCORER:
                    self.refused_machines.update(lease.refused_machines)
                    self.unfenced.update(lease.unfenced_nodes)
            case "ResourceSlice" | "ResourceClaim" | "DeviceTaintRule" as kind:
                self._add_devices(kind, value, plain)
            case _:
                self.others.append(value)

    def _add_devices(self, kind: str, value: Value, plain: dict[str, object]) -> None:
        """Add an object of the API for dynamic resource allocation, if it is about GPUs."""
        match kind:
            case "ResourceSlice":
                devices = read_as(SliceObject, plain, value).content
                self.slices += [devices] if devices else []
            case "ResourceClaim":
                claim = read_as(ClaimObject, plain, value).content
                self.claims += [claim] if claim else []
            case _:
                rule = read_as(RuleObject, plain, value).content
                self.rules += [rule] if rule else []

    def _add_node(self, value: Value, plain: dict[str, object]) -> None:
        node = read_as(NodeObject, plain, value)
        name = node.metadata.name
        if name in self.nodes:
            raise _duplicate(value, name, self.nodes[name][0])
        self.nodes[name] = value.place(), node
        for internal in read_as(NodeAddresses, plain, value).internal[:1]:
            self.addresses[name] = internal.address

    def build(self, policy: PolicySnapshot) -> Cluster:
        """Return the cluster.

        Args:
            policy: Gives the mode and placement of nodes without such a label, and link speeds.

        Raises:
            InputError: An object is wrong; with its line.
        """
        short = self._short_nodes(policy)
        devices = devices_by_node(self.slices, self.claims, self.rules)
        nodes = [
            *(
                self._build_node(value, node, policy, devices.get(name))
                for name, (value, node) in self.nodes.items()
            ),
            *(measured(short_node.node, policy) for short_node in short.values()),
        ]
        ledger = ledger_of(
            nodes, self.pods, claims=self.claims, migrate=policy.policy.migration.gpushare
        )
        ledgers = dict(ledger.nodes)
        for name, short_node in short.items():
            ledgers[name] = _hold(ledgers[name], short_node)
        return Cluster(
            Ledger(ledgers, ledger.conflicts),
            tuple(self.pods),
            tuple(f"node {node.name}: {w}" for node in nodes for w in self._warnings(node)),
            self.addresses,
        )

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

    def _build_node(
        self,
        value: Value,
        node: NodeObject,
        policy: PolicySnapshot,
        devices: NodeDevices | None,
    ) -> Node:
        try:
            name = node.metadata.name
            built = build_node(node, self.config_maps.get(name, {}), policy, devices)
            return replace(built, machine_refused=self.refused_machines.get(name))
        except NodeError as error:
            raise value.error(f"{error}.") from None
        except TopologyError as error:
            raise InputError(f"the policy's machines: {error}.") from None


def _duplicate(value: Value, name: str, first: Value) -> InputError:
    return value.error(f"node {name} is already defined at {first.source}.")


def require_nodes(cluster: Cluster, file: str) -> None:
    """Check that the cluster of a file has a node.

    Raises:
        InputError: It has none.
    """
    if not cluster.nodes:
        raise InputError(f"{shown_name(file)}: there is no node in it. {_NODES}")


def _hold(ledger: NodeLedger, short: ShortNode) -> NodeLedger:
    for holding in short.holdings:
        try:
            ledger = ledger.hold(holding)
        except LedgerError as error:
            raise short.value.at("used").error(f"{error}.") from None
    return ledger
