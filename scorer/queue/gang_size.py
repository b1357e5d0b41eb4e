"""Sizes of gangs, read from their owners and PodGroups while members are missing.

They are read again when their collections show a change, and from time to time.

The objects of one namespace are read one after the other. After each, those of its namespace wait
many times as long as it took to evaluate: users can write objects of any size, and let any number
of pods name them.
"""

import asyncio
from collections.abc import Awaitable, Callable, Iterable
from functools import partial
from typing import NamedTuple, TypeAlias, TypeVar

import structlog
from msgspec import Raw
from msgspec.json import Decoder

from linkwise.cluster.gang import GangKey
from linkwise.cluster.objects.metadata import Owner
from linkwise.planning.gang.unit import Unit
from linkwise.runtime.kube.client import ApiError, Kube, KubeError, Unreadable
from linkwise.runtime.kube.decode import decode
from linkwise.runtime.kube.errors import UNDECODABLE
from linkwise.runtime.process.backoff import Backoff
from linkwise.runtime.process.clock import loop_time
from linkwise.runtime.process.fair_schedule import Limits
from linkwise.runtime.process.work_queue import Retry, WorkQueue
from linkwise.workloads.members import OwnerPods, declared
from linkwise.workloads.paths import path_of
from linkwise.workloads.pod_group import PodGroup, group_paths
from linkwise.workloads.registry import kind_of
from scorer.cache.informers import Informers
from scorer.metrics import Stage
from scorer.queue.fault_isolation import FaultIsolation
from scorer.queue.source_watch import (
    SourceName,
    SourceVersion,
    SourceWatch,
    source_name,
    source_version,
)

_LIMITS = Limits(8, of_group=1)
_RETRY_MAX = 300.0
"""The longest delay between two reads of the same object [s]."""
_FAULT_RETRY = Retry(1.0, 600.0)
_PAUSE = 20.0
"""How much longer than an object takes the next one of its namespace waits."""

T = TypeVar("T")

_groups = Decoder(PodGroup)
_log = structlog.get_logger()


class _OwnerPath(NamedTuple):
    """An owner, and where it is read."""

    namespace: str
    """Of its pods."""
    uid: str
    """Of the gang's owner, which users can write; a job above it is read for it, too."""
    path: str


_Source: TypeAlias = _OwnerPath | GangKey


class _Known(NamedTuple):
    """A source of a gang that has pods."""

    read: Callable[[], Awaitable[None]]
    names: frozenset[SourceName]
    """The objects of which it is read."""


class GangSizeResolver:
    """Reads owners and PodGroups, each with a backoff."""

    def __init__(
        self,
        kube: Kube,
        informers: Informers,
        faults: FaultIsolation,
        *,
        retry: float,
        lacks_members: Callable[[GangKey], bool] = lambda _: True,
    ) -> None:
        """Start without reads.

        Args:
            kube: The API server.
            informers: Store the sizes.
            faults: Counts faults.
            retry: First delay before the same object is read again [s]. It may be created late,
                or its size may change.
            lacks_members: Whether a gang does. The PodGroup of one that runs may be replaced by
                that of a later job of its name.
        """
        self._kube, self._workloads = kube, informers.workloads
        self._lacks_members = lacks_members
        self._wanted: dict[_Source, Callable[[], Awaitable[None]]] = {}
        """The reads that are queued or under way."""
        self._owners: dict[tuple[str, str], set[_OwnerPath]] = {}
        """By namespace and uid: where an owner was read."""
        self._known: dict[_Source, _Known] = {}
        self._by_name: dict[SourceName, set[_Source]] = {}
        self._versions: dict[SourceName, SourceVersion | None] = {}
        """Of these objects, as they were read or seen last."""
        self._watch = SourceWatch(kube, self._seen)
        self._backoff = Backoff(retry, _RETRY_MAX, informers.changed.set)
        self._queue = WorkQueue[_Source](
            self._process,
            retry=_FAULT_RETRY,
            on_error=partial(faults.count, Stage.SIZE),
            group=lambda source: source.namespace,
            limits=_LIMITS,
        )

    async def run(self) -> None:
        """Read and watch until cancelled."""
        async with asyncio.TaskGroup() as group:
            group.create_task(self._watch.run())
            group.create_task(self._queue.run())

    def resolve(self, units: Iterable[Unit]) -> None:
        """Queue the reads that are due for gangs with missing members."""
        for unit in units:
            if not unit.is_gang or not unit.lacks_members:
                continue
            key = unit.key
            for owner in filter(None, (unit.owner, *unit.co_owners)):
                self.resolve_owner(owner, key.namespace)
            if paths := group_paths(unit.members[0].pod, key.namespace):
                for path in paths:
                    self._watch.want(path)
                self._add(key, partial(self._read_group, key, tuple(paths)), paths)

    def resolve_owner(self, owner: Owner, namespace: str) -> None:
        """Queue the reads of a gang's owner, and of the job above it, if they are due."""
        for read in filter(None, (owner, self._workloads.job_of(owner.uid))):
            # Users can write any name and uid, which must not delay the read of another owner.
            if path := path_of(read, namespace):
                source = _OwnerPath(namespace, owner.uid, path)
                self._owners.setdefault((namespace, owner.uid), set()).add(source)
                self._add(source, partial(self._read_owner, read, source), (path,))

    def expire(self, owner: Owner, namespace: str) -> None:
        """Let an owner be read without delay, since its size may have changed."""
        for source in self._owners.get((namespace, owner.uid), ()):
            self._backoff.reset(source)

    def forget(self, key: GangKey) -> None:
        """Drop the size of a gang that has no pods left."""
        for source in (key, *self._owners.pop((key.namespace, key.owner), ())):
            self._wanted.pop(source, None)
            self._queue.discard(source)
            self._backoff.reset(source)
            self._forget_names(source)
        self._workloads.forget_gang(key)

    def _forget_names(self, source: _Source) -> None:
        known = self._known.pop(source, None)
        for name in known.names if known else ():
            sources = self._by_name[name]
            sources.discard(source)
            if not sources:
                del self._by_name[name]
                self._versions.pop(name, None)

    def _seen(self, name: SourceName, version: SourceVersion | None) -> None:
        """Read an object again that has changed since it was read, if a gang depends on it."""
        sources = self._by_name.get(name)
        if not sources or (name in self._versions and self._versions[name] == version):
            return
        self._versions[name] = version
        for source in sources:
            if isinstance(source, GangKey) and not self._lacks_members(source):
                continue
            self._backoff.reset(source)
            self._queue_read(source, self._known[source].read)

    def _add(
        self, source: _Source, read: Callable[[], Awaitable[None]], paths: Iterable[str]
    ) -> None:
        if source not in self._known:
            names = frozenset(map(source_name, paths))
            self._known[source] = _Known(read, names)
            for name in names:
                self._by_name.setdefault(name, set()).add(source)
        self._queue_read(source, read)

    def _queue_read(self, source: _Source, read: Callable[[], Awaitable[None]]) -> None:
        if source not in self._wanted and source not in self._backoff:
            self._wanted[source] = read
            self._queue.add(source)

    async def _process(self, source: _Source) -> None:
        if read := self._wanted.get(source):
            await read()

    async def _read_owner(self, owner: Owner, source: _OwnerPath) -> None:
        read, path = None, source.path
        try:
            read = await self._read(source, path, partial(_owner, owner))
        except KubeError as error:
            _log.warning("Could not read owner", owner=path, err=str(error))
        if not self._finish(source):
            return
        self._workloads.set_total(source.namespace, source.uid, read.total if read else 0)
        if not read:
            return
        self._workloads.set_state(source.uid, read.state)
        # The size of a StatefulSet is its own, not that of its job.
        if read.members and source.uid == owner.uid:
            self._workloads.set_expected(source.namespace, owner.uid, read.members, read.expected)

    async def _read_group(self, gang: GangKey, paths: Iterable[str]) -> None:
        group, is_missing = None, True
        for path in paths:
            try:
                group = await self._read(gang, path, _group)
            except KubeError as error:
                # It may be created after its pods, and not every cluster serves every version.
                if not (isinstance(error, ApiError) and error.status == 404):
                    is_missing &= isinstance(error, ApiError) and error.status == 403
                    _log.warning("Could not read PodGroup", group=path, err=str(error))
                continue
            if not group.is_deleting:
                break
            # Another one may be created under its name.
            group = None
        members = group.members if group else None
        if self._finish(gang) and (members or is_missing):
            self._workloads.set_group_size(gang, members or 0)

    async def _read(self, source: _Source, path: str, evaluate: Callable[[Raw], T]) -> T:
        """Return what is read of an object; the others of its namespace then wait.

        Raises:
            KubeError: It could not be read.
        """
        raw = await self._kube.get(path, Raw)
        started = loop_time()
        try:
            if source in self._known:
                self._versions[source_name(path)] = source_version(raw)
            if isinstance(source, _OwnerPath):
                # Its API is served, whatever users write.
                self._watch.want(path)
            return evaluate(raw)
        except UNDECODABLE as error:
            raise Unreadable(str(error)) from error
        finally:
            self._queue.rest(source.namespace, _PAUSE * (loop_time() - started))

    def _finish(self, source: _Source) -> bool:
        """Start the delay before the next read; return whether the gang still exists."""
        if self._wanted.pop(source, None) is None:
            return False
        self._backoff.start(source)
        return True


def _owner(owner: Owner, raw: Raw) -> OwnerPods | None:
    kind = kind_of(owner.api_version, owner.kind)
    return declared(kind, decode(raw, kind.decoder), owner.uid) if kind else None


def _group(raw: Raw) -> PodGroup:
    return decode(raw, _groups)
