"""The claims nodes of the cluster, as the leader writes them into its Lease."""

from collections.abc import Iterable
from typing import NamedTuple

from linkwise.cluster.cel.values import DeviceFacts
from linkwise.cluster.nodes.gpu_kinds import kinds_of
from linkwise.cluster.nodes.node import DevicePool, Node
from linkwise.cluster.nodes.node_capacity import may_offer_claims


class ClaimsNodes(NamedTuple):
    """The claims nodes of a cluster."""

    gpus: int
    """GPUs of the largest one; 0: there is none."""
    kinds: frozenset[DeviceFacts]
    """Kinds of their GPUs."""
    is_complete: bool
    """No node lacks slices that it may have had, so that there are no others."""


class ClaimsNodesReader:
    """Reads the claims nodes; keeps the kinds of GPUs of those that have not changed."""

    def __init__(self) -> None:
        """Start without nodes."""
        self._known: dict[str, tuple[DevicePool, frozenset[DeviceFacts]]] = {}

    def read(self, nodes: Iterable[Node]) -> ClaimsNodes:
        """Return the claims nodes among all nodes. Cost: a look-up for each one that is as before.

        Args:
            nodes: All nodes.
        """
        nodes = list(nodes)
        claims = [node for node in nodes if node.is_claims]
        return ClaimsNodes(
            max((len(node.cards) for node in claims), default=0),
            self._kinds(claims),
            not any(node.awaits_slices and may_offer_claims(node) for node in nodes),
        )

    def _kinds(self, nodes: Iterable[Node]) -> frozenset[DeviceFacts]:
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
