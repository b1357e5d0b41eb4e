"""Which one node a pod, or a whole gang, fits best."""

from collections.abc import Sequence

from cluster.node import Placement
from scorer.seat import Candidate, Seat, Wish, take

TOLERANCE = 0.01
"""Nodes whose A is within this share of the best count as equally fast (`scoring.md`, §4)."""


def best_seat(
    candidates: Sequence[Candidate], sizes: tuple[int, ...], wish: Wish, placement: Placement
) -> Seat | None:
    """Return the best node for all workers together, with the GPUs they would get there.

    The largest A wins. Of nodes within 1 % of it, `binpack` takes the one with the fewest GPUs left
    free, then with the least damage to these, then the first name; `spread` the most left free.

    Args:
        candidates: Nodes that can take all workers.
        sizes: GPUs of each worker.
        wish: What is asked of the GPUs.
        placement: How to tell equally fast nodes apart.

    Cost: one look-up a node. Nodes alike in machine and free GPUs differ by name only.
    """
    states: dict[tuple[int, int], Candidate] = {}
    for candidate in candidates:
        state = (id(candidate.table), candidate.node.free_mask)
        if state not in states or candidate.name < states[state].name:
            states[state] = candidate
    found = [take(candidate, sizes, wish) for candidate in states.values()]
    seats = [seat for seat in found if seat is not None]
    if not seats:
        return None
    enough = max(seat.bandwidth for seat in seats) * (1 - TOLERANCE)
    sign = 1 if placement is Placement.BINPACK else -1
    return min(
        (seat for seat in seats if seat.bandwidth >= enough),
        key=lambda seat: (sign * seat.left.bit_count(), seat.damage, seat.name),
    )
