"""How feasible nodes rank for one pod: whole numbers from 0 to 10, as an extender answers."""

from collections.abc import Callable, Iterable, Sequence
from functools import lru_cache
from typing import NamedTuple, TypeAlias, TypeVar

from cluster.ledger import NodeLedger
from cluster.node import Placement
from cluster.request import Family, Request
from scorer.placement.filters import gpu_capacity
from scorer.placement.shares import preference
from scorer.placement.single_node import TOLERANCE
from scorer.placement.snapshot import Snapshot
from topology.choice import Ask, Mode, choose
from topology.table import Table

# In Python 3.11 a member of an enum takes ten times as long to look up as a name.
_WHOLE = Family.WHOLE

HIGHEST = 10
"""`MaxExtenderPriority` of the scheduler's extender protocol."""
FAST = 8
"""Scores from here on are for nodes as fast as the best; what they leave free tells these apart."""


class Offer(NamedTuple):
    """What a node would give to a pod with whole GPUs, and keep."""

    bandwidth: float
    """A of the set it would give [GB/s]."""
    left: int
    """How many GPUs stay free."""
    damage: float
    """Lost 0.25·(V_2 + V_4) of what stays free [GB/s]."""


Worth: TypeAlias = Offer | tuple[float, ...]
"""What a node is worth to a pod: of whole GPUs an offer, else a key; the least key is the best."""
Thing = TypeVar("Thing", Offer, tuple[float, ...])


def rank_nodes(snapshot: Snapshot, names: Iterable[str], request: Request) -> dict[str, int]:
    """Score nodes that can take a pod; a node that cannot gets 0.

    For whole GPUs a node within 1 % of the best A gets 8 to 10 by what it would leave (`binpack`:
    few free GPUs and little damage; `spread`: many), any other 0 to 7 by its share of the best A.
    For shares and replicas the order of `cards.preference` is spread over 0 to 10.

    Cost: one look-up a node; nodes alike in machine and free GPUs are judged once. 5 ms for 5 000
    nodes.
    """
    names, nodes, tables = list(names), snapshot.ledger.nodes, snapshot.tables
    mode, placement = snapshot.mode, snapshot.placement
    found = [
        worth_of(nodes[name], tables.get(name), request, mode, placement) if name in nodes else None
        for name in names
    ]
    return dict(zip(names, scores(found, placement), strict=True))


def worth_of(
    node: NodeLedger, table: Table | None, request: Request, mode: Mode, placement: Placement
) -> Worth | None:
    """Return what a node is worth to a pod, to be compared with others; None where it cannot."""
    if request.family is _WHOLE:
        return _offer(table, node.free_mask, request.gpus, mode) if table else None
    if not isinstance(gpu_capacity(node, request), int):
        return None
    return preference(node, request, placement)


def scores(worths: Sequence[Worth | None], placement: Placement) -> list[int]:
    """Return the score of each node, by what they are worth to one pod; see `rank_nodes`."""
    different = set(worths)
    different.discard(None)
    offers = {worth for worth in different if isinstance(worth, Offer)}
    others = {worth for worth in different if worth is not None} - offers
    score: dict[Worth | None, int] = {None: 0}
    score.update(_scores(offers, placement).items())
    score.update(_spread_over(others, lambda key: key, 0).items())
    return list(map(score.__getitem__, worths))


@lru_cache(maxsize=1 << 16)
def _offer(table: Table, free: int, gpus: int, mode: Mode) -> Offer | None:
    """Return what a node gives whose free GPUs are these, or None where it has no set to give."""
    mask = choose(table, Ask(free, gpus, mode=mode))
    if mask is None:
        return None
    left = free & ~mask
    damage = round(table.remainder(free) - table.remainder(left), 6)
    return Offer(table.bandwidth(mask), left.bit_count(), damage)


def _scores(offers: set[Offer], placement: Placement) -> dict[Offer, int]:
    best = max((offer.bandwidth for offer in offers), default=0.0)
    fast = {offer for offer in offers if offer.bandwidth >= best * (1 - TOLERANCE)}
    sign = 1 if placement is Placement.BINPACK else -1
    slow = {offer: int((FAST - 1) * offer.bandwidth / best) for offer in offers - fast}
    return slow | _spread_over(fast, lambda offer: (sign * offer.left, offer.damage), FAST)


def _spread_over(
    things: Iterable[Thing], key: Callable[[Thing], tuple[float, ...]], lowest: int
) -> dict[Thing, int]:
    """Score things from 10 for the least key down to `lowest`, equal keys alike.

    Only the least key gets 10, since a scheduler draws lots among the best.
    """
    keys = {thing: key(thing) for thing in things}
    position = {value: index for index, value in enumerate(sorted(set(keys.values())))}
    steps = max(len(position) - 1, 1)
    return {
        thing: lowest + (HIGHEST - lowest) * (steps - position[value]) // steps
        for thing, value in keys.items()
    }
