"""How many members gangs are to have, asked of those who know as long as some are missing."""

import asyncio
from collections.abc import Coroutine, Iterable, Iterator
from typing import Any

import structlog

from cluster.gang import GangKey
from cluster.pod import Owner
from runtime.kube.client import ApiError, Kube, KubeError
from scorer.cache.informers import Informers
from scorer.gang.owners import (
    Declaration,
    PodGroup,
    expected_pods,
    group_paths,
    is_suspended,
    members_of,
    path_of,
)
from scorer.gang.unit import Unit
from scorer.metrics import Stage
from scorer.queue.backoff import Backoff
from scorer.queue.fault_isolation import FaultIsolation

_AT_ONCE = 8
"""Questions under way."""
_LONGEST = 300.0
"""Between two questions about the same, at most [s]."""

_log = structlog.get_logger()


class GangSizeResolver:
    """Asks owners and PodGroups."""

    def __init__(
        self, kube: Kube, informers: Informers, faults: FaultIsolation, *, pause: float
    ) -> None:
        """Say whom to ask, and who wants to know.

        Args:
            kube: The API server.
            informers: What is known of owners.
            faults: Contains faults of ours.
            pause: Before the same is asked for again: it may be there by then, or say another
                number; each time twice as long [s].
        """
        self._kube, self._informers, self._faults = kube, informers, faults
        self._asking: set[str | GangKey] = set()
        """Uids of owners; gangs, as far as they may have a PodGroup."""
        self._asked = Backoff(pause, _LONGEST, informers.changed.set)
        self._few = asyncio.Semaphore(_AT_ONCE)

    def ask(self, units: Iterable[Unit]) -> Iterator[Coroutine[Any, Any, None]]:
        """Yield the calls that ask about gangs of which members are missing."""
        for unit in units:
            if not unit.is_gang or not _lacks_members(unit):
                continue
            owner, key = unit.owner, unit.key
            if owner:
                yield from self.ask_owner(owner, key.namespace)
            paths = group_paths(unit.members[0].pod, key.namespace)
            if paths and self._is_due(key):
                self._asking.add(key)
                yield self._contained(key, self._ask_group(key, paths))

    def ask_owner(self, owner: Owner, namespace: str) -> Iterator[Coroutine[Any, Any, None]]:
        """Yield the call that asks the owner of a gang, where that is due."""
        path = path_of(owner, namespace)
        if path and self._is_due(owner.uid):
            self._asking.add(owner.uid)
            yield self._contained(owner.uid, self._ask_owner(owner, path))

    def again(self, owner: Owner) -> None:
        """Let an owner be asked at once, since it may want fewer pods by now."""
        self._asked.forget(owner.uid)

    def forget(self, key: GangKey) -> None:
        """Forget what was answered of a gang, since no pod of it is there."""
        for asked in (key.owner, key):
            self._asking.discard(asked)
            self._asked.forget(asked)
        self._informers.forget(key)

    def _is_due(self, asked: str | GangKey) -> bool:
        is_resting = asked in self._asked or self._faults.is_resting(Stage.SIZE, asked)
        return asked not in self._asking and not is_resting

    async def _contained(self, asked: str | GangKey, call: Coroutine[Any, Any, None]) -> None:
        with self._faults.contained(Stage.SIZE, asked):
            await call
        self._asking.discard(asked)

    async def _ask_owner(self, owner: Owner, path: str) -> None:
        found = None
        try:
            async with self._few:
                found = await self._kube.get(path, Declaration)
        except KubeError as error:
            _log.warning("Could not read owner", owner=path, err=str(error))
        if not self._is_wanted(owner.uid) or not found:
            return
        self._informers.set_suspended(owner.uid, suspended=is_suspended(found, owner.uid))
        if members := members_of(found, owner.uid):
            self._informers.set_expected(owner.uid, members, expected_pods(found, owner))

    async def _ask_group(self, gang: GangKey, paths: Iterable[str]) -> None:
        found = None
        for path in paths:
            try:
                async with self._few:
                    found = await self._kube.get(path, PodGroup)
            except KubeError as error:
                # It may come after its pods, and not every cluster serves every version.
                if not (isinstance(error, ApiError) and error.status == 404):
                    _log.warning("Could not read PodGroup", group=path, err=str(error))
                continue
            if not found.leaves:
                break
            # Another one may be made under its name.
            found = None
        if self._is_wanted(gang) and found and found.members:
            self._informers.set_group_size(gang, found.members)

    def _is_wanted(self, asked: str | GangKey) -> bool:
        """Let it be asked again in a while; say whether the gang is there still."""
        if asked not in self._asking:
            return False
        self._asking.discard(asked)
        self._asked.begin(asked)
        return True


def _lacks_members(unit: Unit) -> bool:
    return unit.needed is None or unit.present < unit.needed
