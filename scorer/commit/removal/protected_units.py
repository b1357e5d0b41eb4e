"""Units that are not evicted for a while, since the API server refused to evict one of their pods.

Pure. The time doubles with each refusal.
"""

from collections.abc import Callable
from dataclasses import dataclass

from linkwise.cluster.gang import GangKey

FIRST, LONGEST = 60.0, 3600.0
"""The shortest and the longest time of a unit [s]."""
KEPT = 1024
"""The most units that are kept, those that were refused last."""


@dataclass(frozen=True, slots=True)
class _Protection:
    why: str
    since: float
    until: float

    @property
    def seconds(self) -> float:
        """For how long it lasts."""
        return self.until - self.since


class ProtectedUnits:
    """The protected units of one term of the Lease."""

    def __init__(self, clock: Callable[[], float]) -> None:
        """Protect none; the clock is the wall clock [s since 1970]."""
        self._clock = clock
        self._units: dict[GangKey, _Protection] = {}

    def reason(self, key: GangKey) -> str | None:
        """Return why a unit is not evicted now for another one; None: it may be."""
        protection = self._units.get(key)
        return protection.why if protection and self._clock() < protection.until else None

    def refused_lately(self, key: GangKey) -> str | None:
        """Return why a unit is not evicted now for its own sake; None: it may be.

        However often others were to take its GPUs, it does not stay on broken ones for long.
        """
        protection = self._units.get(key)
        is_lately = protection is not None and self._clock() < protection.since + FIRST
        return protection.why if protection and is_lately else None

    def protect(self, key: GangKey, why: str) -> None:
        """Protect a unit; for longer if it was protected lately."""
        now, before = self._clock(), self._units.pop(key, None)
        is_lately = before is not None and now < before.until + before.seconds
        seconds = min(2 * before.seconds, LONGEST) if before and is_lately else FIRST
        self._units[key] = _Protection(why, now, now + seconds)
        while len(self._units) > KEPT:
            del self._units[next(iter(self._units))]

    def time_left(self) -> float | None:
        """Return the time until a unit may be evicted again [s]; None: none is protected."""
        now = self._clock()
        ends = (end for each in self._units.values() for end in (each.since + FIRST, each.until))
        return min((end - now for end in ends if end > now), default=None)
