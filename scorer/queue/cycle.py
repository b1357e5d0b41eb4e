"""Whose turn it is: all that waits, in order, on one snapshot; each sees what those before took.

By priority, then by age. A unit that does not fit is passed by smaller ones until it has waited for
`ageing`. Then the nodes that it could use, once pods with GPUs there end, are reserved for it for a
while (`ageing`): all others go to other nodes.
"""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace

from cluster.gang import GangKey
from scorer.gang.unit import Unit
from scorer.placement.node_cache import DeadlineExceeded
from scorer.placement.result import Plan, Refusal
from scorer.placement.schedule import nodes_for, plan, plan_near
from scorer.placement.snapshot import Snapshot


@dataclass(frozen=True, slots=True)
class Decision:
    """What becomes of one unit now."""

    unit: Unit
    outcome: Plan | Refusal


@dataclass(frozen=True, slots=True)
class Reserved:
    """Nodes that are reserved for a unit that has waited long."""

    priority: int
    """The unit's; what is more urgent may use the nodes all the same."""
    nodes: frozenset[str]


@dataclass(frozen=True, slots=True)
class Round:
    """One look at everything that waits."""

    decisions: tuple[Decision, ...]
    """In the order in which they were taken."""
    after: Snapshot
    """The cluster with all that was planned."""


class SchedulingCycle:
    """One look at what waits: each is decided on the cluster as those before it left it."""

    def __init__(
        self, *, aged: Callable[[Unit], bool], avoided: Mapping[GangKey, frozenset[str]]
    ) -> None:
        """Say what holds for all of them.

        Args:
            aged: Whether nodes may be reserved for a unit, since it has waited so long.
            avoided: Nodes that units shall not go to, since they failed there.
        """
        self._aged, self._avoided = aged, avoided
        self.first: Unit | None = None
        """The unit for which nodes are reserved."""
        self._nodes: frozenset[str] = frozenset()
        self.planned = 0
        """How many were planned so far; others were refused without."""

    @property
    def reserved(self) -> Reserved | None:
        """What is reserved for the first that has waited long; None: nothing."""
        return Reserved(self.first.priority, self._nodes) if self.first else None

    @property
    def closed(self) -> frozenset[str]:
        """Nodes to which none of those that are still to be decided may go."""
        return self._nodes

    def decide(
        self, snapshot: Snapshot, unit: Unit, standing: Refusal | None = None
    ) -> Plan | Refusal:
        """Return what becomes of the next unit, in the order of `in_order`.

        Args:
            snapshot: The cluster, with all that was planned before.
            unit: What waits.
            standing: A refusal that still holds, so that it is not planned again.

        Raises:
            Overdue: The time is over that the snapshot's memo grants.
        """
        outcome: Plan | Refusal | None = standing
        if unit.blocked is not None:
            outcome = Refusal(unit.blocked, stands=False)
        avoided = self._avoided.get(unit.key, frozenset())
        seen = snapshot.without(avoided)
        if outcome is None:
            homes = (pod.usage.target for pod in unit.settled if pod.usage)
            self.planned += 1
            here = replace(seen, reserved=self._nodes) if self._nodes else seen
            outcome = _named(
                plan_near(here, unit.members, homes, link=unit.link), snapshot, avoided
            )
        if isinstance(outcome, Plan) or unit.blocked or self.first or not self._aged(unit):
            return outcome
        if outcome.could_use is None:
            outcome = replace(outcome, could_use=_could_use(seen, unit))
        if outcome.could_use:
            self.first, self._nodes = unit, outcome.could_use
        return outcome


def _named(outcome: Plan | Refusal, snapshot: Snapshot, avoided: frozenset[str]) -> Plan | Refusal:
    """Return an outcome that says, where it is a refusal, which nodes were not looked at."""
    there = avoided & snapshot.ledger.nodes.keys()
    if isinstance(outcome, Plan) or not there:
        return outcome
    nodes = f"{len(there)} of {len(snapshot.ledger.nodes)} nodes"
    verb = "is" if len(there) == 1 else "are"
    why = f"{nodes} {verb} excluded for now, since a member could not be bound there"
    return replace(outcome, reason=f"{outcome.reason}; {why}")


def in_order(units: Iterable[Unit]) -> list[Unit]:
    """Return what waits in turn: by priority, then by age."""
    return sorted(units, key=_order)


def run_cycle(
    snapshot: Snapshot,
    units: Iterable[Unit],
    *,
    aged: Callable[[Unit], bool],
    standing: Mapping[GangKey, Refusal],
    avoided: Mapping[GangKey, frozenset[str]],
) -> Round:
    """Plan what fits.

    Args:
        snapshot: The cluster.
        units: Everything that waits.
        aged: As in `SchedulingCycle`.
        standing: Refusals that still hold, since neither the unit changed nor did anything become
            free: these units are not planned again.
        avoided: As in `SchedulingCycle`.

    Cost: a plan for each unit that neither is blocked nor has a standing refusal.
    """
    turns = SchedulingCycle(aged=aged, avoided=avoided)
    decisions: list[Decision] = []
    for unit in in_order(units):
        outcome = turns.decide(snapshot, unit, standing.get(unit.key))
        decisions.append(Decision(unit, outcome))
        if isinstance(outcome, Plan):
            snapshot = outcome.applied_to(snapshot)
    return Round(tuple(decisions), snapshot)


def _could_use(snapshot: Snapshot, unit: Unit) -> frozenset[str]:
    """Return the nodes that a unit could use once pods with GPUs end.

    None, where it takes too long to find out.
    """
    try:
        freed = snapshot.freed()
        if isinstance(plan(freed, unit.members, link=unit.link), Plan):
            return nodes_for(freed, unit.members, link=unit.link)
    except DeadlineExceeded:
        pass
    return frozenset()


def _order(unit: Unit) -> tuple[int, str, GangKey]:
    return -unit.priority, unit.since, unit.key
