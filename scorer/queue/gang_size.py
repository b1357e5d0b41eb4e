"""Sizes of gangs, read from their owners and PodGroups while members are missing.

The objects of one namespace are read one after the other. After each, those of its namespace wait
many times as long as it took to evaluate: users can write objects of any size, and let any number
of pods name them.
"""

import asyncio
from collections.abc import Callable, Coroutine, Iterable, Iterator
from functools import partial
from typing import Any, NamedTuple, TypeAlias, TypeVar
from weakref import WeakValueDictionary

import structlog
from msgspec import Raw
from msgspec.json import Decoder

from cluster.gang import GangKey
from cluster.pod import Owner
from runtime.kube.client import ApiError, Kube, KubeError, Unreadable
from runtime.kube.decode import decode
from runtime.kube.errors import UNDECODABLE
from runtime.process.backoff import Backoff
from runtime.process.clock import loop_time
from scorer.cache.informers import Informers
from scorer.gang.unit import Unit
from scorer.metrics import Stage
from scorer.queue.fault_isolation import FaultIsolation
from workloads.members import Declared, declared
from workloads.paths import path_of
from workloads.pod_group import PodGroup, group_paths
from workloads.registry import kind_of

_CONCURRENT_READS = 8
_RETRY_MAX = 300.0
"""The longest delay between two reads of the same object [s]."""
_PAUSE = 20.0
"""How much longer than an object takes the next one of its namespace waits."""

T = TypeVar("T")

_groups = Decoder(PodGroup)
_log = structlog.get_logger()


class _OwnerPath(NamedTuple):
    """An owner, and where it is read."""

    uid: str
    """Of the gang's owner; a job above it is read for it, too."""
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
        self._turns = WeakValueDictionary[str, asyncio.Lock]()
        """By namespace."""

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
        """Yield the reads of a gang's owner, and of the job above it, if they are due."""
        for read in filter(None, (owner, self._workloads.job_of(owner.uid))):
            path = path_of(read, namespace)
            # Users can write any name and uid, which must not delay the read of another owner.
            if path and self._is_due(source := _OwnerPath(owner.uid, path)):
                self._pending.add(source)
                self._paths.setdefault((namespace, owner.uid), set()).add(path)
                yield self._isolated(source, self._read_owner(read, source, namespace))

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
        read, path = None, source.path
        try:
            read = await self._read(source, namespace, path, partial(_owner, owner))
        except KubeError as error:
            _log.warning("Could not read owner", owner=path, err=str(error))
        if not self._finish(source) or not read:
            return
        self._workloads.set_state(source.uid, read.state)
        # The size of a StatefulSet is its own, not that of its job.
        if read.members and source.uid == owner.uid:
            self._workloads.set_expected(namespace, owner.uid, read.members, read.expected)

    async def _read_group(self, gang: GangKey, paths: Iterable[str]) -> None:
        group = None
        for path in paths:
            try:
                group = await self._read(gang, gang.namespace, path, _group)
            except KubeError as error:
                # It may be created after its pods, and not every cluster serves every version.
                if not (isinstance(error, ApiError) and error.status == 404):
                    _log.warning("Could not read PodGroup", group=path, err=str(error))
                continue
            if group is None or not group.is_deleting:
                break
            # Another one may be created under its name.
            group = None
        if self._finish(gang) and group and group.members:
            self._workloads.set_group_size(gang, group.members)

    async def _read(
        self, source: _Source, namespace: str, path: str, evaluate: Callable[[Raw], T]
    ) -> T | None:
        """Return what is read of an object; None where it is not needed any more.

        Raises:
            KubeError: It could not be read.
        """
        async with self._turns.setdefault(namespace, asyncio.Lock()):
            if source not in self._pending:
                return None
            async with self._slots:
                raw = await self._kube.get(path, Raw)
            started = loop_time()
            try:
                return evaluate(raw)
            except UNDECODABLE as error:
                raise Unreadable(str(error)) from error
            finally:
                await asyncio.sleep(_PAUSE * (loop_time() - started))

    def _finish(self, source: _Source) -> bool:
        """Start the delay before the next read; return whether the gang still exists."""
        if source not in self._pending:
            return False
        self._pending.discard(source)
        self._backoff.start(source)
        return True


def _owner(owner: Owner, raw: Raw) -> Declared | None:
    kind = kind_of(owner.api_version, owner.kind)
    return declared(kind, decode(raw, kind.decoder), owner.uid) if kind else None


def _group(raw: Raw) -> PodGroup:
    return decode(raw, _groups)


def _lacks_members(unit: Unit) -> bool:
    return unit.needed is None or unit.present < unit.needed
