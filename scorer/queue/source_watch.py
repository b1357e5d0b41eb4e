"""Watch the collections of objects that say how large gangs are, so that a change counts at once.

Nothing is kept of the objects: the owner of the watch reads again those that it needs. An API may
not be served, and may be installed later; without the right to watch it, its objects are read only
from time to time.
"""

import asyncio
from collections.abc import Callable
from typing import NamedTuple

import structlog
from msgspec import Raw, Struct
from msgspec.json import Decoder

from linkwise.runtime.kube.client import ApiError, Kube, KubeError
from linkwise.runtime.kube.decode import decode
from linkwise.runtime.kube.objects import ObjectMeta
from linkwise.runtime.kube.paths import api_path
from linkwise.runtime.kube.reflector import Reflector

_INTERVAL = 15.0
"""Between two questions whether a collection is served and may be watched [s]."""
_VERSIONS_MAX = 4
"""Versions of a collection that are tried: users can write any."""

_log = structlog.get_logger()


class SourceName(NamedTuple):
    """An object, whatever version it is read in."""

    group: str
    plural: str
    namespace: str
    name: str


class SourceVersion(NamedTuple):
    """What changes when the specification of an object does."""

    uid: str
    generation: str


class _Meta(ObjectMeta, frozen=True):
    generation: int = 0


class _Head(Struct, frozen=True):
    metadata: _Meta = _Meta()


class _Nothing(Struct, frozen=True):
    """What is read of a list: that there is one."""


_heads = Decoder(_Head)


def source_name(path: str) -> SourceName:
    """Return which object `/apis/<group>/<version>/namespaces/<namespace>/<plural>/<name>` is."""
    _, _, group, _, _, namespace, plural, name = path.split("/")
    return SourceName(group, plural, namespace, name)


def source_version(raw: Raw) -> SourceVersion:
    """Return the version of an object.

    Raises:
        msgspec.DecodeError: It is none.
    """
    metadata = decode(raw, _heads).metadata
    return SourceVersion(metadata.uid, str(metadata.generation or metadata.resource_version))


class SourceWatch:
    """The watches of one term of the Lease."""

    def __init__(
        self, kube: Kube, on_seen: Callable[[SourceName, SourceVersion | None], None]
    ) -> None:
        """Start without watches.

        Args:
            kube: The API server.
            on_seen: Called with each object that is listed or has changed; None: it was deleted.
        """
        self._kube, self._on_seen = kube, on_seen
        self._versions: dict[tuple[str, str], list[str]] = {}
        """By group and plural: the versions by which objects were named."""
        self._wanted: asyncio.Queue[tuple[str, str]] = asyncio.Queue()

    def want(self, path: str) -> None:
        """Watch the collection of an object from now on. Its API has to be one that is known."""
        _, _, group, version, _, _, plural, _ = path.split("/")
        versions = self._versions.get((group, plural))
        if versions is None:
            versions = self._versions[group, plural] = []
            self._wanted.put_nowait((group, plural))
        if version not in versions and len(versions) < _VERSIONS_MAX:
            versions.append(version)

    async def run(self) -> None:
        """Watch until cancelled."""
        async with asyncio.TaskGroup() as group:
            while True:
                collection = await self._wanted.get()
                group.create_task(self._watch(*collection))

    async def _watch(self, group: str, plural: str) -> None:
        was_refused = False
        while True:
            for version in list(self._versions[group, plural]):
                try:
                    path = api_path(f"{group}/{version}", plural)
                    await self._kube.get(path, _Nothing, params={"limit": "1"})
                except KubeError as error:
                    is_refused = isinstance(error, ApiError) and error.status == 403
                    if is_refused and not was_refused:
                        name = f"{plural}.{group}"
                        _log.warning("Not watched, read from time to time", resource=name)
                    was_refused |= is_refused
                    continue
                await self._reflector(path, group, plural).run()
            await asyncio.sleep(_INTERVAL)

    def _reflector(self, path: str, group: str, plural: str) -> Reflector[None]:
        def see(raw: Raw) -> None:
            metadata = decode(raw, _heads).metadata
            name = SourceName(group, plural, metadata.namespace, metadata.name)
            self._on_seen(name, source_version(raw))

        def deleted(raw: Raw) -> None:
            metadata = decode(raw, _heads).metadata
            self._on_seen(SourceName(group, plural, metadata.namespace, metadata.name), None)

        return Reflector(self._kube, path, see, on_deleted=deleted)
