"""Costly work of many users, a few at a time, in the order in which it came."""

import asyncio
from collections import Counter

WAITING = 32
"""The work that waits, of all users."""


class Turns:
    """The users that work or wait. Each has little that waits, so that it delays others little."""

    def __init__(self, places: int, each: int) -> None:
        """Start without users.

        Args:
            places: How much is done at the same time.
            each: How much of one user is done or waits.
        """
        self._places, self._each = places, each
        self._users: Counter[str] = Counter()
        self._free = asyncio.Semaphore(places)

    @property
    def users(self) -> frozenset[str]:
        """The users that work or wait."""
        return frozenset(self._users)

    def refusal(self, user: str) -> str | None:
        """Return why a user cannot wait now; None: `begin` may be called."""
        if self._users[user] >= self._each:
            return "you have sent too much at once: send it again"
        if self._users.total() >= self._places + WAITING:
            return "too much of others waits: send it again"
        return None

    async def begin(self, user: str) -> None:
        """Wait for the turn of a user, which lasts until `end`."""
        self._users[user] += 1
        try:
            await self._free.acquire()
        except asyncio.CancelledError:
            self._leave(user)
            raise

    def end(self, user: str) -> None:
        """End a turn of a user."""
        self._leave(user)
        self._free.release()

    def _leave(self, user: str) -> None:
        self._users[user] -= 1
        if not self._users[user]:
            del self._users[user]
