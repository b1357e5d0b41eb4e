"""Plan a group of pods, all or nothing; a single pod is a group of one.

A plan is made on one snapshot and changes nothing. Members that ask for the same whole GPUs are
planned together: on one node (`single_node`), else over several (`multi_node`); where NVIDIA's
plugin may choose the GPUs, also by their number (`by_count`). Others are planned one after another
(`pod_by_pod`), each on what the ones before it left. GPUs that do not satisfy the selectors of a
claim are closed first, and sets that do not satisfy its constraints are not chosen
(`selected_nodes`).
"""

from collections.abc import Sequence
from dataclasses import replace
from functools import partial

import numpy as np

from linkwise.cluster.gang import Link
from linkwise.planning.placement.assignment.by_count import linked_by_count, tightest
from linkwise.planning.placement.assignment.candidates import CandidateNodes
from linkwise.planning.placement.assignment.multi_node import (
    MultiNodeAssignment,
    best_assignment,
    most_even,
)
from linkwise.planning.placement.assignment.node_assignment import SelectionOptions
from linkwise.planning.placement.assignment.partition import set_capacity
from linkwise.planning.placement.assignment.single_node import (
    TOLERANCE,
    best_node,
    best_node_of_pod,
)
from linkwise.planning.placement.coupled import plan_coupled
from linkwise.planning.placement.filtering.coupling import coupling_of
from linkwise.planning.placement.filtering.feasibility import (
    feasibility_of,
    feasibility_of_all,
)
from linkwise.planning.placement.filtering.filters import may_use_closed
from linkwise.planning.placement.filtering.reasons import set_reason
from linkwise.planning.placement.filtering.spread import preferred_domains
from linkwise.planning.placement.messages import gang_refusal, one_node_refusal
from linkwise.planning.placement.options import DEFAULT, PlanOptions
from linkwise.planning.placement.placements import plan_of_assignment
from linkwise.planning.placement.pod_by_pod import place_each, place_together
from linkwise.planning.placement.pods.group import Group, new_group
from linkwise.planning.placement.pods.member import Member
from linkwise.planning.placement.result import Plan, Refusal
from linkwise.planning.placement.state.node_columns import Ints, node_columns
from linkwise.planning.placement.state.selected_nodes import selected_by
from linkwise.planning.placement.state.snapshot import Snapshot


def plan(
    snapshot: Snapshot, members: Sequence[Member], options: PlanOptions = DEFAULT
) -> Plan | Refusal:
    """Place all members, or none.

    Args:
        snapshot: The cluster.
        members: Pods that ask for GPUs, at least one, in rank order.
        options: What the plan asks besides; with siblings, the snapshot has one node.

    Cost: one look at each node that changed since the last plan; a few ms for 8 workers on 5 000
    nodes, 15 ms for 256 workers on 1 000.
    """
    group = new_group(members, options)
    if any(map(may_use_closed, group.representatives)):
        # Such a pod may be of a job that tolerates everything: open nodes are better for it.
        ready = snapshot.open_nodes()
        if ready is not snapshot and isinstance(found := _plan(ready, group), Plan):
            return found
    return _plan(snapshot, group)


def feasible_nodes(
    snapshot: Snapshot, members: Sequence[Member], options: PlanOptions = DEFAULT
) -> frozenset[str]:
    """Return the nodes that fit at least one of the members, or all where these stay together.

    Args:
        snapshot: The cluster.
        members: As in `plan`.
        options: As in `plan`.
    """
    group = new_group(members, options)
    capacities = np.stack(
        [
            _capacity(selected_by(snapshot, member.needs), new_group([member], options))
            for member in group.representatives
        ]
    )
    capacity = capacities.max(axis=0)
    if options.link is Link.ONE_NODE:
        capacity = capacities.min(axis=0)
        if group.gpus:
            capacity = np.minimum(capacity, feasibility_of_all(snapshot, group).capacity)
    return frozenset(snapshot.nodes[row].node.name for row in np.flatnonzero(capacity).tolist())


def _plan(snapshot: Snapshot, group: Group) -> Plan | Refusal:
    coupling = coupling_of(snapshot, group)
    if coupling is None:
        return _plan_group(snapshot, group)
    return plan_coupled(snapshot, replace(group, coupling=coupling), _plan_group)


def _plan_group(snapshot: Snapshot, group: Group) -> Plan | Refusal:
    """Plan members that may be beside each other, as far as their coupling says."""
    options = group.options
    if len(group.needs) == 1:
        snapshot = selected_by(snapshot, *group.needs)
    if not group.gpus or len(group.needs) > 1:
        place = place_together if options.link is Link.ONE_NODE else place_each
        return place(snapshot, group)
    planned = _by_sets(snapshot, group)
    if group.by_count:
        by_count = _by_count(snapshot, group)
        if by_count and (planned is None or _is_better(snapshot, by_count, planned)):
            planned = by_count
        if planned is not None:
            planned = replace(planned, nodes_considered=_count_nodes(snapshot, group, planned))
    if planned is None and _stay_together(group):
        feasibility = feasibility_of_all(snapshot, group)
        return Refusal(one_node_refusal(feasibility, group))
    # The capacity of nodes was computed for the most demanding member: one by one more may fit.
    if planned is None and len(group.representatives) > 1:
        return place_each(snapshot, group)
    return planned or _refusal(snapshot, group)


def _count_nodes(snapshot: Snapshot, group: Group, planned: Plan) -> int:
    """Return how many nodes fit all members or, for a plan over several nodes, at least one."""
    feasibility_for = feasibility_of_all if len(planned.gpus) == 1 else feasibility_of
    return len(feasibility_for(snapshot, group).feasible)


def _is_better(snapshot: Snapshot, by_count: Plan, by_sets: Plan) -> bool:
    """Return whether a plan by count is better than one whose sets of GPUs are known.

    Fewer nodes are better, then a nearer network domain, then a bandwidth that is known and higher.
    At equal ones the known sets are better.
    """

    def distance(planned: Plan) -> tuple[int, int]:
        nodes, labels = len(planned.gpus), snapshot.preferences.domains
        label = (planned.domain or "").partition("=")[0]
        level = labels.index(label) if label in labels else len(labels)
        return nodes, level if nodes > 1 else 0

    if (near := distance(by_count)) != (far := distance(by_sets)):
        return near < far
    counted, known = by_count.bandwidth.value, by_sets.bandwidth.value
    return counted is not None and known is not None and known < counted * (1 - TOLERANCE)


def _together(group: Group) -> tuple[str, ...]:
    return group.coupling.together if group.coupling else ()


def _stay_together(group: Group) -> bool:
    return group.options.link is Link.ONE_NODE or group.size == 1


def _by_sets(snapshot: Snapshot, group: Group) -> Plan | None:
    """Plan members on nodes where Linkwise chooses the set of GPUs, or return None."""
    if _stay_together(group) or group.gpus <= node_columns(snapshot).free.max(initial=0):
        together = _on_one_node(snapshot, group)
        if together is not None or _stay_together(group):
            return together
    each = group.gpus_each
    return _over_nodes(snapshot, group, each) if each else None


def _on_one_node(snapshot: Snapshot, group: Group) -> Plan | None:
    """Plan all members on one node, or return None where none fits them all."""
    capacity = _where_exact(snapshot, feasibility_of_all(snapshot, group).capacity)
    if group.is_matched:
        capacity = capacity * (_set_capacity(snapshot, group) >= group.size)
    rows, siblings = np.flatnonzero(capacity), group.options.siblings
    linked, preferences = group.options.is_linked, snapshot.preferences
    options = SelectionOptions(preferences.mode, linked, siblings.multi_node, siblings.mask)
    if group.size == 1:
        crowds = preferred_domains(snapshot, group.members[0])
        assignment = best_node_of_pod(snapshot, rows, group.gpus, options, crowds)
    else:
        classes = CandidateNodes(snapshot, rows, capacity[rows]).classes()
        candidates = (snapshot.nodes[nodes.rows[0]] for nodes in classes)
        sizes = tuple(member.gpus for member in group.members)
        assignment = best_node(snapshot, candidates, sizes, options)
    if assignment is None:
        return None
    found = MultiNodeAssignment((assignment,), None, assignment.table.exact)
    return plan_of_assignment(snapshot, group, found, nodes_considered=len(rows))


def _over_nodes(snapshot: Snapshot, group: Group, each: int) -> Plan | None:
    """Plan members that ask for the same GPUs over several nodes, or return None."""
    # All members on one node were tried before, and there NVLink had to connect all of them.
    capacity = np.minimum(_where_exact(snapshot, _capacity(snapshot, group)), group.size - 1)
    rows, linked = np.flatnonzero(capacity), group.options.is_linked
    options = SelectionOptions(snapshot.preferences.mode, linked=linked, multi_node=True)
    ranking = partial(most_even, each=each, options=options)
    nodes = CandidateNodes(snapshot, rows, capacity[rows])
    best = best_assignment(nodes, group.size, ranking, _together(group))
    if best is None:
        return None
    return plan_of_assignment(snapshot, group, best, nodes_considered=len(rows))


def _by_count(snapshot: Snapshot, group: Group) -> Plan | None:
    """Plan members whose GPUs NVIDIA's plugin may choose; None where they do not fit.

    Cost: a few ms for 8 workers on 5,000 nodes.
    """
    capacity = np.minimum(_capacity_by_count(snapshot, group), group.size)
    counted = np.flatnonzero(capacity * node_columns(snapshot).is_counted)
    ranking = partial(tightest, each=group.representatives[0].gpus)
    found = (
        best_assignment(
            CandidateNodes(snapshot, rows, capacity[rows]), group.size, ranking, _together(group)
        )
        for rows in (counted, np.flatnonzero(capacity))
    )
    # At equal numbers the first: counted nodes alone.
    best = min(filter(None, found), key=lambda best: len(best.assignments), default=None)
    return plan_of_assignment(snapshot, group, best) if best else None


def _refusal(snapshot: Snapshot, group: Group) -> Refusal:
    """Return why members that ask for the same fit neither one node nor several."""
    feasibility = feasibility_of(snapshot, group)
    capacity = np.minimum(_capacity(snapshot, group), group.size - 1)
    blocked = feasibility.blocked
    blocked[set_reason(group)] += len(feasibility.feasible) - len(np.flatnonzero(capacity))
    capacities = capacity[np.flatnonzero(capacity)].tolist()
    return Refusal(gang_refusal(group, capacities, +blocked))


def _capacity_by_count(snapshot: Snapshot, group: Group) -> Ints:
    """Return how many members each node fits, by its number of free GPUs alone."""
    counted = node_columns(snapshot).is_counted
    together = feasibility_of_all(snapshot, group).capacity * counted
    if _stay_together(group) or group.gpus_each is None:
        capacity = together
    else:
        capacity = np.maximum(together, feasibility_of(snapshot, group).capacity)
    return linked_by_count(snapshot, capacity) if group.options.is_linked else capacity


def _capacity(snapshot: Snapshot, group: Group) -> Ints:
    """Return how many members each node fits."""
    capacity = feasibility_of(snapshot, group).capacity
    if not (group.options.is_linked or group.is_matched) or not group.gpus:
        return capacity
    sets = np.minimum(capacity, _set_capacity(snapshot, group))
    return _where_exact(snapshot, sets) + linked_by_count(snapshot, capacity)


def _where_exact(snapshot: Snapshot, capacity: Ints) -> Ints:
    """Return the capacity of nodes where Linkwise chooses the set of GPUs; 0 for others."""
    exact: Ints = capacity * ~node_columns(snapshot).is_counted
    return exact


def _set_capacity(snapshot: Snapshot, group: Group) -> Ints:
    """Return how many workers find a set on each node that is linked and matched as they need."""
    each, linked = group.representatives[0].gpus, group.options.is_linked
    states = node_columns(snapshot).state
    capacity = [
        set_capacity(table, free, each, linked=linked) for table, free in snapshot.cache.states
    ]
    # The last one is for nodes without GPUs.
    sets: Ints = np.array([*capacity, 0])[states]
    return sets
