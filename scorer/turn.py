"""Whose turn it is: all that waits, in order, on one snapshot; each sees what those before took.

By priority, then by age. Who does not fit is passed by smaller ones until it has waited for
`ageing`: from then on what becomes free is kept for it, if it fits at all where no pod has GPUs.
"""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace

from cluster.gang import GangKey
from scorer.gangs import Unit
from scorer.memo import Overdue
from scorer.outcome import Plan, Refusal
from scorer.plan import plan, plan_near
from scorer.snapshot import Snapshot


@dataclass(frozen=True, slots=True)
class Decision:
    """What becomes of one unit now."""

    unit: Unit
    outcome: Plan | Refusal


@dataclass(frozen=True, slots=True)
class Round:
    """One look at everything that waits."""

    decisions: tuple[Decision, ...]
    """In the order in which they were taken."""
    after: Snapshot
    """The cluster with all that was planned."""


class Turns:
    """One look at what waits: each is decided on the cluster as those before it left it."""

    def __init__(
        self, *, aged: Callable[[Unit], bool], avoided: Mapping[GangKey, frozenset[str]]
    ) -> None:
        """Say what holds for all of them.

        Args:
            aged: Whether a unit has waited so long that nobody may pass it any more.
            avoided: Nodes that units shall not go to, since they failed there.
        """
        self._aged, self._avoided = aged, avoided
        self._first: Unit | None = None
        """For whom everything that is free is kept."""
        self.planned = 0
        """How many were planned so far; others were refused without."""

    @property
    def kept_for(self) -> int | None:
        """The priority of the one for whom everything that is free is kept; None: for nobody."""
        return self._first.priority if self._first else None

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
        outcome: Plan | Refusal | None = _blocked(unit, self._first) or standing
        seen = snapshot.without(self._avoided.get(unit.key, frozenset()))
        if outcome is None:
            homes = (pod.claimant.target for pod in unit.settled if pod.claimant)
            self.planned += 1
            outcome = plan_near(seen, unit.members, homes, link=unit.link)
        if isinstance(outcome, Plan) or unit.blocked or self._first or not self._aged(unit):
            return outcome
        if outcome.possible is None:
            outcome = replace(outcome, possible=_could(seen, unit))
        if outcome.possible:
            self._first = unit
        return outcome


def in_order(units: Iterable[Unit]) -> list[Unit]:
    """Return what waits in turn: by priority, then by age."""
    return sorted(units, key=_order)


def take_turns(
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
        aged: As in `Turns`.
        standing: Refusals that still hold, since neither the unit changed nor did anything become
            free: these units are not planned again.
        avoided: As in `Turns`.

    Cost: a plan for each unit that neither is blocked nor has a standing refusal.
    """
    turns = Turns(aged=aged, avoided=avoided)
    decisions: list[Decision] = []
    for unit in in_order(units):
        outcome = turns.decide(snapshot, unit, standing.get(unit.key))
        decisions.append(Decision(unit, outcome))
        if isinstance(outcome, Plan):
            snapshot = outcome.applied_to(snapshot)
    return Round(tuple(decisions), snapshot)


def _blocked(unit: Unit, first: Unit | None) -> Refusal | None:
    """Say why a unit is not planned at all."""
    if unit.blocked is not None:
        return Refusal(unit.blocked, stands=False)
    if first is not None:
        name = f"{first.key.namespace}/{first.key.name}"
        reason = f"{name} has waited longest, and what becomes free is kept for it"
        return Refusal(reason, stands=False)
    return None


def _could(snapshot: Snapshot, unit: Unit) -> bool:
    """Tell whether a unit fits when no pod has GPUs; not, when it takes too long to find out."""
    try:
        return isinstance(plan(snapshot.freed(), unit.members, link=unit.link), Plan)
    except Overdue:
        return False


def _order(unit: Unit) -> tuple[int, str, GangKey]:
    return -unit.priority, unit.since, unit.key
