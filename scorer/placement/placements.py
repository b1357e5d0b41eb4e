"""Conversion between the assignment of a node and the placements of its members."""

from collections.abc import Iterable, Sequence
from itertools import islice

from cluster.account.node_ledger import NodeLedger
from cluster.allocations.gpus import number_counted
from scorer.placement.assignment.node_assignment import Candidate, NodeAssignment
from scorer.placement.assignment.partition import split
from scorer.placement.bandwidth import Bandwidth, bandwidth_over
from scorer.placement.filtering.shares import whole_gpus
from scorer.placement.pods.member import Member
from scorer.placement.result import Placement, Plan
from scorer.placement.state.snapshot import Snapshot
from topology.machine import gpus_of, mask_of


def in_parts(members: Iterable[Member], sizes: Iterable[int]) -> list[tuple[Member, ...]]:
    """Return the members of each node, in rank order; `sizes` are their numbers."""
    rest = iter(members)
    return [tuple(islice(rest, size)) for size in sizes]


def placements_on(
    members: Sequence[Member], assignment: NodeAssignment, *, linked: bool
) -> tuple[Placement, ...]:
    """Split the GPUs of an assignment among its members; it is known that they can be split."""
    node = assignment.candidate.node.node
    sizes = tuple(member.gpus for member in members)
    parts = split(assignment.candidate.table, assignment.mask, sizes, linked=linked) or ()
    return tuple(
        Placement(member, node.name, whole_gpus(node, gpus_of(part)))
        for member, part in zip(members, parts, strict=True)
    )


def assignments_of(
    snapshot: Snapshot, placements: Iterable[Placement]
) -> list[NodeAssignment] | None:
    """Return the assignment of each node, of the members with whole GPUs.

    None where a set is not known: NVIDIA's plugin chooses several GPUs of a node, and not all.
    """
    taken: dict[str, list[Placement]] = {}
    for placement in placements:
        if placement.member.gpus:
            taken.setdefault(placement.node, []).append(placement)
    assignments: list[NodeAssignment] = []
    for name, there in taken.items():
        ledger, table = snapshot.ledger.nodes[name], snapshot.tables.get(name)
        mask = mask_of([i for placement in there for i in placement.gpus.indices])
        count = sum(number_counted(placement.gpus) for placement in there)
        known = counted_set(ledger, count) if count else mask
        if known is None or table is None:
            return None
        assignments.append(NodeAssignment(Candidate(ledger, table, len(there)), len(there), known))
    return assignments


def counted_set(node: NodeLedger, count: int) -> int | None:
    """Return the set of GPUs that a gang has on a node where NVIDIA's plugin chooses them.

    It is known where the gang has all GPUs of the node. One GPU has no links to others, so any one
    stands for it. None: it is not known.
    """
    is_known = count == 1 or count == len(node.node.cards)
    return (1 << count) - 1 if is_known else None


def new_plan(
    snapshot: Snapshot,
    placements: Sequence[Placement],
    *,
    exact: bool,
    domain: str | None = None,
    one_by_one: bool = False,
    nodes_considered: int = 0,
) -> Plan:
    """Return the plan of some placements, with its bandwidth where the sets of GPUs are known."""
    assignments, bandwidth = assignments_of(snapshot, placements), Bandwidth(sets_unknown=True)
    if assignments is not None:
        bandwidth = bandwidth_over(assignments, snapshot.preferences.nic_bandwidth)
    return Plan(
        tuple(placements),
        bandwidth=bandwidth,
        exact=exact,
        domain=domain,
        one_by_one=one_by_one,
        nodes_considered=nodes_considered,
    )
