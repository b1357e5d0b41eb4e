"""A node as it was when it did not take a pod, to see whether the cause may be gone."""

from collections.abc import Mapping
from dataclasses import dataclass

from linkwise.cluster.nodes.node import Node
from linkwise.cluster.requests.demand import Demand
from linkwise.planning.gang.exclusion import lasting
from linkwise.planning.state.cluster_state import ClusterState


@dataclass(frozen=True, slots=True)
class NodeCause:
    """What a node offered, and who was there."""

    node: Node | None
    """None: it did not exist."""
    demands: Mapping[str, Demand]
    """By uid of a pod of others there."""

    def may_be_gone(self, now: "NodeCause") -> bool:
        """Return whether the node has changed, or pods of others there have left or changed."""
        is_same = self.node == now.node
        return not is_same or any(now.demands.get(uid) != of for uid, of in self.demands.items())


def cause_at(state: ClusterState, node: str, own: frozenset[str] = frozenset()) -> NodeCause:
    """Return a node as it is now. Cost: its pods.

    Args:
        state: The nodes and their pods.
        node: Its name.
        own: Uids of pods of the unit, whose end changes nothing.
    """
    usages = state.usages.by_uid(node).items()
    demands = {uid: usage.demand for uid, usage in usages if uid not in own}
    return NodeCause(lasting(state.node(node)), demands)
