"""Who is not tried again for a while: longer each time, until it goes well."""

import asyncio
from collections.abc import Callable, Hashable


class Rests:
    """Gangs, pods on their own or what they ask, that rest."""

    def __init__(self, first: float, longest: float, woken: Callable[[], None]) -> None:
        """Begin with nobody.

        Args:
            first: How long one rests after the first time [s]; each time twice as long.
            longest: But no longer than this [s].
            woken: Called when one has rested.
        """
        self._first, self._longest, self._woken = first, longest, woken
        self._pauses: dict[Hashable, float] = {}
        """How long each rested the last time [s]."""
        self._awake: set[Hashable] = set()
        """Who of them has rested."""

    def __contains__(self, key: Hashable) -> bool:
        return key in self._pauses and key not in self._awake

    def begin(self, key: Hashable) -> float:
        """Let one rest; return for how long [s]."""
        pause = min(2 * self._pauses.get(key, self._first / 2), self._longest)
        self._pauses[key] = pause
        self._awake.discard(key)
        asyncio.get_running_loop().call_later(pause, self._wake, key)
        return pause

    def forget(self, key: Hashable) -> None:
        """Forget how often one rested: it went well, or is gone."""
        self._pauses.pop(key, None)
        self._awake.discard(key)

    def _wake(self, key: Hashable) -> None:
        if key in self._pauses:
            self._awake.add(key)
            self._woken()
