"""Pods placed one after another, all or nothing: shares, replicas, counted or unequal GPUs."""

from collections.abc import Callable, Sequence

from cluster.ledger import NodeLedger
from cluster.record import GPUShare
from cluster.request import Family
from scorer.cards import cards_for, preference
from scorer.group import Group, group_of
from scorer.member import Member
from scorer.onenode import best_seat
from scorer.outcome import Placement, Plan, Refusal
from scorer.reason import Reason
from scorer.refusal import member_refusal, together_refusal
from scorer.room import survey
from scorer.seat import Candidate, Seat, Wish, bandwidth_over
from scorer.snapshot import Snapshot
from topology.machine import gpus_of, mask_of


def place_each(snapshot: Snapshot, group: Group, *, linked: bool = False) -> Plan | Refusal:
    """Place every member on what the ones before it left; the ones that ask for most go first.

    Args:
        snapshot: The cluster.
        group: The members.
        linked: Sets of whole GPUs must be connected by NVLink alone.

    Cost: one look at each node for each member.
    """
    placed: dict[str, Placement] = {}
    considered: set[str] = set()
    later = snapshot
    for member in sorted(group.members, key=_most_first):
        able, blocked = survey(later.nodes, group_of([member]))
        nodes = [node for node, _ in able]
        found = _place(later, member, nodes, {p.node for p in placed.values()}, linked=linked)
        if found is None:
            blocked += [Reason.LINK] * len(nodes)
            return Refusal(member_refusal(member, len(placed), group.size, blocked))
        placed[member.name] = found
        considered |= {node.node.name for node in nodes}
        later = later.hold_all([(found.node, member.holding(found.shares))])
    placements = tuple(placed[member.name] for member in group.members)
    seats = _seats(snapshot, placements)
    if linked and len(seats) == 1 and not seats[0].candidate.table.linked[seats[0].mask]:
        return Refusal(together_refusal(group, "NVLink alone does not connect them there"))
    return Plan(
        placements,
        bandwidth=bandwidth_over(seats, snapshot.nic_bandwidth),
        exact=not seats,
        one_by_one=group.size > 1,
        nodes_considered=len(considered),
        nic_unknown=len(seats) > 1 and snapshot.nic_bandwidth is None,
    )


def place_together(snapshot: Snapshot, group: Group) -> Plan | Refusal:
    """Place all members on one node: the first, in the order for one of them, that takes all."""
    first = min(group.members, key=_most_first)
    able, blocked = survey(snapshot.nodes, group_of([first]))
    if not able:
        return Refusal(member_refusal(first, 0, group.size, blocked))
    order = _order(snapshot, first)
    for node in sorted((node for node, _ in able), key=order):
        plan = place_each(snapshot.only(node.node.name), group)
        if isinstance(plan, Plan):
            return plan
    return Refusal(together_refusal(group, "no node takes all of them"))


def _most_first(member: Member) -> tuple[int, int, int]:
    asked = member.request
    return -asked.memory_per_card, -asked.core_per_card, -asked.gpus


def _place(
    snapshot: Snapshot, member: Member, able: list[NodeLedger], used: set[str], *, linked: bool
) -> Placement | None:
    """Place one pod on one of the nodes that have room for it."""
    if member.request.family is Family.WHOLE:
        return _whole(snapshot, member, able, used, linked=linked)
    if not able:
        return None
    node = min(able, key=_order(snapshot, member))
    shares = cards_for(node, member.request) if member.request.places else ()
    return Placement(member, node.node.name, shares)


def _order(snapshot: Snapshot, member: Member) -> Callable[[NodeLedger], tuple[object, ...]]:
    """Return how nodes that could take a pod are ordered, the best first."""
    return lambda node: (
        *preference(node, member.request, snapshot.placement),
        node.node.name,
    )


def _whole(
    snapshot: Snapshot, member: Member, able: list[NodeLedger], used: set[str], *, linked: bool
) -> Placement | None:
    """Place a member whose gang asks for unequal numbers of GPUs, near the others if possible."""
    wish = Wish(snapshot.mode, linked=linked, multi_node=True)
    candidates = [Candidate(node, snapshot.tables[node.node.name], 1) for node in able]
    near = [candidate for candidate in candidates if candidate.name in used]
    sizes = (member.gpus,)
    seat = best_seat(near, sizes, wish, snapshot.placement) or best_seat(
        candidates, sizes, wish, snapshot.placement
    )
    if seat is None:
        return None
    cards = seat.candidate.node.node.cards
    shares = tuple(GPUShare(i, cards[i].uuid) for i in gpus_of(seat.mask))
    return Placement(member, seat.name, shares)


def _seats(snapshot: Snapshot, placements: Sequence[Placement]) -> list[Seat]:
    """Return what the members with whole GPUs take of each node, together."""
    gpus: dict[str, list[tuple[int, ...]]] = {}
    for placement in placements:
        if placement.member.gpus:
            gpus.setdefault(placement.node, []).append(placement.gpus)
    return [
        Seat(
            Candidate(snapshot.ledger.nodes[name], snapshot.tables[name], len(members)),
            len(members),
            mask_of([i for member in members for i in member]),
        )
        for name, members in gpus.items()
    ]
