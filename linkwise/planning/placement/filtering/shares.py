"""Choose the cards of a node for shares and replicas: best fit, or spread."""

from bisect import bisect_left
from collections import Counter
from collections.abc import Callable, Iterable, Sequence

from linkwise.cluster.account.node_ledger import FreeShare, NodeLedger
from linkwise.cluster.allocations.gpus import Exact, GPUShare
from linkwise.cluster.mode import PackingStrategy
from linkwise.cluster.nodes.node import Node
from linkwise.cluster.requests.request import Family, Request


def cards_for(node: NodeLedger, request: Request) -> tuple[GPUShare, ...]:
    """Choose cards of this node for a share or replica request; empty where there is too little.

    A share lies on `request.gpus` different cards, an equal part on each. Best fit (`binpack`)
    takes the cards with the least free memory that is enough, then the least free compute, then the
    lowest index; `spread` the most, with the same ties. Replicas are taken from the GPUs
    with the most replicas left, each from another GPU while there are enough.
    """
    if request.family is Family.REPLICA:
        return _replicas(node, request.gpus)
    memory, core = request.memory_per_card, request.core_per_card
    chosen = sorted(card.i for card in _chosen(node, request.gpus, _needed(request)))
    return tuple(GPUShare(i, node.node.cards[i].uuid, memory, core or None) for i in chosen)


def whole_gpus(node: Node, indices: Iterable[int]) -> Exact:
    """Return whole GPUs of a node.

    Raises:
        IndexError: The node has fewer GPUs.
    """
    return Exact(tuple(GPUShare(i, node.cards[i].uuid) for i in indices))


def has_room(node: NodeLedger, request: Request) -> bool:
    """Return whether this node's cards fit a share or replica request."""
    if request.family is Family.REPLICA:
        return sum(map(node.replicas_free, range(len(node.taken)))) >= request.gpus
    return len(_feasible(node, _needed(request))) >= request.gpus


def has_enough(node: NodeLedger, requests: Sequence[Request]) -> bool:
    """Return whether a node has the total of some requests, however it is divided among cards.

    Without the total it cannot fit all of them. Requests are not for whole GPUs that Linkwise
    chooses.
    """
    families = {request.family for request in requests}
    gpus = sum(request.gpus for request in requests)
    if families == {Family.REPLICA}:
        return sum(map(node.replicas_free, range(len(node.taken)))) >= gpus
    if families == {Family.NVIDIA}:
        counts = Counter[str]()
        for request in requests:
            counts[request.resource] += request.gpus
        return all(node.counted_free(resource) >= number for resource, number in counts.items())
    if families != {Family.SHARE}:
        return True
    memory = sum(max(0, card.memory) for card in node.shares_free)
    core = sum(max(0, card.core) for card in node.shares_free)
    needed_memory = sum(request.gpus * request.memory_per_card for request in requests)
    needed_core = sum(request.gpus * request.core_per_card for request in requests)
    return memory >= needed_memory and core >= needed_core


def _needed(request: Request) -> FreeShare:
    """Return the part of each card that a share needs, which is the first card that fits it."""
    return FreeShare(request.memory_per_card, request.core_per_card, 0)


def _feasible(node: NodeLedger, needed: FreeShare) -> Sequence[FreeShare]:
    """Return the cards that fit one part of a share, in the order of best fit."""
    cards, core = node.shares_in_order, needed.core
    enough = cards[bisect_left(cards, needed) :]
    return [free for free in enough if free.core >= core] if core else enough


def _chosen(node: NodeLedger, gpus: int, needed: FreeShare) -> Sequence[FreeShare]:
    """Return the cards of a share, in the order of its rule; none where it does not fit."""
    cards = _feasible(node, needed)
    if len(cards) < gpus:
        return ()
    if node.node.placement is PackingStrategy.BINPACK:
        return cards[:gpus]
    return sorted(cards, key=lambda card: (-card.memory, -card.core, card.i))[:gpus]


def _replicas(node: NodeLedger, wanted: int) -> tuple[GPUShare, ...]:
    left = [node.replicas_free(i) for i in range(len(node.taken))]
    if sum(left) < wanted:
        return ()
    chosen: list[int] = []
    for _ in range(wanted):
        # A chosen GPU comes after every other with a replica left.
        i = max(range(len(left)), key=lambda i: (left[i] > 0, -chosen.count(i), left[i], -i))
        chosen.append(i)
        left[i] -= 1
    return tuple(GPUShare(i, node.node.cards[i].uuid) for i in sorted(chosen))


def preference(node: NodeLedger, request: Request, placement: PackingStrategy) -> tuple[float, ...]:
    """Return the key that orders nodes for a request that fits: the least first, then by name.

    For shares best fit prefers nodes in use, `spread` emptier ones; then the card rule decides.
    Replicas are placed where the most are left.

    Args:
        node: The node, with its own layout of shares.
        request: Not for whole GPUs that Linkwise chooses.
        placement: The layout of GPUs that are only counted.
    """
    if not request.places:
        free = node.counted_free(request.resource)
        return (free if placement is PackingStrategy.BINPACK else -free,)
    if request.family is Family.REPLICA:
        return (min(-node.replicas_free(share.i) for share in cards_for(node, request)),)
    return share_preference(request)(node)


def share_preference(request: Request) -> Callable[[NodeLedger], tuple[float, ...]]:
    """Return a function with the key of `preference` for each node; empty where there is no room.

    Args:
        request: A share.
    """
    gpus, needed = request.gpus, _needed(request)

    def key(node: NodeLedger) -> tuple[float, ...]:
        chosen = _chosen(node, gpus, needed)
        if not chosen:
            return ()
        memory, core, _ = chosen[0]
        if gpus > 1:
            memory, core = min(card.memory for card in chosen), min(card.core for card in chosen)
        if node.node.placement is PackingStrategy.BINPACK:
            return (float(node.sharing is None), memory, core)
        total = sum(card.memory or 0 for card in node.node.cards)
        used = sum(taken.memory for taken in node.taken)
        return (used / total, -memory, -core)

    return key
