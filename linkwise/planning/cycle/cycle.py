"""One scheduling cycle: decide the units that wait, in order; each sees the plans before it.

Units are ordered by priority. Of one priority those are first that replace lost members of a
running gang; then the namespaces take turns, and the units of each are ordered by age. Smaller
units may pass a unit that does not fit, until it is starving. Then the nodes that it could use once
running pods end are reserved for it for a while (`starvation`), and all units of a lower priority,
or that are younger, go to other nodes.
"""

from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass, replace

from linkwise.cluster.account.gpu_usage import LedgerError
from linkwise.cluster.account.node_ledger import Holding
from linkwise.cluster.gang import GangKey
from linkwise.planning.cycle.claimants import Claimants
from linkwise.planning.cycle.settling import is_better
from linkwise.planning.gang.exclusion import Exclusion, exclusions_text
from linkwise.planning.gang.plan_record import siblings_of
from linkwise.planning.gang.unit import Unit
from linkwise.planning.placement.options import PlanOptions
from linkwise.planning.placement.result import Plan, Refusal
from linkwise.planning.placement.schedule import feasible_nodes, plan
from linkwise.planning.placement.siblings import plan_with_siblings
from linkwise.planning.placement.state.node_cache import DeadlineExceeded
from linkwise.planning.placement.state.snapshot import Snapshot

SETTLING_MAX = 16
"""Units of a cycle that wait for pods that are ending: each is planned twice, beside the plans of
the others, and the time of the cycle does not end with them."""


@dataclass(frozen=True, slots=True)
class Reservation:
    """Nodes that are reserved for a starving unit."""

    priority: int
    """Of the unit; units of a higher priority may use the nodes."""
    nodes: frozenset[str]


class SchedulingCycle:
    """The state of one cycle: the caller passes the units one by one."""

    def __init__(
        self,
        *,
        is_starving: Callable[[Unit], bool],
        exclusions: Callable[[Unit], Mapping[str, Exclusion]] = lambda _: {},
        ending: Collection[tuple[str, Holding]] = (),
        may_settle: Callable[[Unit], bool] = lambda _: False,
        claimants: Claimants | None = None,
        starving: tuple[Unit, frozenset[str]] | None = None,
    ) -> None:
        """Start without decisions.

        Args:
            is_starving: Whether a unit has waited so long that nodes may be reserved for it.
            exclusions: Returns the nodes on which members of a unit could not be bound.
            ending: GPUs of pods that are being deleted, each with its node.
            may_settle: Whether a unit may wait for these.
            claimants: The pods that get GPUs, or volumes for one pod, by claims which others name,
                too; they are updated.
            starving: The unit for which nodes are reserved already, and these.
        """
        self._claimants = Claimants() if claimants is None else claimants
        self._ending, self._may_settle = ending, may_settle
        self._settling: list[Plan] = []
        """Plans that units have if they wait in vain: others do not get these GPUs meanwhile."""
        self._is_starving, self._exclusions = is_starving, exclusions
        self.starving: Unit | None = None
        """The unit for which nodes are reserved."""
        self.reserved_nodes: frozenset[str] = frozenset()
        """These nodes; closed to younger units, and to those of a lower priority."""
        if starving is not None:
            self.starving, self.reserved_nodes = starving
        self.planned = 0
        """Units that were planned; others had a cached refusal or were blocked."""

    @property
    def reservation(self) -> Reservation | None:
        """The reservation for the first starving unit; None: there is none."""
        if self.starving is None:
            return None
        return Reservation(self.starving.priority, self.reserved_nodes)

    @property
    def settling(self) -> int:
        """The number of units of this cycle that wait for pods that are ending."""
        return len(self._settling)

    def excluded(self, unit: Unit) -> frozenset[str]:
        """Return the nodes on which members of a unit could not be bound."""
        return frozenset(self._exclusions(unit))

    def reserved_for(self, unit: Unit) -> frozenset[str]:
        """Return the nodes that are closed to a unit, since they are reserved for another one."""
        is_after = self.starving is not None and _order(self.starving) < _order(unit)
        return self.reserved_nodes if is_after else frozenset()

    def decide(
        self, snapshot: Snapshot, unit: Unit, cached_refusal: Refusal | None = None
    ) -> Plan | Refusal:
        """Return the outcome for the next unit.

        A plan has all members that wait or, where they do not fit, the first ones that it needs.

        Args:
            snapshot: The cluster, with all units that were planned before.
            unit: The unit that waits.
            cached_refusal: A refusal that still holds, so that the unit is not planned again.

        Raises:
            DeadlineExceeded: The deadline of the snapshot's cache has passed.
        """
        outcome: Plan | Refusal | None = cached_refusal
        blocked = unit.blocked or self._claimants.blocker(unit)
        if blocked is not None:
            outcome = Refusal(blocked, is_cacheable=False)
        excluded = self._exclusions(unit)
        visible = snapshot.without(excluded.keys())
        if outcome is None:
            self.planned += 1
            outcome = _explain_excluded(self._plan(visible, unit), snapshot, excluded)
            has_room = self.settling < SETTLING_MAX
            if isinstance(outcome, Plan) and self._ending and has_room and self._may_settle(unit):
                outcome = self._settle(visible, unit, outcome)
            if isinstance(outcome, Plan):
                self._claimants.plan(unit)
        is_holder = self.starving is not None and self.starving.key == unit.key
        if is_holder:
            self.starving, self.reserved_nodes = None, frozenset()
        elif self.starving is not None and _order(self.starving) < _order(unit):
            return outcome
        if isinstance(outcome, Plan) or blocked or not self._is_starving(unit):
            return outcome
        return self._reserve(visible, unit, outcome)

    def _settle(self, snapshot: Snapshot, unit: Unit, planned: Plan) -> Plan | Refusal:
        """Return a plan, or a refusal if a better one is possible once pods have ended."""
        try:
            better = self._plan(snapshot.without_holdings(self._ending), unit)
        except DeadlineExceeded:
            return planned
        if isinstance(better, Refusal) or not is_better(better, planned):
            return planned
        self._settling.append(planned)
        return Refusal(
            "it fits, and waits shortly for pods that are ending, to get better GPUs",
            is_cacheable=False,
            is_settling=True,
        )

    def _plan(self, snapshot: Snapshot, unit: Unit) -> Plan | Refusal:
        for tentative in self._settling:
            snapshot = _with(snapshot, tentative)
        options = PlanOptions(unit.link, self.reserved_for(unit))
        siblings = siblings_of(unit.settled)
        outcome = plan_with_siblings(snapshot, unit.members, siblings, options)
        fewest = unit.fewest
        if isinstance(outcome, Plan) or fewest == len(unit.members):
            return outcome
        # The others wait for their turn once these have started.
        return plan_with_siblings(snapshot, unit.members[:fewest], siblings, options)

    def _reserve(self, snapshot: Snapshot, unit: Unit, refusal: Refusal) -> Refusal:
        """Reserve the nodes that a refused unit could use; return the refusal with these nodes."""
        if refusal.could_use is None:
            refusal = replace(refusal, could_use=_could_use(snapshot, unit))
        if refusal.could_use:
            self.starving, self.reserved_nodes = unit, refusal.could_use
        return refusal


def _with(snapshot: Snapshot, plan: Plan) -> Snapshot:
    """Return a snapshot without what a plan needs, as far as its nodes are there."""
    nodes = plan.gpus.keys() & snapshot.ledger.nodes.keys()
    try:
        return snapshot.hold_all(
            (placement.node, placement.holding)
            for placement in plan.placements
            if placement.node in nodes
        )
    except LedgerError:
        # It has GPUs that are reserved, and that this unit may not have.
        return snapshot.without(nodes)


def _explain_excluded(
    outcome: Plan | Refusal, snapshot: Snapshot, excluded: Mapping[str, Exclusion]
) -> Plan | Refusal:
    """Return the outcome; a refusal also names the excluded nodes."""
    nodes = snapshot.ledger.nodes
    present = {node: each for node, each in excluded.items() if node in nodes}
    if isinstance(outcome, Plan) or not present:
        return outcome
    return replace(outcome, reason=f"{outcome.reason}; {exclusions_text(present)}")


def in_order(units: Iterable[Unit]) -> list[Unit]:
    """Return the units by priority, then those that repair a running gang, then by age."""
    return sorted(units, key=_order)


def in_turns(units: Iterable[Unit]) -> list[Unit]:
    """Return the units by level, then the namespaces in turn, each by age."""
    turns = Counter[tuple[tuple[int, bool], str]]()
    ranked: list[tuple[tuple[int, bool], int, Unit]] = []
    for unit in in_order(units):
        level = -unit.priority, not unit.is_repair
        lane = level, unit.key.namespace
        ranked.append((level, turns[lane], unit))
        turns[lane] += 1
    return [unit for *_, unit in sorted(ranked, key=lambda each: each[:2])]


def _could_use(snapshot: Snapshot, unit: Unit) -> frozenset[str]:
    """Return the nodes that a unit could use once running pods end; empty after the deadline."""
    try:
        empty = snapshot.without_gpu_pods()
        options = PlanOptions(unit.link)
        if isinstance(plan(empty, unit.members, options), Plan):
            return feasible_nodes(empty, unit.members, options)
    except DeadlineExceeded:
        pass
    return frozenset()


def _order(unit: Unit) -> tuple[int, str, GangKey]:
    return -unit.priority, unit.turn, unit.key
