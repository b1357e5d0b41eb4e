"""What a Node object, its agent and the policy tell of one node."""

from collections.abc import Mapping
from dataclasses import replace

from msgspec import Struct

from cluster.keys import NODE_MODE, TOPOLOGY_NODE, UNHEALTHY_KEY, UNHEALTHY_NAME_PREFIX
from cluster.node import Node, NodeObject, read_node
from cluster.pod import Metadata
from cluster.topology_configmap import PublishedTopology, read_published
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


def build_node(raw: NodeObject, told: Mapping[str, ConfigMap], policy: PolicySnapshot) -> Node:
    """Return a node with everything that is known of it.

    Args:
        raw: The Node.
        told: What ConfigMaps tell of it, by their names.
        policy: Its machines by node label, the speeds of links, and how shares are laid out.

    Raises:
        NodeError: An amount is no Kubernetes quantity.
        TopologyError: The policy names a machine that the catalogue does not have.
    """
    name = policy.machine_for(raw.metadata.labels or {})
    node = read_node(
        raw,
        published=_published(told),
        machine=entry(name).machine if name else None,
        unhealthy=_unhealthy(told),
        placement=policy.policy.placement.strategy,
    )
    return measured(node, policy)


def measured(node: Node, policy: PolicySnapshot) -> Node:
    """Return a node with the speeds of links that the policy states."""
    stated = policy.constants_for(node.labels).model_dump(exclude_none=True)
    if not stated or node.machine is None:
        return node
    constants = replace(node.machine.constants, **stated)
    return replace(node, machine=replace(node.machine, constants=constants))


def _published(told: Mapping[str, ConfigMap]) -> PublishedTopology | None:
    """Return the first machine that is published, and what all that is published says besides.

    Where none can be read, health of as many GPUs as anything is said of.
    """
    read = [
        read_published(one.data or {}) for _, one in sorted(told.items()) if not one.tells_health
    ]
    if not read:
        return None
    first = next((one for one in read if one.machine), max(read, key=lambda one: len(one.healthy)))
    ill = frozenset[int]().union(*(one.unhealthy for one in read))
    return replace(
        first,
        healthy=tuple(i not in ill for i in range(len(first.healthy))),
        warnings=tuple(warning for one in read for warning in one.warnings),
    )


def _unhealthy(told: Mapping[str, ConfigMap]) -> str:
    lists = (one.data or {} for one in told.values() if one.tells_health)
    return ",".join(data.get(UNHEALTHY_KEY, "") for data in lists)
