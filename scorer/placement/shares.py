"""Which cards of a node a share or a replica gets: best fit, or spread."""

from collections import Counter
from collections.abc import Sequence

from cluster.ledger import FreeShare, NodeLedger
from cluster.node import Placement
from cluster.record import GPUShare
from cluster.request import Family, Request


def cards_for(node: NodeLedger, request: Request) -> tuple[GPUShare, ...]:
    """Return what a share or replica request would get of this node's cards; empty if too little.

    A share lies on `request.gpus` different cards, an equal part on each. Best fit (`binpack`)
    takes the cards with the least free memory that has room, then the least free compute, then the
    lowest index; `spread` the most, with the same ties. Replicas go to the GPUs with the most
    replicas left, each to another GPU while there are enough.
    """
    if request.family is Family.REPLICA:
        return _replicas(node, request.gpus)
    memory, core = request.memory_per_card, request.core_per_card
    chosen = sorted(card.i for card in _chosen(node, request))
    return tuple(GPUShare(i, node.node.cards[i].uuid, memory, core or None) for i in chosen)


def has_room(node: NodeLedger, request: Request) -> bool:
    """Tell whether this node's cards have room for a share or replica request."""
    if request.family is Family.REPLICA:
        return sum(map(node.replicas_free, range(len(node.taken)))) >= request.gpus
    return len(_roomy(node, request)) >= request.gpus


def has_enough(node: NodeLedger, requests: Sequence[Request]) -> bool:
    """Tell whether a node has as much as all of some requests ask for, however it is cut.

    Where it has not, it does not take all of them. Requests are not for whole GPUs that Linkwise
    chooses.
    """
    families, gpus = {one.family for one in requests}, sum(one.gpus for one in requests)
    if families == {Family.REPLICA}:
        return sum(map(node.replicas_free, range(len(node.taken)))) >= gpus
    if families == {Family.NVIDIA}:
        asked = Counter[str]()
        for one in requests:
            asked[one.counted] += one.gpus
        return all(node.counted_free(resource) >= number for resource, number in asked.items())
    if families != {Family.SHARE}:
        return True
    memory = sum(max(0, card.memory) for card in node.shares_free)
    core = sum(max(0, card.core) for card in node.shares_free)
    asked_memory = sum(one.gpus * one.memory_per_card for one in requests)
    asked_core = sum(one.gpus * one.core_per_card for one in requests)
    return memory >= asked_memory and core >= asked_core


def _roomy(node: NodeLedger, request: Request) -> list[FreeShare]:
    """Return the cards with room for one part of a share."""
    memory, core = request.memory_per_card, request.core_per_card
    return [free for free in node.shares_free if free.memory >= memory and free.core >= core]


def _chosen(node: NodeLedger, request: Request) -> list[FreeShare]:
    """Return the cards that a share gets, in the order of its rule; none where there is no room."""
    cards = _roomy(node, request)
    if len(cards) < request.gpus:
        return []
    if node.node.placement is Placement.BINPACK:
        return sorted(cards)[: request.gpus]
    return sorted(cards, key=lambda card: (-card.memory, -card.core, card.i))[: request.gpus]


def _replicas(node: NodeLedger, wanted: int) -> tuple[GPUShare, ...]:
    left = [node.replicas_free(i) for i in range(len(node.taken))]
    if sum(left) < wanted:
        return ()
    chosen: list[int] = []
    for _ in range(wanted):
        # A GPU already chosen comes after every other that has a replica left.
        i = max(range(len(left)), key=lambda i: (left[i] > 0, -chosen.count(i), left[i], -i))
        chosen.append(i)
        left[i] -= 1
    return tuple(GPUShare(i, node.node.cards[i].uuid) for i in sorted(chosen))


def preference(node: NodeLedger, request: Request, placement: Placement) -> tuple[float, ...]:
    """Return how a node ranks for a request that fits; the least is taken, then by name.

    For shares best fit prefers nodes in use, `spread` emptier ones; then the card rule decides.
    Replicas go where the most are left.

    Args:
        node: The node; it tells its layout of shares itself.
        request: What is asked; not whole GPUs that Linkwise chooses.
        placement: The layout of GPUs that are only counted.
    """
    if not request.places:
        free = node.counted_free(request.counted)
        return (free if placement is Placement.BINPACK else -free,)
    if request.family is Family.REPLICA:
        return (min(-node.replicas_free(share.i) for share in cards_for(node, request)),)
    chosen = _chosen(node, request)
    memory, core = min(card.memory for card in chosen), min(card.core for card in chosen)
    if node.node.placement is Placement.BINPACK:
        return (float(node.sharing is None), memory, core)
    total = sum(card.memory or 0 for card in node.node.cards)
    used = sum(taken.memory for taken in node.taken)
    return (used / total, -memory, -core)
