"""A cluster at one moment, with what the views of the page need from it. Pure.

Every value is computed when it is first needed, by the functions of `inspect` and `explain`.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import NamedTuple

from msgspec import Struct

from linkwise.cluster.account.node_ledger import NodeLedger
from linkwise.cluster.account.slots import (
    SIZES,
    FreeDomains,
    SlotGroup,
    free_domains,
    free_slots,
    has_slots,
    takes_pods,
)
from linkwise.cluster.gang import GangKey
from linkwise.cluster.memo import Memo
from linkwise.planning.gang.unit import Unit, units_of
from linkwise.views.analysis.fleet import (
    NamespaceUsage,
    fleet_of,
    node_usage,
    total_usage,
)
from linkwise.views.analysis.inspection import InspectedNode, inspect_nodes
from linkwise.views.analysis.pending import PendingUnit, pending_units
from linkwise.views.analysis.planner_view import PlannerView, planned_pods, planner_view
from linkwise.views.files.current_cluster import CurrentCluster
from linkwise.views.render.page.rows import NodeRow, node_row
from linkwise.views.render.page.unit_results import request_text


class UnitRow(Struct, frozen=True):
    """A pending unit, without the decision of the planner."""

    kind: str
    """`gang` or `pod`."""
    namespace: str
    name: str
    asks: str
    pods: int
    since: str
    """RFC 3339; empty if unknown."""
    priority: int


class NodePart(NamedTuple):
    """What a moment has of one node."""

    row: NodeRow | None
    """None: it has no GPUs."""
    usage: tuple[NamespaceUsage, ...]
    whole: int
    """Free GPUs of which pods may have sets."""


def node_part(ledger: NodeLedger, domains: tuple[str, ...]) -> NodePart:
    """Return the part of one node.

    Args:
        ledger: The node.
        domains: The labels of network domains, the nearest first.
    """
    rows = (node_row(node, domains) for node in fleet_of((ledger,)))
    whole = ledger.gpus_free if has_slots(ledger) and takes_pods(ledger) else 0
    return NodePart(next(rows, None), node_usage(ledger), whole)


@dataclass(frozen=True)
class Moment:
    """A cluster at one moment."""

    current: CurrentCluster
    at: float
    """[s since 1970]"""
    memo: Memo[NodePart] = field(default_factory=lambda: Memo(node_part), repr=False, compare=False)
    """Of the moment before; parts of unchanged nodes are taken from it."""

    @cached_property
    def _parts(self) -> list[NodePart]:
        domains = self.current.policy.policy.gangs.domains
        ledgers = self.current.cluster.ledger.nodes.values()
        return self.memo.map((ledger, domains) for ledger in ledgers)

    @cached_property
    def rows(self) -> Mapping[str, NodeRow]:
        """The nodes of the map, by name."""
        return {part.row.name: part.row for part in self._parts if part.row}

    @cached_property
    def usage(self) -> list[NamespaceUsage]:
        """The usage of each namespace, the most GPUs first."""
        return total_usage(each for part in self._parts for each in part.usage)

    @cached_property
    def planner(self) -> PlannerView:
        """The cluster as the planner sees it."""
        return planner_view(self.current, self.at)

    @cached_property
    def units(self) -> Mapping[GangKey, UnitRow]:
        """The pending units; this needs no plan."""
        return {unit.key: _unit_row(unit) for unit in units_of(*planned_pods(self.current))}

    @property
    def waiting(self) -> int:
        """The number of pending units."""
        return len(self.units)

    @cached_property
    def pending(self) -> list[PendingUnit]:
        """The pending units with their reasons, in the order of planning."""
        return pending_units(self.planner)

    @cached_property
    def slots(self) -> tuple[SlotGroup, ...]:
        """The free sets of GPUs, in groups of equal nodes."""
        return free_slots(self.current.cluster.ledger.nodes.values())

    @property
    def domains(self) -> tuple[FreeDomains, ...]:
        """The network domains that are free as a whole."""
        labels = self.current.policy.policy.gangs.domains
        return free_domains(self.current.cluster.ledger.nodes.values(), labels)

    @cached_property
    def free_sets(self) -> tuple[int, ...]:
        """The number of free sets of each of `slots.SIZES`, each on one node."""
        free = [part.whole for part in self._parts if part.whole]
        return tuple(sum(number // size for number in free) for size in SIZES)

    def node(self, name: str) -> InspectedNode | None:
        """Return one node with GPUs; None if there is none of this name."""
        return next(iter(inspect_nodes(self.current.cluster, name)), None)


def _unit_row(unit: Unit) -> UnitRow:
    return UnitRow(
        kind="gang" if unit.is_gang else "pod",
        namespace=unit.key.namespace,
        name=unit.key.name,
        asks=" or ".join(dict.fromkeys(request_text(member.request) for member in unit.members)),
        pods=len(unit.members),
        since=unit.since,
        priority=unit.priority,
    )
