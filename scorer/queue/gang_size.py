"""Sizes of gangs, read from their owners and PodGroups while members are missing."""

import asyncio
from collections.abc import Coroutine, Iterable, Iterator
from typing import Any, NamedTuple, TypeAlias

import structlog

from cluster.gang import GangKey
from cluster.pod import Owner
from runtime.kube.client import ApiError, Kube, KubeError
from runtime.process.backoff import Backoff
from scorer.cache.informers import Informers
from scorer.gang.declaration import Declaration
from scorer.gang.owners import (
    PodGroup,
    expected_pods,
    group_paths,
    is_suspended,
    members_of,
    path_of,
)
from scorer.gang.unit import Unit
from scorer.metrics import Stage
from scorer.queue.fault_isolation import FaultIsolation

_CONCURRENT_READS = 8
_RETRY_MAX = 300.0
"""The longest delay between two reads of the same object [s]."""

_log = structlog.get_logger()


class _OwnerPath(NamedTuple):
    """An owner, and where it is read."""

    uid: str
    path: str


_Source: TypeAlias = _OwnerPath | GangKey
_Owner: TypeAlias = tuple[str, str]
"""Namespace of its pods, and uid, which users can write."""


class GangSizeResolver:
    """Reads owners and PodGroups, each with a backoff."""

    def __init__(
        self, kube: Kube, informers: Informers, faults: FaultIsolation, *, retry: float
    ) -> None:
        """Start without reads.

        Args:
            kube: The API server.
            informers: Store the sizes.
            faults: Isolates faults.
            retry: First delay before the same object is read again [s]. It may be created late,
                or its size may change.
        """
        self._kube, self._workloads, self._faults = kube, informers.workloads, faults
        self._pending: set[_Source] = set()
        """What is being read."""
        self._paths: dict[_Owner, set[str]] = {}
        """The paths at which an owner was read."""
        self._backoff = Backoff(retry, _RETRY_MAX, informers.changed.set)
        self._slots = asyncio.Semaphore(_CONCURRENT_READS)

    def resolve(self, units: Iterable[Unit]) -> Iterator[Coroutine[Any, Any, None]]:
        """Yield the reads that are due for gangs with missing members."""
        for unit in units:
            if not unit.is_gang or not _lacks_members(unit):
                continue
            owner, key = unit.owner, unit.key
            if owner:
                yield from self.resolve_owner(owner, key.namespace)
            paths = group_paths(unit.members[0].pod, key.namespace)
            if paths and self._is_due(key):
                self._pending.add(key)
                yield self._isolated(key, self._read_group(key, paths))

    def resolve_owner(self, owner: Owner, namespace: str) -> Iterator[Coroutine[Any, Any, None]]:
        """Yield the read of a gang's owner, if it is due."""
        path = path_of(owner, namespace)
        # Users can write any name and uid, which must not delay the read of another owner.
        if path and self._is_due(source := _OwnerPath(owner.uid, path)):
            self._pending.add(source)
            self._paths.setdefault((namespace, owner.uid), set()).add(path)
            yield self._isolated(source, self._read_owner(owner, source, namespace))

    def expire(self, owner: Owner, namespace: str) -> None:
        """Let an owner be read without delay, since its size may have changed."""
        for path in self._paths.get((namespace, owner.uid), ()):
            self._backoff.reset(_OwnerPath(owner.uid, path))

    def forget(self, key: GangKey) -> None:
        """Drop the size of a gang that has no pods left."""
        paths = self._paths.pop((key.namespace, key.owner), ())
        for source in (key, *(_OwnerPath(key.owner, path) for path in paths)):
            self._pending.discard(source)
            self._backoff.reset(source)
        self._workloads.forget_gang(key)

    def _is_due(self, source: _Source) -> bool:
        failed = self._faults.is_backing_off(Stage.SIZE, source)
        return not (failed or source in self._backoff or source in self._pending)

    async def _isolated(self, source: _Source, read: Coroutine[Any, Any, None]) -> None:
        with self._faults.isolate(Stage.SIZE, source):
            await read
        self._pending.discard(source)

    async def _read_owner(self, owner: Owner, source: _OwnerPath, namespace: str) -> None:
        declaration, path = None, source.path
        try:
            async with self._slots:
                declaration = await self._kube.get(path, Declaration)
        except KubeError as error:
            _log.warning("Could not read owner", owner=path, err=str(error))
        if not self._finish(source) or not declaration:
            return
        self._workloads.set_suspended(owner.uid, suspended=is_suspended(declaration, owner.uid))
        if members := members_of(declaration, owner.uid):
            expected = expected_pods(declaration, owner)
            self._workloads.set_expected(namespace, owner.uid, members, expected)

    async def _read_group(self, gang: GangKey, paths: Iterable[str]) -> None:
        group = None
        for path in paths:
            try:
                async with self._slots:
                    group = await self._kube.get(path, PodGroup)
            except KubeError as error:
                # It may be created after its pods, and not every cluster serves every version.
                if not (isinstance(error, ApiError) and error.status == 404):
                    _log.warning("Could not read PodGroup", group=path, err=str(error))
                continue
            if not group.is_deleting:
                break
            # Another one may be created under its name.
            group = None
        if self._finish(gang) and group and group.members:
            self._workloads.set_group_size(gang, group.members)

    def _finish(self, source: _Source) -> bool:
        """Start the delay before the next read; return whether the gang still exists."""
        if source not in self._pending:
            return False
        self._pending.discard(source)
        self._backoff.start(source)
        return True


def _lacks_members(unit: Unit) -> bool:
    return unit.needed is None or unit.present < unit.needed
