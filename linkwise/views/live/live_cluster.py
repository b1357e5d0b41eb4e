"""Makes a `CurrentCluster` of watched objects after each change. Pure."""

from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

import msgspec
from msgspec import Raw

from linkwise.cluster.memo import Memo
from linkwise.cluster.nodes.node_resources import NodeObject
from linkwise.cluster.objects.pod import Pod
from linkwise.manifest.value import Value
from linkwise.runtime.kube.decode import decode
from linkwise.views.files.cluster_file import ClusterMemo, ClusterObjects
from linkwise.views.files.current_cluster import CurrentCluster, current_cluster
from linkwise.views.files.objects import NodeAddresses, Plain
from linkwise.views.files.other_objects import Other, read_other
from linkwise.views.live.load import value_of
from linkwise.views.live.snapshot import reduced

_plain = msgspec.json.Decoder(dict[str, Any])


class WatchedNode(NamedTuple):
    """A node, reduced to what Linkwise reads."""

    node: NodeObject
    address: str
    """Its InternalIP; empty if it has none."""


class LiveCluster:
    """A live cluster, of which one state is made after the other.

    What was made of an object is kept as long as it is the same object, so that a new state costs
    what changed, and a comparison for each object.
    """

    def __init__(self, server: str, namespace: str) -> None:
        """Start without a state.

        Args:
            server: The address of the API server.
            namespace: Namespace of objects that are named without one.
        """
        self._server, self._namespace = server, namespace
        self._place = value_of({}, server)
        """Where errors say that nodes are."""
        self._others, self._memo = Memo(self._read), ClusterMemo()

    def state(
        self, nodes: Mapping[str, WatchedNode], pods: list[Pod], others: Iterable[Plain]
    ) -> CurrentCluster:
        """Return the cluster of these objects.

        Args:
            nodes: By name.
            pods: All pods.
            others: All other objects.

        Raises:
            InputError: An object is wrong.
        """
        objects = ClusterObjects(self._server, pods=pods)
        for value, other in self._others.map((plain,) for plain in others):
            objects.put(value, other)
        for name, (node, address) in sorted(nodes.items()):
            objects.nodes[name] = self._place, node
            if address:
                objects.addresses[name] = address
        return current_cluster(objects, self._namespace, self._server, self._memo)

    def _read(self, plain: Plain) -> tuple[Value, Other]:
        value = value_of(plain, self._server)
        return value, read_other(value)


def read_node(raw: Raw) -> WatchedNode:
    """Return a node from its JSON."""
    plain = reduced("Node", decode(raw, _plain)) or {}
    internal = msgspec.convert(plain, NodeAddresses).internal
    address = internal[0].address if internal else ""
    return WatchedNode(msgspec.convert(plain, NodeObject), address)


def read_pod(raw: Raw) -> Pod:
    """Return a pod from its JSON."""
    return msgspec.convert(reduced("Pod", decode(raw, _plain)), Pod)


def read_object(kind: str, raw: Raw) -> Plain | None:
    """Return an object of another kind from its JSON; None for one that Linkwise does not read."""
    plain: Plain = decode(raw, _plain)
    return reduced(kind, {**plain, "apiVersion": "v1", "kind": kind})
