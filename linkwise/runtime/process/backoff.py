"""Exponential backoff by key: each failure in a row doubles the delay."""

import asyncio
from collections.abc import Callable, Hashable


class Backoff:
    """The keys that failed lately, with a timer each."""

    def __init__(self, initial: float, maximum: float, on_ready: Callable[[], None]) -> None:
        """Start without keys.

        Args:
            initial: Delay after the first failure [s].
            maximum: The longest delay [s]. A key that has not failed for this long is reset.
            on_ready: Called whenever the delay of a key ends.
        """
        self._initial, self._maximum, self._on_ready = initial, maximum, on_ready
        self._reasons: dict[Hashable, str] = {}
        """Of the keys whose delay has not ended."""
        self._delays: dict[Hashable, float] = {}
        """The last delay of each key [s]."""
        self._timers: dict[Hashable, asyncio.TimerHandle] = {}
        """By key: ends its delay, then resets it."""

    def __contains__(self, key: Hashable) -> bool:
        """Return whether the delay of a key has not ended."""
        return key in self._reasons

    def reason(self, key: Hashable) -> str | None:
        """Return why a key backs off; None: it does not."""
        return self._reasons.get(key)

    def has_failed(self, key: Hashable) -> bool:
        """Return whether a key has failed since it was last reset."""
        return key in self._delays

    def start(self, key: Hashable, reason: str = "", *, at_maximum: bool = False) -> float:
        """Start the delay of a key after a failure; return how long it is [s].

        Args:
            key: What failed.
            reason: Why, for people.
            at_maximum: Use the longest delay, because an early retry cannot succeed.
        """
        doubled = min(2 * self._delays.get(key, self._initial / 2), self._maximum)
        delay = self._maximum if at_maximum else doubled
        self.reset(key)
        self._reasons[key], self._delays[key] = reason, delay
        self._timers[key] = asyncio.get_running_loop().call_later(delay, self._end, key)
        return delay

    def reset(self, key: Hashable) -> None:
        """Forget the failures of a key: it succeeded, or it is gone."""
        self._reasons.pop(key, None)
        self._delays.pop(key, None)
        if timer := self._timers.pop(key, None):
            timer.cancel()

    def _end(self, key: Hashable) -> None:
        del self._reasons[key]
        loop = asyncio.get_running_loop()
        self._timers[key] = loop.call_later(self._maximum, self.reset, key)
        self._on_ready()
