"""How many members gangs are to have, asked of those who make their pods, once for each."""

import asyncio
from collections.abc import Coroutine, Iterable, Iterator
from typing import Any

import structlog

from cluster.pod import Owner
from runtime.kube import Kube, KubeError
from scorer.gangs import Unit
from scorer.owner import Declaration, members_of, path_of
from scorer.watches import Watches

_log = structlog.get_logger()


class Sizes:
    """Asks owners."""

    def __init__(self, kube: Kube, watches: Watches, *, pause: float) -> None:
        """Say whom to ask, and who wants to know.

        Args:
            kube: The API server.
            watches: What is known of owners.
            pause: Before an owner that could not be read is asked again [s].
        """
        self._kube, self._watches, self._pause = kube, watches, pause
        self._asked: set[str] = set()
        """Uids of owners."""

    def ask(self, units: Iterable[Unit]) -> Iterator[Coroutine[Any, Any, None]]:
        """Yield the calls that ask for those units of which nobody was asked yet."""
        for unit in units:
            owner = unit.owner
            if unit.is_gang and owner is not None and owner.uid not in self._asked:
                self._asked.add(owner.uid)
                yield self._ask(owner, unit.key.namespace)

    def forget(self, uid: str) -> None:
        """Forget what an owner declared, since no pod of it is there."""
        self._asked.discard(uid)
        self._watches.declare(uid, None)

    async def _ask(self, owner: Owner, namespace: str) -> None:
        path = path_of(owner, namespace)
        if path is None:
            return
        try:
            found = await self._kube.get(path, Declaration)
        except KubeError as error:
            _log.warning("Could not read owner", owner=path, err=str(error))
            # Asked again, if the gang waits still.
            await asyncio.sleep(self._pause)
            self._asked.discard(owner.uid)
            self._watches.changed.set()
            return
        if members := members_of(found, owner.uid):
            self._watches.declare(owner.uid, members)
