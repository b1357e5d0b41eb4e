"""Which cards of a node a share or a replica gets: best fit, or spread."""

from cluster.ledger import NodeLedger
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
    free = ((node.memory_free(i), node.core_free(i), i) for i in range(len(node.taken)))
    roomy = [card for card in free if card[0] >= memory and (not core or card[1] >= core)]
    if len(roomy) < request.gpus:
        return ()
    sign = 1 if node.node.placement is Placement.BINPACK else -1
    roomy.sort(key=lambda card: (sign * card[0], sign * card[1], card[2]))
    chosen = sorted(i for _, _, i in roomy[: request.gpus])
    return tuple(GPUShare(i, node.node.cards[i].uuid, memory, core or None) for i in chosen)


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
        return (node.nvidia_free if placement is Placement.BINPACK else -node.nvidia_free,)
    shares = cards_for(node, request)
    if request.family is Family.REPLICA:
        return (min(-node.replicas_free(share.i) for share in shares),)
    memory = min(node.memory_free(share.i) for share in shares)
    core = min(node.core_free(share.i) for share in shares)
    if node.node.placement is Placement.BINPACK:
        return (float(node.sharing is None), memory, core)
    total = sum(card.memory or 0 for card in node.node.cards)
    used = sum(taken.memory for taken in node.taken)
    return (used / total, -memory, -core)
