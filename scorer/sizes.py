"""How many members gangs are to have, asked of those who know as long as some are missing."""

import asyncio
from collections.abc import Coroutine, Iterable, Iterator
from typing import Any

import structlog

from cluster.gang import GangKey
from cluster.pod import Owner
from runtime.kube import ApiError, Kube, KubeError
from scorer.gangs import Unit
from scorer.owner import Declaration, PodGroup, group_paths, makes_of, members_of, path_of
from scorer.watches import Watches

_log = structlog.get_logger()


class Sizes:
    """Asks owners and PodGroups."""

    def __init__(self, kube: Kube, watches: Watches, *, pause: float) -> None:
        """Say whom to ask, and who wants to know.

        Args:
            kube: The API server.
            watches: What is known of owners.
            pause: Before the same is asked for again: it may be there by then, or say another
                number [s].
        """
        self._kube, self._watches, self._pause = kube, watches, pause
        self._asked: set[str | GangKey] = set()
        """Uids of owners; gangs, as far as they may have a PodGroup."""

    def ask(self, units: Iterable[Unit]) -> Iterator[Coroutine[Any, Any, None]]:
        """Yield the calls that ask for gangs that cannot be planned yet."""
        for unit in units:
            if not unit.is_gang or unit.blocked is None:
                continue
            owner, key = unit.owner, unit.key
            if owner is not None and owner.uid not in self._asked:
                self._asked.add(owner.uid)
                yield self._ask_owner(owner, key.namespace)
            if key not in self._asked:
                self._asked.add(key)
                paths = group_paths(unit.members[0].pod, key.namespace)
                if paths:
                    yield self._ask_group(key, paths)

    def forget(self, key: GangKey) -> None:
        """Forget what was answered of a gang, since no pod of it is there."""
        self._asked -= {key.owner, key}
        self._watches.forget(key)

    async def _ask_owner(self, owner: Owner, namespace: str) -> None:
        path = path_of(owner, namespace)
        if path is None:
            return
        try:
            found = await self._kube.get(path, Declaration)
        except KubeError as error:
            _log.warning("Could not read owner", owner=path, err=str(error))
        else:
            if members := members_of(found, owner.uid):
                self._watches.declare(owner.uid, members, makes_of(found, owner))
        await self._ask_again(owner.uid)

    async def _ask_group(self, gang: GangKey, paths: Iterable[str]) -> None:
        for path in paths:
            try:
                found = await self._kube.get(path, PodGroup)
            except KubeError as error:
                # It may come after its pods, and not every cluster serves every version.
                if not (isinstance(error, ApiError) and error.status == 404):
                    _log.warning("Could not read PodGroup", group=path, err=str(error))
                continue
            if found.leaves:
                # Another one may be made under its name.
                continue
            if found.members:
                self._watches.declare_group(gang, found.members)
            break
        await self._ask_again(gang)

    async def _ask_again(self, asked: str | GangKey) -> None:
        """Have it asked again in a while, if the gang waits still."""
        await asyncio.sleep(self._pause)
        self._asked.discard(asked)
        self._watches.changed.set()
