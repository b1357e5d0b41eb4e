"""Conversion between the assignment of a node and the placements of its members."""

from collections.abc import Iterable, Iterator, Sequence
from itertools import islice

from linkwise.cluster.account.node_ledger import NodeLedger
from linkwise.cluster.allocations.gpus import GPUs, number_counted
from linkwise.planning.placement.assignment.multi_node import MultiNodeAssignment
from linkwise.planning.placement.assignment.node_assignment import (
    CountedAssignment,
    NodeAssignment,
)
from linkwise.planning.placement.assignment.partition import split
from linkwise.planning.placement.bandwidth import Bandwidth, bandwidth_over
from linkwise.planning.placement.filtering.shares import whole_gpus
from linkwise.planning.placement.pods.group import Group
from linkwise.planning.placement.pods.member import Member
from linkwise.planning.placement.result import Placement, Plan
from linkwise.planning.placement.state.snapshot import Snapshot
from linkwise.topology.machine import gpus_of, mask_of


def plan_of_assignment(
    snapshot: Snapshot, group: Group, found: MultiNodeAssignment, nodes_considered: int = 0
) -> Plan:
    """Return the plan of an assignment: the members of each node in rank order, with their GPUs."""
    rest, placements, known = iter(group.members), list[Placement](), list[NodeAssignment]()
    for assignment in found.assignments:
        members = tuple(islice(rest, assignment.workers))
        placements += placements_on(members, assignment, linked=group.options.is_linked)
        known += [assignment] if isinstance(assignment, NodeAssignment) else []
    all_known = len(known) == len(found.assignments)
    return Plan(
        tuple(placements),
        _bandwidth(snapshot, known if all_known else assignments_of(snapshot, placements)),
        exact=found.exact,
        domain=found.domain,
        nodes_considered=nodes_considered,
    )


def placements_on(
    members: Sequence[Member], assignment: NodeAssignment | CountedAssignment, *, linked: bool
) -> Iterator[Placement]:
    """Split the GPUs of an assignment among its members; it is known that they can be split."""
    if isinstance(assignment, CountedAssignment):
        yield from (Placement(each, assignment.name, each.counted_gpus) for each in members)
        return
    node = assignment.ledger.node
    sizes = tuple(member.gpus for member in members)
    parts = split(assignment.table, assignment.mask, sizes, linked=linked) or ()
    for member, part in zip(members, parts, strict=True):
        yield Placement(member, node.name, whole_gpus(node, gpus_of(part)))


def assignments_of(
    snapshot: Snapshot, placements: Iterable[Placement]
) -> list[NodeAssignment] | None:
    """Return the assignment of each node, of the members with whole GPUs.

    None where a set is not known: NVIDIA's plugin chooses several GPUs of a node, and not all.
    """
    taken: dict[str, list[GPUs]] = {}
    for placement in placements:
        if placement.member.gpus:
            taken.setdefault(placement.node, []).append(placement.gpus)
    assignments: list[NodeAssignment] = []
    for name, there in taken.items():
        ledger, table = snapshot.ledger.nodes[name], snapshot.tables.get(name)
        count = sum(map(number_counted, there))
        mask = mask_of([share.i for gpus in there for share in gpus.shares])
        known = counted_set(ledger, count) if count else mask
        if known is None or table is None:
            return None
        assignments.append(NodeAssignment(ledger, table, known))
    return assignments


def counted_set(node: NodeLedger, count: int) -> int | None:
    """Return the set of GPUs that a gang has on a node where NVIDIA's plugin chooses them.

    It is known where the gang has all GPUs of the node. One GPU has no links to others, so any one
    stands for it. None: it is not known.
    """
    is_whole = count == len(node.node.cards) and node.node.parts is None
    is_known = count == 1 or is_whole
    return (1 << count) - 1 if is_known else None


def new_plan(
    snapshot: Snapshot,
    placements: Sequence[Placement],
    *,
    exact: bool,
    one_by_one: bool = False,
    nodes_considered: int = 0,
) -> Plan:
    """Return the plan of some placements, with its bandwidth where the sets of GPUs are known."""
    return Plan(
        tuple(placements),
        _bandwidth(snapshot, assignments_of(snapshot, placements)),
        exact=exact,
        one_by_one=one_by_one,
        nodes_considered=nodes_considered,
    )


def _bandwidth(snapshot: Snapshot, assignments: list[NodeAssignment] | None) -> Bandwidth:
    if assignments is None:
        return Bandwidth(sets_unknown=True)
    return bandwidth_over(assignments, snapshot.preferences.nic_bandwidth)
