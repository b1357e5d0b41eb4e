"""One piece of work at a time, for the users in turn."""

import asyncio

WAITING = 32
"""Users that wait; each has one piece of work."""


class Turns:
    """The users that wait, first come, first served: a user waits for one of each other at most."""

    def __init__(self) -> None:
        """Start without users."""
        self._users: set[str] = set()
        self._lock = asyncio.Lock()

    def refusal(self, user: str) -> str | None:
        """Return why a user cannot wait now; None: `begin` may be called."""
        if user in self._users:
            return "another manifest of yours is being tried: try again"
        if len(self._users) >= WAITING:
            return "too many people try manifests: try again"
        return None

    async def begin(self, user: str) -> None:
        """Wait for the turn of a user, which lasts until `end`."""
        self._users.add(user)
        try:
            await self._lock.acquire()
        except asyncio.CancelledError:
            self._users.discard(user)
            raise

    def end(self, user: str) -> None:
        """End the turn of a user."""
        self._users.discard(user)
        self._lock.release()
