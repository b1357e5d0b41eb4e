"""Builds a node of a cluster from its object in a file and all that the file says of it."""

from dataclasses import replace

from msgspec import structs

from linkwise.cluster.mode import with_alias
from linkwise.cluster.nodes.lost_gpus import RecordedGPU
from linkwise.cluster.nodes.node import Node
from linkwise.cluster.nodes.node_devices import NodeDevices
from linkwise.cluster.nodes.node_resources import NodeError, NodeObject
from linkwise.manifest.value import InputError, Value
from linkwise.planning.state.node_info import NodeConfigMap, build_node
from linkwise.policy.snapshot import PolicySnapshot
from linkwise.topology.machine import TopologyError


def build_stored_node(
    value: Value,
    node: NodeObject,
    config_maps: tuple[NodeConfigMap, ...],
    policy: PolicySnapshot,
    gpus: tuple[NodeDevices | None, *tuple[RecordedGPU, ...]],
    refused: str | None,
) -> Node:
    """Return a node.

    Args:
        value: Its place in the file.
        node: The object.
        config_maps: Those about it.
        policy: Gives its mode where it has no label, and link speeds.
        gpus: The devices of its driver, and the GPUs in records of its pods.
        refused: Why the scorer does not use its machine; None: it does.

    Raises:
        InputError: The node, or a machine of the policy, is wrong.
    """
    devices, *recorded = gpus
    try:
        by_name = {one.metadata.name: one for one in config_maps}
        built = build_node(node, by_name, policy, devices, tuple(recorded))
        return replace(built, machine_refused=refused)
    except NodeError as error:
        raise value.error(f"{error}.") from None
    except TopologyError as error:
        raise InputError(f"the policy's machines: {error}.") from None


def completed(node: NodeObject) -> NodeObject:
    """Return a node that a person has written with the labels that the API server would add."""
    if node.metadata.uid or not node.metadata.labels:
        return node
    metadata = structs.replace(node.metadata, labels=with_alias(node.metadata.labels))
    return structs.replace(node, metadata=metadata)
