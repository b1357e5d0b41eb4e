"""Who is not tried again for a while: longer each time, until it goes well."""

import asyncio
from collections.abc import Callable, Hashable


class Backoff:
    """Gangs, pods on their own or what they ask, that rest."""

    def __init__(self, first: float, longest: float, woken: Callable[[], None]) -> None:
        """Begin with nobody.

        Args:
            first: How long one rests after the first time [s]; each time twice as long.
            longest: But no longer than this [s]. Who has rested, and does not again for as long,
                is forgotten.
            woken: Called when one has rested.
        """
        self._first, self._longest, self._woken = first, longest, woken
        self._why: dict[Hashable, str] = {}
        """Of those that rest."""
        self._pauses: dict[Hashable, float] = {}
        """How long each rested the last time [s]."""
        self._timers: dict[Hashable, asyncio.TimerHandle] = {}
        """Until each has rested, then until it is forgotten."""

    def __contains__(self, key: Hashable) -> bool:
        return key in self._why

    def why(self, key: Hashable) -> str | None:
        """Return why one rests; None: it does not."""
        return self._why.get(key)

    def pause(self, key: Hashable) -> float:
        """Return for how long one rested the last time [s]; 0 where it did not."""
        return self._pauses.get(key, 0.0)

    def has_rested(self, key: Hashable) -> bool:
        """Tell whether one rests, or has rested and is not forgotten."""
        return key in self._pauses

    def begin(self, key: Hashable, why: str = "", *, longest: bool = False) -> float:
        """Let one rest; return for how long [s].

        Args:
            key: Whom.
            why: For people.
            longest: For the longest time at once: trying it again soon cannot help.
        """
        doubled = min(2 * self._pauses.get(key, self._first / 2), self._longest)
        pause = self._longest if longest else doubled
        self.forget(key)
        self._why[key], self._pauses[key] = why, pause
        self._timers[key] = asyncio.get_running_loop().call_later(pause, self._wake, key)
        return pause

    def forget(self, key: Hashable) -> None:
        """Forget how often one rested: it went well, or is gone."""
        self._why.pop(key, None)
        self._pauses.pop(key, None)
        if timer := self._timers.pop(key, None):
            timer.cancel()

    def _wake(self, key: Hashable) -> None:
        del self._why[key]
        later = asyncio.get_running_loop().call_later
        self._timers[key] = later(self._longest, self.forget, key)
        self._woken()
