"""Build a node from its Node object, the ConfigMaps about it, and the policy."""

from collections.abc import Mapping
from dataclasses import replace
from itertools import chain

from linkwise.cluster.keys import (
    GFD_COUNT,
    GFD_MEMORY,
    GFD_PRODUCT,
    NODE_MODE,
    TOPOLOGY_NODE,
    UNHEALTHY_KEY,
    UNHEALTHY_NAME_PREFIX,
)
from linkwise.cluster.nodes.claims_node import read_claims_node
from linkwise.cluster.nodes.lost_gpus import RecordedGPU, with_lost_cards
from linkwise.cluster.nodes.node import Node
from linkwise.cluster.nodes.node_devices import NodeDevices, without_claimed
from linkwise.cluster.nodes.node_reader import read_node
from linkwise.cluster.nodes.node_resources import NodeObject
from linkwise.cluster.nodes.topology_configmap import PublishedTopology, read_published
from linkwise.policy.snapshot import PolicySnapshot
from linkwise.runtime.kube.objects import ConfigMap
from linkwise.topology.catalogue import entry
from linkwise.topology.machine import Machine
from linkwise.topology.products import has_memory, machine_of_product


class NodeConfigMap(ConfigMap, frozen=True):
    """A ConfigMap with the topology of a node, or with its unhealthy GPUs (gpushare)."""

    @property
    def node(self) -> str | None:
        """The name of its node; None: it is about no node."""
        labels, name = self.metadata.labels or {}, self.metadata.name
        if name.startswith(UNHEALTHY_NAME_PREFIX):
            return name.removeprefix(UNHEALTHY_NAME_PREFIX)
        return labels.get(TOPOLOGY_NODE) if NODE_MODE in labels else None

    @property
    def lists_unhealthy(self) -> bool:
        """It lists unhealthy GPUs; otherwise it is a published topology."""
        return self.metadata.name.startswith(UNHEALTHY_NAME_PREFIX)


def build_node(
    raw: NodeObject,
    config_maps: Mapping[str, NodeConfigMap],
    policy: PolicySnapshot,
    devices: NodeDevices | None = None,
    recorded: tuple[RecordedGPU, ...] = (),
) -> Node:
    """Return a node with its machine and the health of its GPUs.

    Args:
        raw: The Node.
        config_maps: The ConfigMaps about it, by name.
        policy: Has machines by node label, the speeds of links, and the strategy for shares.
        devices: Its GPUs in ResourceSlices and claims; None: there are none.
        recorded: The GPUs in records of its pods; those that it lacks are lost.

    Raises:
        NodeError: An amount is not a Kubernetes quantity.
        TopologyError: The policy names a machine that the catalogue does not have.
    """
    labels = raw.metadata.labels or {}
    name = policy.machine_for(labels)
    published = _published(config_maps)
    mapped = entry(name).machine if name else None
    pool = devices.with_recorded(recorded).pool if devices else None
    node = (
        read_claims_node(raw, pool, published=published, machine=mapped) if pool else None
    ) or read_node(
        raw,
        published=published,
        machine=mapped,
        discovered=_discovered(labels),
        unhealthy=_unhealthy(config_maps),
        placement=policy.policy.placement.strategy,
    )
    node = measured(with_lost_cards(node, recorded), policy)
    return without_claimed(node, devices.claimed, devices.twice) if devices else node


def measured(node: Node, policy: PolicySnapshot) -> Node:
    """Return a node with the speeds of links in the policy."""
    speeds = policy.constants_for(node.labels).model_dump(exclude_none=True)
    if not speeds or node.machine is None:
        return node
    constants = replace(node.machine.constants, **speeds)
    return replace(node, machine=replace(node.machine, constants=constants))


def _published(config_maps: Mapping[str, NodeConfigMap]) -> PublishedTopology | None:
    """Return the first published topology with a machine, with the warnings of all.

    A GPU is unhealthy or busy if any of them says so; the first mismatch counts. Where none has a
    machine: the one with most GPUs.
    """
    topologies = [
        read_published(config_map.data or {})
        for _, config_map in sorted(config_maps.items())
        if not config_map.lists_unhealthy
    ]
    if not topologies:
        return None
    largest = max(topologies, key=lambda topology: len(topology.healthy))
    first = next((topology for topology in topologies if topology.machine), largest)
    unhealthy = frozenset[int]().union(*(topology.unhealthy for topology in topologies))
    return replace(
        first,
        healthy=tuple(i not in unhealthy for i in range(len(first.healthy))),
        warnings=tuple(warning for topology in topologies for warning in topology.warnings),
        mismatch=next((topology.mismatch for topology in topologies if topology.mismatch), None),
        busy=dict(chain.from_iterable(topology.busy.items() for topology in topologies)),
    )


def _discovered(labels: Mapping[str, str]) -> Machine | None:
    """Return the machine that labels of GPU feature discovery identify; None if they do not."""
    count, memory = (_number(labels.get(key, "")) for key in (GFD_COUNT, GFD_MEMORY))
    machine = machine_of_product(labels.get(GFD_PRODUCT, ""), count)
    if machine and GFD_MEMORY in labels and not has_memory(machine, memory):
        return None
    return machine


def _number(text: str) -> int:
    """Return a number of at most nine digits; 0 for any other text."""
    return int(text) if text.isascii() and text.isdigit() and len(text) <= 9 else 0


def _unhealthy(config_maps: Mapping[str, NodeConfigMap]) -> str:
    return ",".join(
        (config_map.data or {}).get(UNHEALTHY_KEY, "")
        for config_map in config_maps.values()
        if config_map.lists_unhealthy
    )
