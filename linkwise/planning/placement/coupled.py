"""Plan members that affinity or topology spread binds to each other.

Where their rules limit the members of a node, or tie all to one domain, they are planned as others
are. Members that are alike under one spread constraint are divided among its domains
(`even_spread`). All others are placed in turn, each where its rules allow it beside the ones before
it; then the members of each domain are planned once more, together, for better nodes and GPUs. Of
the plans that kube-scheduler can bind, in some order, the one on the fewest nodes is taken.
"""

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from typing import TypeAlias

import numpy as np

from linkwise.cluster.gang import Link
from linkwise.planning.placement.assignment.candidates import CandidateNodes
from linkwise.planning.placement.even_spread import EvenSpread
from linkwise.planning.placement.filtering.feasibility import feasibility_of
from linkwise.planning.placement.filtering.neighbors import judge
from linkwise.planning.placement.placements import new_plan
from linkwise.planning.placement.pod_by_pod import place_each, place_together
from linkwise.planning.placement.pods.group import Group, new_group
from linkwise.planning.placement.result import Placement, Plan, Refusal
from linkwise.planning.placement.state.snapshot import Snapshot

DOMAINS_MAX = 32
"""Domains in which members that must share one are placed in turn; those with most room first."""

PlanGroup: TypeAlias = Callable[[Snapshot, Group], Plan | Refusal]


def plan_coupled(snapshot: Snapshot, group: Group, plan_group: PlanGroup) -> Plan | Refusal:
    """Plan all members of a group with a coupling, or none.

    Args:
        snapshot: The cluster.
        group: The members.
        plan_group: Plans a group whose coupling is complete, or that has none.

    Cost: a plan; where members are placed in turn, that of `place_each` three times, at most
    `DOMAINS_MAX` times as much where they must share a domain.
    """
    coupling = group.coupling
    found: list[Plan] = []
    refusal: Refusal | None = None
    if coupling and group.gpus and len(group.needs) == 1:
        planned = plan_group(snapshot, group)
        if coupling.is_complete:
            return planned
        even = EvenSpread.of(snapshot, group)
        if isinstance(planned, Refusal):
            refusal = planned
        elif _is_allowed(snapshot, even, planned):
            if coupling.is_by_node:
                return planned
            found.append(planned)
        if even and (balanced := even.plan(plan_group)):
            return min([*found, balanced], key=_rank)
    for part in _parts(snapshot, group):
        in_turn = _in_turn(part, group)
        if isinstance(in_turn, Refusal):
            refusal = in_turn
        else:
            found += _improved(part, group, in_turn, plan_group)
    best = min(found, key=_rank, default=None)
    return best or refusal or Refusal(f"no node is left: {coupling.words if coupling else ''}")


def _is_allowed(snapshot: Snapshot, even: EvenSpread | None, planned: Plan) -> bool:
    placements = planned.placements
    return even.allows(placements) if even else can_be_bound(snapshot, placements)


def can_be_bound(snapshot: Snapshot, placements: Iterable[Placement]) -> bool:
    """Return whether the rules about other pods let all of these be bound, in some order.

    Cost: that of `judge` for each; more where the order is another one.
    """
    later, left = snapshot, list(placements)
    while left:
        delayed: list[Placement] = []
        for placement in left:
            if _is_refused(later, placement):
                delayed.append(placement)
            else:
                later = later.hold_all([(placement.node, placement.holding)])
        if len(delayed) == len(left):
            return False
        left = delayed
    return True


def _is_refused(snapshot: Snapshot, placement: Placement) -> bool:
    here = snapshot.only(placement.node)
    return any(mask.any() for _, mask in judge(here, [placement.member]))


def _rank(plan: Plan) -> tuple[int, float]:
    return len(plan.gpus), -(plan.bandwidth.value or 0.0)


def _parts(snapshot: Snapshot, group: Group) -> Iterator[Snapshot]:
    """Yield the parts of the cluster in which all members may be."""
    together = group.coupling.together if group.coupling else ()
    if not together:
        yield snapshot
        return
    alone = (new_group([member], group.options) for member in group.representatives)
    capacity = np.stack([feasibility_of(snapshot, each).capacity for each in alone]).max(axis=0)
    rows = np.flatnonzero(capacity)
    if not len(rows):
        yield snapshot
        return
    nodes = CandidateNodes(snapshot, rows, capacity[rows])
    parts = sorted(nodes.same(together, 1), key=lambda part: -int(part.capacity.sum()))
    for part in parts[:DOMAINS_MAX]:
        yield snapshot.only(*(snapshot.nodes[row].node.name for row in part.rows.tolist()))


def _in_turn(snapshot: Snapshot, group: Group) -> Plan | Refusal:
    if group.options.link is Link.ONE_NODE:
        return place_together(snapshot, replace(group, coupling=None))
    return place_each(snapshot, replace(group, coupling=None))


def _improved(
    snapshot: Snapshot, group: Group, in_turn: Plan, plan_group: PlanGroup
) -> Iterator[Plan]:
    """Yield a plan, and better ones with as many members in each domain, and on each node."""
    yield in_turn
    if group.gpus_each is None or len(group.needs) != 1:
        return
    keys = {rule.key for member in group.representatives for rule in member.rules.spread}
    keys |= {term.key for member in group.representatives for term in member.rules.anti_affinity}
    nodes = snapshot.ledger.nodes
    names = {placement.node for placement in in_turn.placements}
    for key in sorted(keys):
        domains: dict[str, set[str]] = defaultdict(set)
        used = {nodes[name].node.labels.get(key, "") for name in names}
        for name, ledger in nodes.items():
            if (value := ledger.node.labels.get(key, "")) in used:
                domains[value].add(name)
        yield from _planned_in(snapshot, group, in_turn, list(domains.values()), plan_group)
    yield from _planned_in(snapshot, group, in_turn, [{name} for name in names], plan_group)


def _planned_in(
    snapshot: Snapshot,
    group: Group,
    in_turn: Plan,
    domains: Sequence[set[str]],
    plan_group: PlanGroup,
) -> Iterator[Plan]:
    """Yield the plan of the members of each domain among its nodes, if all can be bound."""
    placed: dict[str, Placement] = {}
    for names in domains:
        there = [one.member for one in in_turn.placements if one.node in names]
        if not there:
            continue
        part = plan_group(snapshot.only(*names), new_group(there, group.options))
        if isinstance(part, Refusal):
            return
        placed |= {placement.member.name: placement for placement in part.placements}
    if len(placed) == group.size:
        placements = [placed[member.name] for member in group.members]
        if can_be_bound(snapshot, placements):
            yield new_plan(snapshot, placements, exact=False, one_by_one=True)
