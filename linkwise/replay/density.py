"""Limits of nodes: RDMA bandwidth, and pods of one application.

No policy chooses by these: nodes that are full are left out of what it sees.
"""

from collections import Counter
from collections.abc import Iterable

from linkwise.planning.placement.state.snapshot import Snapshot
from linkwise.replay.job import Shape

NIC_PERCENT = 100
"""The bandwidth of one NIC."""


class Density:
    """The limits of the nodes of a fleet, and what runs there of jobs that have limits."""

    def __init__(self, fleet: Snapshot) -> None:
        """Start with an empty fleet."""
        machines = {ledger.node.name: ledger.node.machine for ledger in fleet.nodes}
        self._rdma_free = {
            name: NIC_PERCENT * len(machine.nics)
            for name, machine in machines.items()
            if machine and machine.nics
        }
        """By node, the bandwidth of RDMA that is free [percent of one NIC].

        Nodes whose NICs are not known have no limit."""
        self._pods: dict[str, Counter[str]] = {}
        """By application: the number of its pods on each node."""

    def open_nodes(self, fleet: Snapshot, shape: Shape) -> Snapshot:
        """Return the fleet without the nodes that take no pod of this shape."""
        full: set[str] = set()
        if shape.rdma:
            full |= {name for name, free in self._rdma_free.items() if free < shape.rdma}
        if shape.most_per_node:
            pods = self._pods.get(shape.application, Counter())
            full |= {name for name, count in pods.items() if count >= shape.most_per_node}
        return fleet.without(full)

    def add(self, shape: Shape, nodes: Iterable[str]) -> None:
        """Count pods of a shape, each on its node."""
        self._change(shape, nodes, 1)

    def remove(self, shape: Shape, nodes: Iterable[str]) -> None:
        """Remove pods of a shape."""
        self._change(shape, nodes, -1)

    def _change(self, shape: Shape, nodes: Iterable[str], pods: int) -> None:
        for node in nodes:
            if shape.rdma and node in self._rdma_free:
                self._rdma_free[node] -= pods * shape.rdma
            if shape.most_per_node:
                self._pods.setdefault(shape.application, Counter())[node] += pods
