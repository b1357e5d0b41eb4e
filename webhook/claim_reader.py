"""Read the templates and claims that pods name, and their DeviceClasses, when a pod is reviewed.

They are not watched: tenants can create any number of them, and few pods name one. What was read
holds for a short time, so that the pods of a gang cost one read. Neither can be changed, only
replaced; the scorer compares the claim with what admission has read. That one does not exist, or
could not be read, holds for nobody else: it may be there a moment later.
"""

import asyncio
import time
from collections.abc import Callable, Collection, Mapping
from weakref import WeakValueDictionary

import structlog

from linkwise.cluster.allocations.device_claim import StoredClaim
from linkwise.cluster.requests.user_claims.claim_spec import (
    Asked,
    Delegated,
    TemplateObject,
    asked_of,
)
from linkwise.cluster.requests.user_claims.device_class import Body, DeviceClass, classes_to_read
from linkwise.cluster.requests.user_claims.pod_claims import ClaimSource
from linkwise.runtime.kube.client import ApiError, Kube, KubeError, Unreachable
from linkwise.runtime.kube.paths import InvalidPath, api_path

_API_VERSION = "resource.k8s.io/v1"
_HOLDS = 2.0
"""What was read is read again after this time [s]."""
_TIMEOUT = 2.0
"""A review waits so long, and no read takes longer; an API server gives a review 3 s [s]."""
_AT_A_TIME = 8
_OF_A_NAMESPACE = 2
"""Reads for one namespace at a time: its objects may be large, or many."""
_MAX_BYTES = 4 << 20
"""Of one answer. An API server stores objects of up to 1.5 MiB, and writes some letters longer."""
_KEPT = 1024
"""Templates and claims that are kept; each has at most 32 requests."""
_SOURCES_MAX = 8
"""Templates and claims of one pod that are read."""
_MISSING = Delegated("it does not exist yet: create it before the pods")
_UNREADABLE = Delegated("it could not be read")
_LATE = Delegated("it could not be read in time")
_NOT_KEPT = (_MISSING, _UNREADABLE, _LATE)
_TEMPLATES = "resourceclaimtemplates"

_log = structlog.get_logger()


class NotInTimeError(Exception):
    """What a pod claims could not be read in time; the message names it."""


class ClaimReader:
    """Reads templates, claims and classes, and keeps what they ask for, for a short time."""

    def __init__(self, kube: Kube, now: Callable[[], float] = time.monotonic) -> None:
        """Start without any.

        Args:
            kube: The API server.
            now: The clock [s].
        """
        self._kube, self._now = kube, now
        self._reads: dict[str, tuple[float, asyncio.Task[Asked]]] = {}
        """By path: when it was started to be read, oldest first."""
        self._places = asyncio.Semaphore(_AT_A_TIME)
        self._by_namespace: WeakValueDictionary[str, asyncio.Semaphore] = WeakValueDictionary()
        """Kept by the reads that use them."""

    async def read(
        self, namespace: str, sources: Collection[ClaimSource]
    ) -> dict[ClaimSource, Asked]:
        """Return what templates and claims of a namespace ask for; nothing for impossible names.

        Raises:
            NotInTimeError: The API server has not answered in time.
        """
        tasks = {
            source: self._start(path)
            for source in sorted(sources)[:_SOURCES_MAX]
            if (path := _path_of(namespace, source))
        }
        if tasks:
            await asyncio.wait(tasks.values(), timeout=_TIMEOUT)
        found = {source: task.result() if task.done() else _LATE for source, task in tasks.items()}
        if late := next((source for source, asked in found.items() if asked is _LATE), None):
            raise NotInTimeError(f"{late} could not be read in time")
        return found

    def _start(self, path: str) -> asyncio.Task[Asked]:
        """Return the read of an object, which may be under way or done."""
        now = self._now()
        known = self._reads.get(path)
        if known is not None and (not known[1].done() or now - known[0] < _HOLDS):
            return known[1]
        self._reads.pop(path, None)
        if len(self._reads) >= _KEPT:
            del self._reads[next(iter(self._reads))]
        task = asyncio.create_task(self._read(path))
        self._reads[path] = now, task
        return task

    async def _read(self, path: str) -> Asked:
        """Read an object; what does not say what it asks for is read again by the next review."""
        asked = await self._asked(path)
        known = self._reads.get(path)
        if asked in _NOT_KEPT and known and known[1] is asyncio.current_task():
            del self._reads[path]
        return asked

    async def _asked(self, path: str) -> Asked:
        namespace = path.split("/")[-3]
        places = self._by_namespace.setdefault(namespace, asyncio.Semaphore(_OF_A_NAMESPACE))
        try:
            async with asyncio.timeout(_TIMEOUT), places, self._places:
                is_template = path.split("/")[-2] == _TEMPLATES
                return await (self._template(path) if is_template else self._claim(path))
        except (TimeoutError, KubeError) as error:
            reason = str(error) or type(error).__name__
            _log.warning("Could not read what a pod claims", path=path, err=reason)
            return _LATE if _is_outage(error) else _UNREADABLE

    async def _template(self, path: str) -> Asked:
        template = await self._kube.find(path, TemplateObject, max_bytes=_MAX_BYTES)
        if template is None:
            return _MISSING
        return asked_of(template.claim_spec, await self._classes(template.claim_spec))

    async def _claim(self, path: str) -> Asked:
        claim = await self._kube.find(path, StoredClaim, max_bytes=_MAX_BYTES)
        return _MISSING if claim is None else claim.asked(await self._classes(claim.spec))

    async def _classes(self, spec: Body) -> Mapping[str, DeviceClass]:
        found = {
            name: await self._kube.find(
                api_path(_API_VERSION, "deviceclasses", name), DeviceClass, max_bytes=_MAX_BYTES
            )
            for name in classes_to_read(spec)
        }
        return {name: one for name, one in found.items() if one is not None}


def _path_of(namespace: str, source: ClaimSource) -> str | None:
    """Return the path of an object; None: a pod is reviewed before its fields are validated."""
    try:
        plural = f"{source.kind.lower()}s"
        return api_path(_API_VERSION, "namespaces", namespace, plural, source.name)
    except InvalidPath:
        return None


def _is_outage(error: Exception) -> bool:
    """Return whether the same read may succeed later, with the same rights."""
    if isinstance(error, ApiError):
        return error.status == 429 or error.status >= 500
    return isinstance(error, (TimeoutError, Unreachable))
