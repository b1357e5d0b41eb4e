"""Decide which gangs are evicted because of faults under them, and when. Pure.

Faults that follow one another, as while a driver is replaced, are one decision: gangs move once no
fault was added for a while, so that none goes to GPUs that fail next. No node decides how often a
gang moves: it moves at most once an hour, and only a few gangs do at the same time.
"""

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from math import inf

from linkwise.cluster.gang import GangKey
from linkwise.planning.gang.health import Fault
from linkwise.runtime.process.clock import rfc3339

BETWEEN_MOVES = 3600.0
"""The shortest time between two moves of one gang [s]."""


@dataclass(frozen=True, slots=True)
class Candidate:
    """A gang with faults under it."""

    key: GangKey
    priority: int
    since: Mapping[Fault, float]
    """Its faults, and since when each lasts [s since 1970]; at least one."""
    moved_at: float = -inf
    """When it was evicted last because of a fault [s since 1970]."""

    @property
    def first(self) -> float:
        """Since when it has a fault [s since 1970]."""
        return min(self.since.values())


@dataclass(frozen=True, slots=True)
class Decision:
    """The gangs that are evicted now, and why others are not."""

    moves: tuple[GangKey, ...]
    waits: Mapping[GangKey, str]
    """Why a gang stays for now, for users."""
    next_at: float
    """When the next decision is due without a change [s since 1970]; infinite: never."""


def decide(
    candidates: Collection[Candidate],
    blocker: Callable[[GangKey], str | None],
    *,
    now: float,
    seconds: float,
    free: int,
) -> Decision:
    """Return which gangs are evicted now.

    Args:
        candidates: All gangs with faults that are not being moved.
        blocker: Returns why a gang must not be evicted; called only for gangs that are due.
        now: The time [s since 1970].
        seconds: How long a fault lasts before it moves a gang [s].
        free: How many more gangs may move now.
    """
    newest = max((max(each.since.values()) for each in candidates), default=-inf)
    moves: list[GangKey] = []
    waits: dict[GangKey, str] = {}
    next_at = inf
    for each in sorted(candidates, key=lambda each: (-each.priority, each.first, each.key)):
        # Others may fail next, but none delays a gang by more than this.
        due = max(each.first, min(newest, each.first + seconds)) + seconds
        again = each.moved_at + BETWEEN_MOVES
        if now < max(due, again):
            next_at = min(next_at, max(due, again))
            waits[each.key] = _until(each, again, due, seconds)
        elif (why := blocker(each.key)) is not None:
            waits[each.key] = why
        elif len(moves) < free:
            moves.append(each.key)
        else:
            waits[each.key] = "it is evicted once fewer gangs are being moved"
    return Decision(tuple(moves), waits, next_at)


def _until(candidate: Candidate, again: float, due: float, seconds: float) -> str:
    if again > due:
        at = f"{rfc3339(candidate.moved_at)} and is not moved again before {rfc3339(again)}"
        return f"it was moved at {at}"
    return f"all members are evicted together if this lasts {seconds:g} s"
