"""Which one node a pod, or a whole gang, fits best."""

from collections.abc import Iterable

from cluster.node import Placement
from scorer.seat import Candidate, Offer, Seat, Wish, offer

TOLERANCE = 0.01
"""Nodes whose A is within this share of the best count as equally fast (`scoring.md`, §4)."""


def best_seat(
    candidates: Iterable[Candidate], sizes: tuple[int, ...], wish: Wish, placement: Placement
) -> Seat | None:
    """Return the best node for all workers together, with the GPUs they would get there.

    The largest A wins. Of nodes within 1 % of it, `binpack` takes the one with the fewest GPUs left
    free, then with the least damage to these, then the first name; `spread` the most left free.

    Args:
        candidates: Nodes that can take all workers; of nodes alike in machine and free GPUs, which
            differ by name only, the first is enough.
        sizes: GPUs of each worker.
        wish: What is asked of the GPUs.
        placement: How to tell equally fast nodes apart.

    Cost: one look-up a candidate.
    """
    offers = ((offer(one.table, one.node.free_mask, sizes, wish), one) for one in candidates)
    found = [(given, candidate) for given, candidate in offers if given is not None]
    if not found:
        return None
    enough = max(given.bandwidth for given, _ in found) * (1 - TOLERANCE)
    sign = 1 if placement is Placement.BINPACK else -1

    def order(one: tuple[Offer, Candidate]) -> tuple[int, float, str]:
        given, candidate = one
        return sign * given.left, given.damage, candidate.name

    given, candidate = min((one for one in found if one[0].bandwidth >= enough), key=order)
    return Seat(candidate, len(sizes), given.mask)
