"""The topology ConfigMap of a node: its content, and a write only where the content differs."""

from collections.abc import Sequence

from msgspec import Struct, structs

from linkwise.cluster.keys import NODE_MODE, TOPOLOGY_NAME_PREFIX, TOPOLOGY_NAMESPACE, TOPOLOGY_NODE
from linkwise.cluster.mode import NodeMode
from linkwise.cluster.nodes.topology_configmap import PublishedTopology, write_published
from linkwise.runtime.kube.client import ApiError, Ignored, Kube
from linkwise.runtime.kube.objects import OwnerReference, Written
from linkwise.runtime.kube.paths import api_path, path_below

COLLECTION = api_path("v1", "namespaces", TOPOLOGY_NAMESPACE, "configmaps")
ATTEMPTS = 3
"""Writes after which a conflict is an error."""
_CHANGED = frozenset({404, 409})
"""Statuses of a write if the object was created, changed or deleted since it was read."""


class Metadata(Written, frozen=True):
    """The part of ObjectMeta that is published."""

    name: str
    labels: dict[str, str] | None = None
    owner_references: list[OwnerReference] | None = None
    resource_version: str = ""


class TopologyConfigMap(Struct, frozen=True):
    """A topology ConfigMap."""

    metadata: Metadata
    data: dict[str, str] | None = None


def topology_config_map(
    node: str, uid: str, published: PublishedTopology, bandwidth: Sequence[Sequence[float]]
) -> TopologyConfigMap:
    """Return the topology ConfigMap of a node.

    Args:
        node: Name of the node.
        uid: Its uid: a node that is registered again has another.
        published: Its machine, health and mismatch.
        bandwidth: Bandwidth of each pair [GB/s], shape (n, n).

    Raises:
        PublishedError: There is no machine.
    """
    metadata = Metadata(
        f"{TOPOLOGY_NAME_PREFIX}{node}",
        # The value by which arena selects, whatever the mode of the node.
        {NODE_MODE: NodeMode.TOPOLOGY.value, TOPOLOGY_NODE: node},
        [OwnerReference("v1", "Node", node, uid)],
    )
    return TopologyConfigMap(metadata, write_published(published, bandwidth))


async def publish_topology(kube: Kube, desired: TopologyConfigMap) -> bool:
    """Create or replace a topology ConfigMap; return False if it had this content already.

    Cost: one read if nothing has changed.

    Raises:
        KubeError: The API server cannot be reached, or refuses, or the ConfigMap changes all the
        time.
    """
    path = path_below(COLLECTION, desired.metadata.name)
    for attempt in range(ATTEMPTS):
        current = await kube.find(path, TopologyConfigMap)
        if current is not None and _version(current, "") == desired:
            return False
        try:
            await _write(kube, current, desired)
        except ApiError as error:
            if error.status not in _CHANGED or attempt == ATTEMPTS - 1:
                raise
        else:
            return True
    raise AssertionError("the last attempt returns or raises")


async def _write(kube: Kube, current: TopologyConfigMap | None, desired: TopologyConfigMap) -> None:
    if current is None:
        await kube.create(COLLECTION, desired, Ignored)
    else:
        path = path_below(COLLECTION, desired.metadata.name)
        await kube.update(path, _version(desired, current.metadata.resource_version), Ignored)


def _version(config_map: TopologyConfigMap, version: str) -> TopologyConfigMap:
    metadata = structs.replace(config_map.metadata, resource_version=version)
    return structs.replace(config_map, metadata=metadata)
