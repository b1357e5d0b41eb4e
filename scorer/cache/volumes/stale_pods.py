"""Pods whose volumes changed, updated beside the other tasks of the event loop.

A tenant can let very many pods name one claim, and change it all the time.
"""

import asyncio
from collections.abc import Callable, Set

from linkwise.runtime.kube.objects import Key
from linkwise.runtime.process.cooperative import cooperatively


class StalePods:
    """The pods that are to be updated, each once."""

    def __init__(self, update: Callable[[Key], None]) -> None:
        """Start without pods.

        Args:
            update: Updates a pod, which may be gone.
        """
        self._update = update
        self._keys: set[Key] = set()
        self._has_some = asyncio.Event()
        self.idle = asyncio.Event()
        """Set while all are updated."""
        self.idle.set()

    def add(self, keys: Set[Key]) -> None:
        """Update these pods, too, as soon as other tasks have had their turn."""
        if keys:
            self._keys |= keys
            self._has_some.set()
            self.idle.clear()

    async def run(self) -> None:
        """Update pods until cancelled."""
        while True:
            await self._has_some.wait()
            self._has_some.clear()
            keys, self._keys = self._keys, set()
            async for key in cooperatively(keys):
                self._update(key)
            if not self._keys:
                self.idle.set()
