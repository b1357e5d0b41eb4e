"""What a Node object, its agent and the policy tell of one node."""

from collections.abc import Mapping
from dataclasses import replace
from functools import partial

from msgspec import Struct

from cluster.keys import NODE_MODE, TOPOLOGY_NODE, UNHEALTHY_KEY, UNHEALTHY_NAME_PREFIX
from cluster.node import Node, NodeObject, read_node
from cluster.pod import Metadata
from cluster.published import Published, PublishedError, read_indices, read_published
from policy.snapshot import PolicySnapshot
from topology.catalogue import entry


class ConfigMap(Struct, frozen=True):
    """A ConfigMap in which agents, or gpushare's users, tell of a node."""

    metadata: Metadata = Metadata()
    data: dict[str, str] | None = None

    @property
    def node(self) -> str | None:
        """Of which node it tells; None where of none."""
        labels, name = self.metadata.labels or {}, self.metadata.name
        if name.startswith(UNHEALTHY_NAME_PREFIX):
            return name.removeprefix(UNHEALTHY_NAME_PREFIX)
        return labels.get(TOPOLOGY_NODE) if NODE_MODE in labels else None

    @property
    def tells_health(self) -> bool:
        """It lists unhealthy GPUs, else it is a published topology."""
        return self.metadata.name.startswith(UNHEALTHY_NAME_PREFIX)


def node_of(raw: NodeObject, told: Mapping[str, ConfigMap], policy: PolicySnapshot) -> Node:
    """Return a node with everything that is known of it.

    Args:
        raw: The Node.
        told: What ConfigMaps tell of it, by their names.
        policy: Its machines by node label, the speeds of links, and how shares are laid out.

    Raises:
        NodeError: An amount is no Kubernetes quantity.
        TopologyError: The policy names a machine that the catalogue does not have.
    """
    labels = raw.metadata.labels or {}
    name = policy.machine_for(labels)
    machine = entry(name).machine if name else None
    read = partial(
        read_node,
        raw,
        published=_published(told),
        machine=machine,
        placement=policy.policy.placement.strategy,
    )
    node = read()
    if unhealthy := _unhealthy(told, len(node.cards)):
        node = read(unhealthy=unhealthy)
    stated = policy.constants_for(labels).model_dump(exclude_none=True)
    if not stated or node.machine is None:
        return node
    constants = replace(node.machine.constants, **stated)
    return replace(node, machine=replace(node.machine, constants=constants))


def _published(told: Mapping[str, ConfigMap]) -> Published | None:
    for _, one in sorted(told.items()):
        if not one.tells_health:
            try:
                return read_published(one.data or {})
            except PublishedError:
                continue
    return None


def _unhealthy(told: Mapping[str, ConfigMap], n: int) -> frozenset[int]:
    lists = [one.data or {} for one in told.values() if one.tells_health]
    texts = (data.get(UNHEALTHY_KEY, "") for data in lists)
    return frozenset().union(*(read_indices(text, n)[0] for text in texts))
