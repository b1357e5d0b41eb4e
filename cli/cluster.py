"""A cluster in a file: its nodes, who has which GPU, and its namespaces."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from functools import cache

from msgspec import Struct

from cli.machine import find_machine
from cli.shortform import ShortNode, is_short_form, read_short_form
from cli.source import shown_name
from cluster.accounting import ledger_of
from cluster.ledger import Ledger, NodeLedger
from cluster.node import Node, NodeError, NodeObject
from cluster.pod import Pod
from cluster.taken import LedgerError
from policy.lines import without_nulls
from policy.snapshot import PolicySnapshot
from scorer.known import ConfigMap, measured, node_of
from topology.machine import TopologyError
from webhook.manifest.typed import read_as
from webhook.manifest.value import InputError, Value

_NODES = "Add Nodes, as kubectl get nodes -o yaml gives them, or take linkwise snapshot's file."


@dataclass(frozen=True, slots=True)
class Cluster:
    """What a cluster file tells."""

    ledger: Ledger
    pods: tuple[Pod, ...] = ()
    """The pods that are in the file, whatever their state."""
    warnings: tuple[str, ...] = ()
    """What was guessed or left out, for people."""
    addresses: Mapping[str, str] = field(default_factory=dict)
    """The InternalIP of each node that has one, by its name."""

    @property
    def nodes(self) -> tuple[Node, ...]:
        """The nodes, in the order of the file."""
        return tuple(ledger.node for ledger in self.ledger.nodes.values())


class _Address(Struct, frozen=True):
    type: str = ""
    address: str = ""


class _Status(Struct, frozen=True):
    addresses: list[_Address] | None = None


class _Addressed(Struct, frozen=True):
    status: _Status = _Status()


def read_cluster(objects: Iterable[Value], file: str, policy: PolicySnapshot) -> Cluster:
    """Return what the objects of a cluster file tell.

    Args:
        objects: Kubernetes objects and short forms; kinds that say nothing here are passed over.
        file: The file's name, from whose folder it names matrix files.
        policy: What it says of nodes that do not say it themselves, and of links' speeds.

    Raises:
        InputError: Something in it cannot be; with its line.
    """
    reader = _Reader(file, policy)
    for value in objects:
        reader.take(value)
    return reader.cluster()


def read_cluster_file(objects: Iterable[Value], file: str, policy: PolicySnapshot) -> Cluster:
    """Return what a cluster file tells, which has a node at least.

    Raises:
        InputError: As `read_cluster`, or there is no node in it.
    """
    cluster = read_cluster(objects, file, policy)
    if not cluster.nodes:
        raise InputError(f"{shown_name(file)}: there is no node in it. {_NODES}")
    return cluster


@dataclass(slots=True)
class _Reader:
    """A cluster, in the making."""

    file: str
    policy: PolicySnapshot
    nodes: dict[str, tuple[Value, NodeObject | ShortNode]] = field(default_factory=dict)
    pods: list[Pod] = field(default_factory=list)
    told: dict[str, dict[str, ConfigMap]] = field(default_factory=dict)
    """What ConfigMaps tell of each node, by node and their name."""
    addresses: dict[str, str] = field(default_factory=dict)

    def take(self, value: Value) -> None:
        """Go on with the next object."""
        if is_short_form(value):
            machine = cache(lambda name: find_machine(name, near=self.file))
            layout = self.policy.policy.placement.strategy
            for short in read_short_form(value, machine, layout):
                self._add(short.node.name, short.value, short)
            return
        plain = without_nulls(value.mapping())
        match value.need("kind").plain:
            case "Node":
                node = read_as(NodeObject, plain, value)
                self._add(node.metadata.name, value, node)
                for one in read_as(_Addressed, plain, value).status.addresses or ():
                    if one.type == "InternalIP":
                        self.addresses.setdefault(node.metadata.name, one.address)
            case "Pod":
                self.pods.append(read_as(Pod, plain, value))
            case "ConfigMap":
                found = read_as(ConfigMap, plain, value)
                if found.node:
                    self.told.setdefault(found.node, {}).setdefault(found.metadata.name, found)
            case _:
                pass

    def cluster(self) -> Cluster:
        """Return the whole."""
        nodes = [self._node(value, one) for value, one in self.nodes.values()]
        ledger = ledger_of(nodes, self.pods, migrate=self.policy.policy.migration.gpushare)
        ledgers = dict(ledger.nodes)
        for _, one in self.nodes.values():
            if isinstance(one, ShortNode):
                ledgers[one.node.name] = _hold(ledgers[one.node.name], one)
        return Cluster(
            Ledger(ledgers, ledger.conflicts),
            tuple(self.pods),
            tuple(f"node {node.name}: {w}" for node in nodes for w in node.warnings),
            self.addresses,
        )

    def _add(self, name: str, value: Value, node: NodeObject | ShortNode) -> None:
        if name in self.nodes:
            raise value.error(f"node {name} stands already at {self.nodes[name][0].source}.")
        self.nodes[name] = (value, node)

    def _node(self, value: Value, one: NodeObject | ShortNode) -> Node:
        if isinstance(one, ShortNode):
            return measured(one.node, self.policy)
        try:
            return node_of(one, self.told.get(one.metadata.name, {}), self.policy)
        except NodeError as error:
            raise value.error(f"{error}.") from None
        except TopologyError as error:
            raise InputError(f"the policy's machines: {error}.") from None


def _hold(ledger: NodeLedger, short: ShortNode) -> NodeLedger:
    for holding in short.holdings:
        try:
            ledger = ledger.hold(holding)
        except LedgerError as error:
            raise short.value.at("used").error(f"{error}.") from None
    return ledger
