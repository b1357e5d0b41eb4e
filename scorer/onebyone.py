"""Pods placed one after another, all or nothing: shares, replicas, counted or unequal GPUs."""

from cluster.ledger import NodeLedger
from cluster.node import Placement as Layout
from cluster.record import GPUShare
from cluster.request import Family
from scorer.cards import cards_for, preference
from scorer.group import Group, group_of
from scorer.member import Member
from scorer.onenode import best_seat
from scorer.outcome import Placement, Plan, Refusal
from scorer.reason import Reason
from scorer.refusal import member_refusal
from scorer.room import room
from scorer.seat import Candidate, Wish
from scorer.snapshot import Snapshot
from topology.machine import gpus_of


def place_each(snapshot: Snapshot, group: Group, *, linked: bool = False) -> Plan | Refusal:
    """Place every member on what the ones before it left; the ones that ask for most go first.

    Args:
        snapshot: The cluster.
        group: The members.
        linked: Sets of whole GPUs must be connected by NVLink alone.

    Cost: one look at each node for each member.
    """
    placed: dict[str, Placement] = {}
    considered = 0
    for member in sorted(group.members, key=lambda member: -member.gpus):
        found = _place(snapshot, member, {p.node for p in placed.values()}, linked=linked)
        if isinstance(found, list):
            return Refusal(member_refusal(member, len(placed), group.size, found))
        placed[member.name] = found
        considered = max(considered, len(snapshot.nodes))
        snapshot = snapshot.hold(found.node, member.holding(found.shares))
    return Plan(tuple(placed[m.name] for m in group.members), nodes_considered=considered)


def _place(
    snapshot: Snapshot, member: Member, used: set[str], *, linked: bool
) -> Placement | list[Reason]:
    """Place one pod, or say for every node why not."""
    alone = group_of([member])
    able: list[NodeLedger] = []
    blocked: list[Reason] = []
    for node in snapshot.nodes:
        found = room(node, alone)
        if isinstance(found, Reason):
            blocked.append(found)
        else:
            able.append(node)
    if member.request.family is Family.WHOLE:
        return _whole(snapshot, member, able, used, linked=linked) or [*blocked, Reason.LINK]
    if not able:
        return blocked
    node = min(able, key=lambda node: (*_rank(snapshot, node, member), node.node.name))
    shares: tuple[GPUShare, ...] = ()
    if member.request.places:
        shares = cards_for(node, member.request)
    return Placement(member, node.node.name, shares)


def _rank(snapshot: Snapshot, node: NodeLedger, member: Member) -> tuple[float, ...]:
    if member.request.places:
        return preference(node, member.request)
    packed = snapshot.placement is Layout.BINPACK
    return (node.nvidia_free if packed else -node.nvidia_free,)


def _whole(
    snapshot: Snapshot, member: Member, able: list[NodeLedger], used: set[str], *, linked: bool
) -> Placement | None:
    """Place a member whose gang asks for unequal numbers of GPUs, near the others if possible."""
    wish = Wish(member.gpus, snapshot.mode, linked=linked)
    candidates = [Candidate(node, snapshot.tables[node.node.name], 1) for node in able]
    near = [candidate for candidate in candidates if candidate.name in used]
    seat = best_seat(near, 1, wish, snapshot.placement) or best_seat(
        candidates, 1, wish, snapshot.placement
    )
    if seat is None:
        return None
    cards = seat.candidate.node.node.cards
    shares = tuple(GPUShare(i, cards[i].uuid) for i in gpus_of(seat.mask))
    return Placement(member, seat.name, shares)
