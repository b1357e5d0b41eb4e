"""Units that wait for pods that are ending, since their plan would be better without them.

A unit waits once until it is placed, for at most `gangs.settleSeconds`: neither further pods that
end nor pods that never do prolong it.
"""

from linkwise.cluster.gang import GangKey
from linkwise.planning.placement.assignment.single_node import TOLERANCE
from linkwise.planning.placement.result import Plan


class Settling:
    """The waits of one term of the Lease."""

    def __init__(self) -> None:
        """Start without units."""
        self._until: dict[GangKey, float] = {}
        """[s since 1970]; kept once it has passed."""

    def may_wait(self, key: GangKey, now: float, seconds: float) -> bool:
        """Return whether a unit may still wait.

        Args:
            key: Of the unit.
            now: The time [s since 1970].
            seconds: How long it may wait, by policy [s].
        """
        return now < self._until.get(key, now + seconds)

    def wait(self, key: GangKey, now: float, seconds: float) -> None:
        """Let a unit wait; one that waits already goes on until the same time."""
        self._until.setdefault(key, now + seconds)

    def end(self, key: GangKey) -> bool:
        """Forget a unit that was placed or has no pods left; return whether it has waited."""
        return self._until.pop(key, None) is not None

    def time_left(self, now: float) -> float | None:
        """Return the time until a unit is planned that waits [s]; None: none does."""
        return min((until - now for until in self._until.values() if until > now), default=None)


def is_better(other: Plan, plan: Plan) -> bool:
    """Return whether another plan of the same unit is better: faster, or on fewer nodes."""
    mine, its = plan.bandwidth, other.bandwidth
    if mine.value is None or its.value is None or not mine.is_comparable(its):
        return len(other.gpus) < len(plan.gpus)
    return mine.value < its.value * (1 - TOLERANCE)
