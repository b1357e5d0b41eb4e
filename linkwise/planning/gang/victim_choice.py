"""Choose the units to evict for one that fits nowhere, as the leader does and what-if says. Pure.

GPUs that become free anyway count as free, unless they are promised to another unit. No set is
chosen that the disruption budgets do not allow as a whole: a part of a gang is of no use.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import TypeAlias

from linkwise.cluster.account.gpu_usage import LedgerError
from linkwise.cluster.account.node_ledger import Holding
from linkwise.cluster.gang import GangKey
from linkwise.planning.gang.health import LedgerOf
from linkwise.planning.gang.placed_units import is_of_kueue
from linkwise.planning.gang.pod_info import PodInfo
from linkwise.planning.gang.unit import Unit
from linkwise.planning.placement.options import PlanOptions
from linkwise.planning.placement.preemption.search import Eviction, NoEviction, find_victims
from linkwise.planning.placement.preemption.victim import Disruptions, Victim
from linkwise.planning.placement.result import Plan
from linkwise.planning.placement.schedule import plan
from linkwise.planning.placement.state.snapshot import Snapshot

Places: TypeAlias = Sequence[tuple[str, Holding]]
"""Entries of ledgers, each with its node."""


@dataclass(frozen=True, slots=True)
class Promise:
    """GPUs that a unit is to have once the pods that are evicted for it have ended."""

    key: GangKey
    priority: int
    places: Places


@dataclass(frozen=True, slots=True)
class RunningUnits:
    """The units that hold GPUs, the cost of evicting them, and the evictions under way."""

    units: Sequence[Victim]
    """Those that are not being evicted."""
    disruptions: Disruptions
    leaving: Places = ()
    """What pods hold that are ending or being evicted."""
    promises: Sequence[Promise] = ()

    def is_promised(self, unit: Unit) -> bool:
        """Return whether others are evicted for a unit already."""
        return any(promise.key == unit.key for promise in self.promises)

    def once_left(self, snapshot: Snapshot, unit: Unit) -> Snapshot:
        """Return the cluster for a unit once the pods that are leaving have left."""
        soon = snapshot.without_holdings(self.leaving)
        for promise in self.promises:
            if promise.key != unit.key and promise.priority >= unit.priority:
                soon = _with_places(soon, promise.places)
        return soon


def places_held(pods: Iterable[PodInfo], ledger: LedgerOf) -> Places:
    """Return what pods have on their nodes."""
    ledgers = ((pod, ledger(pod.usage.target)) for pod in pods if pod.usage)
    return [
        (there.node.name, there.holdings[pod.uid])
        for pod, there in ledgers
        if there and pod.uid in there.holdings
    ]


def may_preempt(unit: Unit) -> bool:
    """Return whether others may be evicted for a unit, whatever its priority."""
    pods = [member.pod for member in unit.members]
    if any(pod.spec.preemption_policy == "Never" for pod in pods):
        return False
    return not any(is_of_kueue(pod.metadata.labels) for pod in pods)


def choose_victims(
    unit: Unit, snapshot: Snapshot, running: RunningUnits, options: PlanOptions
) -> Eviction | NoEviction:
    """Return the units to evict for a unit that has no plan, or why none are.

    Args:
        unit: The unit; it may preempt, and nothing is evicted for it yet.
        snapshot: The cluster as the unit may use it.
        running: The units that hold GPUs.
        options: Of its plan.

    Raises:
        DeadlineExceeded: The snapshot's time is over.

    Cost: a plan, and a search (`find_victims`).
    """
    soon = running.once_left(snapshot, unit)
    # The search takes a refusal for granted, and capacity may have become free since then.
    if isinstance(plan(soon, unit.members, options), Plan):
        when = "by now" if soon is snapshot else "once pods that are ending have ended"
        return NoEviction(f"it fits {when}")
    units = [each for each in running.units if each.priority < unit.priority]
    found = find_victims(soon, unit.members, units, running.disruptions, options)
    if isinstance(found, Eviction):
        return found
    reason = "no units of lower priority may be evicted so that it fits"
    if found.is_by_budgets:
        reason = "disruption budgets do not allow to evict units of lower priority for it"
    return NoEviction(reason, detail=found.reason)


def _with_places(snapshot: Snapshot, places: Iterable[tuple[str, Holding]]) -> Snapshot:
    """Return a snapshot in which places are taken; without nodes where they have no room."""
    nodes = snapshot.ledger.nodes
    missing = [
        (node, holding)
        for node, holding in places
        if node in nodes and holding.uid not in nodes[node].holdings
    ]
    try:
        return snapshot.hold_all(missing) if missing else snapshot
    except LedgerError:
        return snapshot.without({node for node, _ in missing})
