"""Whose plan takes long: such units are looked at after all others, and not too soon again.

Planning takes the processor from everybody, so that nobody gets much of it at first. What was found
until the time was over is kept, and who comes again gets more. A tenant can make any number of
units that take long, so that everything else of its namespace is planned after all others, too.
"""

from collections.abc import Callable, Hashable

from cluster.gang import GangKey
from scorer.gang.unit import Unit
from scorer.queue.backoff import Backoff

SOON, LONG = 0.3, 1.5
"""How long a unit may be planned the first time, and when it was late before; the latter is what a
question about a dry run may take, too, for which the webhook waits a little longer, and less than
the 2 s after which the Lease is renewed [s]."""
FIRST, LAST = 1.0, 600.0
"""Before one that was late is planned again, the first time and at most [s]."""


class TimeBudget:
    """Units that took too long the last time."""

    def __init__(self, woken: Callable[[], None]) -> None:
        """Begin with nobody; `woken` is called when one may be planned again."""
        self._rests = Backoff(FIRST, LAST, woken)
        self._asked: dict[GangKey, Hashable] = {}

    def __contains__(self, unit: Unit) -> bool:
        """Whether it was late, and asks for the same still."""
        asked = self._asked.get(unit.key)
        return asked is not None and asked == _asked(unit)

    @property
    def namespaces(self) -> frozenset[str]:
        """The namespaces of all that were late: all of theirs is planned after what others ask."""
        return frozenset(key.namespace for key in self._asked)

    def is_resting(self, unit: Unit) -> bool:
        """Tell whether it is too soon to plan a unit again."""
        return unit.key in self._rests and unit in self

    def time(self, unit: Unit) -> float:
        """Return how long a unit may be planned [s]."""
        return LONG if unit in self else SOON

    def note(self, unit: Unit) -> float:
        """Note that a unit was late; return for how long it rests [s]."""
        if unit not in self:
            self._rests.forget(unit.key)
        self._asked[unit.key] = _asked(unit)
        return self._rests.begin(unit.key)

    def forget(self, key: GangKey) -> None:
        """Forget about one: it was planned in time, or is gone."""
        self._rests.forget(key)
        self._asked.pop(key, None)


def _asked(unit: Unit) -> Hashable:
    return tuple(member.signature for member in unit.members)
