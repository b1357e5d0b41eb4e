"""Find the units whose eviction gives a waiting unit a plan.

Only sets count that the disruption budgets allow as a whole. They are compared by `Cost`, then by
the bandwidth of the plan and by the damage to what it leaves free. Of an elastic gang, a set may
have some of the spare pods instead of all pods. Of up to `EXACT_MAX` units the best set is found;
fewer, where some are elastic. Of more, units are taken node by node (`by_nodes`), from a few
starts, and those that are not needed stay; `within_budgets` searches on until the budgets allow
the set. Either way no part of the set that is found would do.

There, sets of equal cost that one start could give are not compared, and an elastic gang counts as
all of its spare pods until those that are not needed stay. Members that ask for parts of
GPUs are searched a whole node at a time.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from itertools import groupby, product
from math import prod

import numpy as np

from linkwise.cluster.account.ledger import Ledger
from linkwise.planning.placement.options import DEFAULT, PlanOptions
from linkwise.planning.placement.pods.group import new_group
from linkwise.planning.placement.pods.member import Member
from linkwise.planning.placement.preemption.by_nodes import NodeSearch, cheapest_nodes
from linkwise.planning.placement.preemption.room import Ended, Room, may_suffice
from linkwise.planning.placement.preemption.victim import Cost, Disruptions, Victim
from linkwise.planning.placement.preemption.within_budgets import first_allowed
from linkwise.planning.placement.result import Plan
from linkwise.planning.placement.schedule import feasible_nodes, plan
from linkwise.planning.placement.state.snapshot import Snapshot

EXACT_MAX = 8
"""Units of which every set is compared; with elastic ones as many sets at most."""
NODES_MIN = 64
"""Nodes that are looked at first, the cheapest ones: eight times as many where they do not do."""
STARTS_MAX = 4
"""Units with pods on several nodes that a search by nodes starts with, one at a time."""


@dataclass(frozen=True, slots=True)
class Eviction:
    """Units to evict, and the plan that they make possible."""

    victims: tuple[Victim, ...]
    """In the order of names."""
    plan: Plan
    cost: Cost
    damage: float
    """The part of the remainder of its nodes that the plan destroys [GB/s]."""
    exact: bool
    """No other set of units is better."""


@dataclass(frozen=True, slots=True)
class NoEviction:
    """Why no eviction gives the unit a plan."""

    reason: str
    detail: str = ""
    """More for operators; it may name units of any namespace."""
    is_by_budgets: bool = False
    """There are such units, and the disruption budgets do not let them be evicted."""


def find_victims(
    snapshot: Snapshot,
    members: Sequence[Member],
    units: Iterable[Victim],
    disruptions: Disruptions,
    options: PlanOptions = DEFAULT,
) -> Eviction | NoEviction:
    """Return the best units of a priority below all members', whose eviction gives them a plan.

    Args:
        snapshot: The cluster; it has no plan for the members.
        members: Pods that wait for GPUs, at least one, as in `plan`.
        units: The units that have GPUs.
        disruptions: The cost of evictions, and the budgets.
        options: As in `plan`, without siblings.

    Cost: linear in the pods of the units: about 12 ms for 5,000 pods, 40 ms for 20,000; and at most
    about 100 plans on the nodes of one set, and one for each unit that is taken. Where some units
    are elastic, twice that, and as many plans for each as the number of its spare pods has bits.
    All this again for each set that the budgets do not allow (`within_budgets`).
    """
    # Nobody is evicted for a pod that would go to a node that is closed to most.
    snapshot = snapshot.open_nodes()
    if not snapshot.nodes:
        return NoEviction("every node is cordoned or not ready")
    if any(member.pod.spec.preemption_policy == "Never" for member in members):
        return NoEviction("its pods have preemptionPolicy Never")
    # A high one of one member must not take GPUs for all the others.
    priority = min(member.pod.spec.priority or 0 for member in members)
    room = Room(snapshot, new_group(members, options))
    usable = room.rows.keys()
    useful = [
        unit for unit in units if unit.priority < priority and not usable.isdisjoint(unit.amounts)
    ]
    candidates = [unit for unit in useful if unit.protected is None]
    now = feasible_nodes(snapshot, members, options)
    search = _Search(snapshot, members, options, room, disruptions, now)
    if prod(2 + unit.spare for unit in candidates[: EXACT_MAX + 1]) <= 2**EXACT_MAX:
        found = search.best_set(candidates)
    else:
        found = first_allowed(candidates, disruptions, search.best_by_nodes)
    if found:
        return found
    by_budgets = any(unit.budgets for unit in candidates) and search.suffices(candidates)
    return NoEviction(_reason(priority, candidates, useful), is_by_budgets=by_budgets)


def _reason(priority: int, candidates: Sequence[Victim], useful: Sequence[Victim]) -> str:
    protected = next((unit for unit in useful if unit.protected), None)
    also = ""
    if protected is not None:
        count = len(useful) - len(candidates)
        also = (
            f"; {count} more must not be evicted, such as {protected.name}: {protected.protected}"
        )
    if not candidates:
        return f"nothing with a priority below {priority} may be evicted for it{also}"
    among = f"{len(candidates)} with a priority below {priority}"
    return f"no units were found whose eviction gives it a plan, among {among}{also}"


@dataclass(frozen=True, slots=True)
class _Search:
    """The search for one unit."""

    snapshot: Snapshot
    members: Sequence[Member]
    options: PlanOptions
    room: Room
    disruptions: Disruptions
    feasible_now: frozenset[str]
    """The nodes that fit some member before any eviction."""

    def suffices(self, candidates: Sequence[Victim]) -> bool:
        """Return whether the members have a plan once all of these units have ended."""
        return self._plan(self._world(candidates), candidates) is not None

    def best_set(self, candidates: Sequence[Victim]) -> Eviction | None:
        """Return the best set of a few units that the budgets allow."""
        world = self._world(candidates)
        if not candidates or self._plan(world, candidates) is None:
            return None
        chosen = (tuple(filter(None, each)) for each in product(*map(_choices, candidates)))
        allowed = (units for units in chosen if units and not self.disruptions.excess(units))
        sets = ((self.disruptions.cost(units), units) for units in allowed)
        # A part of a set costs less than the set, so it comes first.
        in_order = groupby(sorted(sets, key=lambda pair: pair[0]), key=lambda pair: pair[0])
        for cost, equal in in_order:
            plans = ((units, self._plan(world, units)) for _, units in equal)
            found = [
                self._eviction(world, units, made, cost, exact=True)
                for units, made in plans
                if made
            ]
            if found:
                return min(found, key=_rank)
        return None

    def best_by_nodes(self, candidates: Sequence[Victim]) -> Eviction | None:
        """Return a good set of many units, of which no part would do; budgets may not allow it.

        A set of elastic gangs may cost less if all of them keep what they need, so that is tried,
        too.
        """
        if not may_suffice(self.room, candidates, self.disruptions.allowed):
            return None
        parts = [unit.part(unit.spare) if unit.spare else unit for unit in candidates]
        every = [candidates, *([parts] if any(unit.spare for unit in candidates) else [])]
        found = filter(None, map(self._by_nodes, every))
        return min(found, key=self._rank, default=None)

    def _by_nodes(self, candidates: Sequence[Victim]) -> Eviction | None:
        ordered = self.disruptions.in_order(candidates)
        # Node by node, a gang looks as dear as all its pods on one of its nodes, although it makes
        # room on the others, too. So some searches begin with such a gang already taken: those of
        # the lowest priority, and of these the ones on the most nodes.
        spread = [ordered.units[i] for i in np.flatnonzero(ordered.spans > 1).tolist()]
        spread.sort(key=lambda unit: (unit.priority, -len(unit.amounts)))
        starts: list[tuple[Victim, ...]] = [(), *((unit,) for unit in spread[:STARTS_MAX])]
        count = max(NODES_MIN, 2 * self.room.needed)
        while True:
            on_node = cheapest_nodes(self.room, ordered, count)
            nodes = NodeSearch(self.room, on_node, self.disruptions)
            found = [self._complete(nodes, start) for start in starts]
            if any(found):
                return min(filter(None, found), key=self._rank)
            # More nodes help only if there are more, and if all units together make enough room.
            if len(on_node) < count or not Ended(self.room, candidates).suffices:
                return None
            starts, count = [()], 8 * count

    def _complete(self, nodes: NodeSearch, start: tuple[Victim, ...]) -> Eviction | None:
        for units in nodes.sets(start):
            world = self._world(units)
            if self._plan(world, units):
                kept = self._trimmed(world, self._needed(world, units))
                made = self._plan(world, kept)
                # The search made a plan for these very units.
                cost = self.disruptions.cost(kept)
                return self._eviction(world, kept, made, cost, exact=False) if made else None
        return None

    def _needed(self, world: Snapshot, units: Sequence[Victim]) -> Sequence[Victim]:
        """Return a part of some units of which all are needed, the cheapest ones where possible."""
        # The costliest first: if two units make the same room, the cheaper one is kept.
        costliest = sorted(units, key=lambda unit: self.disruptions.cost([unit]), reverse=True)
        ended, kept = Ended(self.room, units), dict.fromkeys(units)
        for unit in costliest:
            ended.remove(unit)
            if ended.suffices:
                rest = [other for other in kept if other is not unit]
                if rest and self._plan(world, rest):
                    del kept[unit]
                    continue
            ended.add(unit)
        return tuple(kept)

    def _trimmed(self, world: Snapshot, units: Sequence[Victim]) -> Sequence[Victim]:
        """Return the units, each elastic one with no more of its spare pods than are needed."""
        kept = list(units)
        for i, unit in enumerate(kept):
            whole = unit.whole or unit
            few, enough = 0, whole.spare

            def suffices(pods: int, i: int = i, whole: Victim = whole) -> bool:
                some = [*kept[:i], whole.part(pods), *kept[i + 1 :]]
                return self._plan(world, some) is not None

            if not enough or not suffices(enough):
                continue
            # By bisection, since a plan is the expensive step.
            while enough - few > 1:
                middle = (few + enough) // 2
                few, enough = (few, middle) if suffices(middle) else (middle, enough)
            kept[i] = whole.part(enough)
        return kept

    def _world(self, units: Iterable[Victim]) -> Snapshot:
        """Return the cluster with the nodes alone that may fit a member once units have ended."""
        names = self.feasible_now.union(*(unit.amounts for unit in units))
        nodes = self.snapshot.ledger.nodes
        some = {name: nodes[name] for name in names if name in nodes}
        cache, around = self.snapshot.cache.fresh(), self.snapshot.whole
        return replace(self.snapshot, ledger=Ledger(some), cache=cache, around=around)

    def _plan(self, world: Snapshot, units: Sequence[Victim]) -> Plan | None:
        """Return the plan after an eviction, or None."""
        if not Ended(self.room, units).suffices:
            return None
        made = plan(_without(world, units), self.members, self.options)
        return made if isinstance(made, Plan) else None

    def _rank(self, found: Eviction) -> tuple[object, ...]:
        return self.disruptions.excess(found.victims).total(), *_rank(found)

    def _eviction(
        self, world: Snapshot, units: Iterable[Victim], made: Plan, cost: Cost, *, exact: bool
    ) -> Eviction:
        victims = tuple(sorted(units, key=lambda unit: unit.name))
        return Eviction(victims, made, cost, _damage(_without(world, victims), made), exact)


def _choices(unit: Victim) -> tuple[Victim | None, ...]:
    """Return what a set may have of a unit: nothing, some of its spare pods, or all of it."""
    return None, *map(unit.part, range(1, unit.spare + 1)), unit


def _without(world: Snapshot, units: Iterable[Victim]) -> Snapshot:
    return world.without_holdings((pod.node, pod.holding) for unit in units for pod in unit.pods)


def _damage(before: Snapshot, made: Plan) -> float:
    """Return the part of the remainder of its nodes that a plan destroys [GB/s]."""
    damage = 0.0
    for node, gpus in made.gpus.items():
        table, free = before.tables.get(node), before.ledger.nodes[node].free_mask
        if table is not None:
            left = free & ~sum(1 << gpu for gpu in gpus)
            damage += table.remainder(free) - table.remainder(left)
    return round(damage, 5)


def _rank(found: Eviction) -> tuple[object, ...]:
    bandwidth = found.plan.bandwidth.value or 0.0
    return found.cost, -bandwidth, found.damage, [unit.name for unit in found.victims]
