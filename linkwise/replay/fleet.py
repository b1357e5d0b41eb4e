"""The empty fleet of a replay, as a snapshot of the scorer.

Where the jobs of a trace ask for shares, every node gives out its cards in parts of 1/1000, and a
whole GPU is a share of a whole card. Else nodes give out whole GPUs, and their links count.
"""

from collections.abc import Iterable
from dataclasses import dataclass, replace

from linkwise.cluster.account.ledger import Ledger
from linkwise.cluster.account.node_ledger import NodeLedger
from linkwise.cluster.keys import GFD_PRODUCT, RESOURCE_NAME
from linkwise.cluster.mode import NodeMode
from linkwise.cluster.nodes.node import Card, Node
from linkwise.cluster.nodes.node_reader import uniform_machine
from linkwise.planning.placement.options import Preferences
from linkwise.planning.placement.state.node_columns import labels
from linkwise.planning.placement.state.snapshot import Snapshot, snapshot_of
from linkwise.replay.job import MILLI

_ANY_NUMBER = 1_000_000
"""Pods that a node takes: traces say nothing about this limit."""
PLENTY = 1 << 50
"""CPU and memory of nodes where the trace names none."""


@dataclass(frozen=True, slots=True)
class TraceNode:
    """A node of a published fleet."""

    name: str
    gpus: int
    model: str = ""
    cpu: int = PLENTY
    """[millicores]"""
    memory: int = PLENTY
    """[bytes]"""

    @property
    def node(self) -> Node:
        """The node for placement; the links between its GPUs are unknown."""
        labels = {GFD_PRODUCT: self.model} if self.model else {}
        machine = uniform_machine(self.gpus)
        cards = (Card(),) * self.gpus
        return Node(
            self.name, labels, machine=machine, cards=cards, cpu=self.cpu, memory=self.memory
        )


def empty_fleet(
    nodes: Iterable[Node], *, shared: bool, preferences: Preferences | None = None
) -> Snapshot:
    """Return the fleet without jobs; nodes without GPUs are left out.

    Args:
        nodes: The nodes; their modes, cordons and unhealthy cards are ignored.
        shared: Some jobs of the trace ask for shares.
        preferences: Those of a policy; None: the defaults.
    """
    ready = (_prepared(node, shared=shared) for node in nodes if node.machine)
    ledger = Ledger({node.name: NodeLedger.empty(node) for node in ready})
    return snapshot_of(ledger, preferences=preferences or Preferences())


def gpus_of_fleet(fleet: Snapshot) -> int:
    """Return the number of GPUs."""
    return sum(len(ledger.node.cards) for ledger in fleet.nodes)


def domain_label(fleet: Snapshot) -> str | None:
    """Return the nearest domain label that some node has, or None."""
    domains = fleet.preferences.domains
    return next((label for label in domains if labels(fleet, label).any()), None)


def _prepared(node: Node, *, shared: bool) -> Node:
    card = Card(memory=MILLI if shared else None)
    return replace(
        node,
        mode=NodeMode.SHARE if shared else NodeMode.TOPOLOGY,
        labels={label: value for label, value in node.labels.items() if label != RESOURCE_NAME},
        cards=(card,) * len(node.cards),
        pods=_ANY_NUMBER,
        taints=(),
        unschedulable=False,
        ready=True,
        replicas=0,
        preparing=False,
        machine_refused=None,
        mismatch=None,
    )
