"""The kinds of GPUs of claims nodes, which are computed again only for nodes that changed."""

from collections.abc import Iterable

from linkwise.cluster.cel.values import DeviceFacts
from linkwise.cluster.nodes.gpu_kinds import kinds_of
from linkwise.cluster.nodes.node import DevicePool, Node


class GPUKinds:
    """The kinds of the nodes of the last call."""

    def __init__(self) -> None:
        """Start without nodes."""
        self._known: dict[str, tuple[DevicePool, frozenset[DeviceFacts]]] = {}

    def of(self, nodes: Iterable[Node]) -> frozenset[DeviceFacts]:
        """Return the kinds of GPUs of nodes. Cost: a look-up for each one that is as before."""
        now: dict[str, tuple[DevicePool, frozenset[DeviceFacts]]] = {}
        for node in nodes:
            if node.pool is None:
                continue
            known = self._known.get(node.name)
            if known is None or known[0] is not node.pool:
                known = node.pool, kinds_of(node.pool.facts)
            now[node.name] = known
        self._known = now
        return frozenset[DeviceFacts]().union(*(kinds for _, kinds in now.values()))
