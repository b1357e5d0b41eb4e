"""Divide members that are alike among the domains of their one topology spread constraint.

kube-scheduler can bind so many in each domain, in some order, if none has more than `maxSkew` above
the least of all: it is always possible to bind one in the emptiest domain that lacks any next.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import numpy as np

from linkwise.cluster.requests.neighbors.rules import SpreadConstraint
from linkwise.planning.placement.filtering.feasibility import feasibility_of
from linkwise.planning.placement.filtering.pod_columns import rows_of
from linkwise.planning.placement.filtering.spread import domains_of
from linkwise.planning.placement.placements import new_plan
from linkwise.planning.placement.pods.group import Group, new_group
from linkwise.planning.placement.pods.member import Member
from linkwise.planning.placement.result import Placement, Plan, Refusal
from linkwise.planning.placement.state.node_columns import Ints
from linkwise.planning.placement.state.selected_nodes import selected_by
from linkwise.planning.placement.state.snapshot import Snapshot


@dataclass(frozen=True, slots=True)
class EvenSpread:
    """Members with whole GPUs that one constraint spreads, and that no other rule binds."""

    snapshot: Snapshot
    """The cluster."""
    group: Group
    rule: SpreadConstraint

    @classmethod
    def of(cls, snapshot: Snapshot, group: Group) -> "EvenSpread | None":
        """Return such a group; None: the members have other rules, too, or differ."""
        first, *others = group.representatives
        rules = first.rules
        if others or len(rules.spread) != 1 or group.gpus_each is None:
            return None
        (rule,) = rules.spread
        # With `minDomains` the pin of a pod counts, too.
        is_simple = rule.min_domains <= 1 and not (rules.affinity or rules.anti_affinity)
        if not is_simple or not all(one.neighbor.is_in(rule.pods) for one in group.members):
            return None
        return cls(snapshot, group, rule)

    def allows(self, placements: Sequence[Placement]) -> bool:
        """Return whether the rule lets all be bound, in some order. Cost: that of `judge`."""
        later = self.snapshot.hold_all((p.node, p.holding) for p in placements).whole
        domains = domains_of(later, self.group.members[0], self.rule)
        used = {placement.node for placement in placements}
        rows = [row for row, name in enumerate(later.ledger.nodes) if name in used]
        most = int(domains.totals[domains.values[rows]].max())
        return most - domains.least <= self.rule.max_skew

    def plan(self, plan_group: Callable[[Snapshot, Group], Plan | Refusal]) -> Plan | None:
        """Plan the members of each domain together; None where that is not possible.

        Cost: a plan for each domain.
        """
        # Each domain is planned alone, where the skew depends on the others.
        free = [_without_spread(member) for member in self.group.members]
        by_name = {member.name: member for member in self.group.members}
        values, parts = self._divided(free)
        placed: list[Placement] = []
        for domain, size in parts.items():
            rows = np.flatnonzero(values == domain).tolist()
            part = self.snapshot.only(*(self.snapshot.nodes[row].node.name for row in rows))
            members = free[len(placed) : len(placed) + size]
            planned = plan_group(part, new_group(members, self.group.options))
            if isinstance(planned, Refusal):
                return None
            placed += planned.placements
        if len(placed) < self.group.size:
            return None
        placements = [replace(one, member=by_name[one.member.name]) for one in placed]
        if not self.allows(placements):
            return None
        return new_plan(self.snapshot, placements, exact=False, one_by_one=True)

    def _divided(self, free: Sequence[Member]) -> tuple[Ints, dict[int, int]]:
        """Return the domain of each node, and how many members go to each domain."""
        whole = self.snapshot.whole
        domains = domains_of(whole, self.group.members[0], self.rule)
        values = domains.values[rows_of(whole, self.snapshot)]
        group = new_group(free, self.group.options)
        seen = selected_by(self.snapshot, *group.needs)
        capacity = feasibility_of(seen, group).capacity
        room = np.bincount(values, capacity, len(domains.totals)).astype(np.int64)
        room[~domains.present] = 0
        free_room, totals = room.copy(), domains.totals.copy()
        parts: dict[int, int] = {}
        for _ in free:
            open_domains = np.flatnonzero(free_room)
            if not len(open_domains):
                break
            few = totals[open_domains]
            # Of the emptiest ones that with most room, which needs the fewest nodes.
            emptiest = open_domains[few == few.min()]
            domain = int(emptiest[room[emptiest].argmax()])
            totals[domain] += 1
            free_room[domain] -= 1
            parts[domain] = parts.get(domain, 0) + 1
        return values, parts


def _without_spread(member: Member) -> Member:
    return replace(member, rules=replace(member.rules, spread=()))
