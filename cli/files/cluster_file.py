"""A cluster in a file: its nodes, who has which GPU, and its namespaces."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from functools import cache

from msgspec import Struct

from cli.files.machine import find_machine
from cli.files.short_form import ShortNode, is_short_form, read_short_form
from cli.files.source import shown_name
from cluster.accounting import ledger_of
from cluster.gpu_usage import LedgerError
from cluster.ledger import Ledger
from cluster.node import Node, NodeError, NodeObject
from cluster.node_ledger import NodeLedger
from cluster.pod import Pod
from manifest.lines import without_nulls
from manifest.typed import read_as
from manifest.value import InputError, Value
from policy.snapshot import PolicySnapshot
from scorer.cache.node_info import ConfigMap, build_node, measured
from topology.machine import TopologyError

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
        """The nodes, in the order of the file; those of short forms last."""
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
    return gathered(objects, file).cluster(policy)


def gathered(objects: Iterable[Value], file: str) -> "Gathered":
    """Return what the objects of a cluster file tell, before anything is decided of it.

    Nodes and pods are kept as placement knows them; of one object after another no more is held.

    Args:
        objects: As in `read_cluster`.
        file: As there.

    Raises:
        InputError: Something in it cannot be; with its line.
    """
    found = Gathered(file)
    for value in objects:
        found.take(value)
    return found


@dataclass(slots=True)
class Gathered:
    """The objects of a cluster."""

    file: str
    nodes: dict[str, tuple[Value, NodeObject]] = field(default_factory=dict)
    """Each with where it stands."""
    short: list[Value] = field(default_factory=list)
    """Short forms."""
    pods: list[Pod] = field(default_factory=list)
    others: list[Value] = field(default_factory=list)
    """Everything but nodes and pods."""
    told: dict[str, dict[str, ConfigMap]] = field(default_factory=dict)
    """What ConfigMaps tell of each node, by node and their name."""
    addresses: dict[str, str] = field(default_factory=dict)

    def take(self, value: Value) -> None:
        """Go on with the next object."""
        if is_short_form(value):
            self.short.append(value)
            return
        plain = without_nulls(value.mapping())
        match value.need("kind").plain:
            case "Node":
                node = read_as(NodeObject, plain, value)
                name = node.metadata.name
                if name in self.nodes:
                    raise _twice(value, name, self.nodes[name][0])
                self.nodes[name] = value.place(), node
                for one in read_as(_Addressed, plain, value).status.addresses or ():
                    if one.type == "InternalIP":
                        self.addresses.setdefault(name, one.address)
            case "Pod":
                self.pods.append(read_as(Pod, plain, value))
            case "ConfigMap":
                found = read_as(ConfigMap, plain, value)
                if found.node:
                    self.told.setdefault(found.node, {}).setdefault(found.metadata.name, found)
                self.others.append(value)
            case _:
                self.others.append(value)

    def cluster(self, policy: PolicySnapshot) -> Cluster:
        """Return the whole.

        Args:
            policy: What it says of nodes that do not say it themselves, and of links' speeds.

        Raises:
            InputError: Something in it cannot be; with its line.
        """
        short = self._short_nodes(policy)
        nodes = [
            *(_node(*one, self.told, policy) for one in self.nodes.values()),
            *(measured(one.node, policy) for one in short.values()),
        ]
        ledger = ledger_of(nodes, self.pods, migrate=policy.policy.migration.gpushare)
        ledgers = dict(ledger.nodes)
        for name, one in short.items():
            ledgers[name] = _hold(ledgers[name], one)
        return Cluster(
            Ledger(ledgers, ledger.conflicts),
            tuple(self.pods),
            tuple(f"node {node.name}: {w}" for node in nodes for w in node.warnings),
            self.addresses,
        )

    def _short_nodes(self, policy: PolicySnapshot) -> dict[str, ShortNode]:
        """Return the nodes of the short forms, by name."""
        machine = cache(lambda name: find_machine(name, near=self.file))
        found: dict[str, ShortNode] = {}
        for value in self.short:
            for one in read_short_form(value, machine, policy.policy.placement.strategy):
                name = one.node.name
                if name in found or name in self.nodes:
                    first = found[name].value if name in found else self.nodes[name][0]
                    raise _twice(one.value, name, first)
                found[name] = one
        return found


def _twice(value: Value, name: str, first: Value) -> InputError:
    return value.error(f"node {name} stands already at {first.source}.")


def _node(
    value: Value,
    node: NodeObject,
    told: Mapping[str, Mapping[str, ConfigMap]],
    policy: PolicySnapshot,
) -> Node:
    try:
        return build_node(node, told.get(node.metadata.name, {}), policy)
    except NodeError as error:
        raise value.error(f"{error}.") from None
    except TopologyError as error:
        raise InputError(f"the policy's machines: {error}.") from None


def checked(cluster: Cluster, file: str) -> Cluster:
    """Return the cluster of a file, which has a node at least.

    Raises:
        InputError: There is no node in it.
    """
    if not cluster.nodes:
        raise InputError(f"{shown_name(file)}: there is no node in it. {_NODES}")
    return cluster


def _hold(ledger: NodeLedger, short: ShortNode) -> NodeLedger:
    for holding in short.holdings:
        try:
            ledger = ledger.hold(holding)
        except LedgerError as error:
            raise short.value.at("used").error(f"{error}.") from None
    return ledger
