"""Read the templates and claims that pods name, and their DeviceClasses, when a pod is reviewed.

They are not watched: tenants can create any number of them, and few pods name one. What was read
holds for a short time, so that the pods of a gang cost one read. Neither can be changed, only
replaced; the scorer compares the claim with what admission has read.
"""

import asyncio
import re
import time
from collections.abc import Callable, Collection, Mapping

import structlog

from cluster.allocations.device_claim import StoredClaim
from cluster.requests.user_claims.claim_spec import (
    Asked,
    LeftToScheduler,
    TemplateObject,
    asked_of,
)
from cluster.requests.user_claims.device_class import Body, DeviceClass, classes_to_read
from cluster.requests.user_claims.pod_claims import ClaimSource
from runtime.kube.client import Kube, KubeError

_API = "/apis/resource.k8s.io/v1"
_HOLDS = 2.0
"""What was read is read again after this time [s]."""
_TIMEOUT = 2.0
"""A review waits so long; an API server gives it 3 s [s]."""
_AT_A_TIME = 8
_KEPT = 1024
"""Templates and claims that are kept; each has at most 32 requests."""
_SOURCES_MAX = 8
"""Templates and claims of one pod that are read."""
_NAME = re.compile(r"[a-z0-9]([-.a-z0-9]{0,251}[a-z0-9])?")
"""A pod is reviewed before its fields are validated, and a name becomes part of a path."""
_UNREAD = LeftToScheduler("it could not be read in time")
_MISSING = LeftToScheduler("it does not exist yet: create it before the pods")

_log = structlog.get_logger()


class ClaimReader:
    """Reads templates, claims and classes, and keeps what they ask for, for a short time."""

    def __init__(self, kube: Kube, now: Callable[[], float] = time.monotonic) -> None:
        """Start without any.

        Args:
            kube: The API server.
            now: The clock [s].
        """
        self._kube, self._now = kube, now
        self._reads: dict[tuple[str, ClaimSource], tuple[float, asyncio.Task[Asked]]] = {}
        """By namespace and object: when it was started to be read, oldest first."""
        self._slots = asyncio.Semaphore(_AT_A_TIME)

    async def read(
        self, namespace: str, sources: Collection[ClaimSource]
    ) -> dict[ClaimSource, Asked]:
        """Return what templates and claims of a namespace ask for."""
        chosen = sorted(one for one in sources if _NAME.fullmatch(one.name))[:_SOURCES_MAX]
        tasks = {source: self._start((namespace, source)) for source in chosen}
        if tasks:
            await asyncio.wait(tasks.values(), timeout=_TIMEOUT)
        return {source: task.result() if task.done() else _UNREAD for source, task in tasks.items()}

    def _start(self, key: tuple[str, ClaimSource]) -> asyncio.Task[Asked]:
        """Return the read of an object, which may be under way or done."""
        now = self._now()
        known = self._reads.get(key)
        if known is not None and now - known[0] < _HOLDS:
            return known[1]
        self._reads.pop(key, None)
        if len(self._reads) >= _KEPT:
            del self._reads[next(iter(self._reads))]
        task = asyncio.create_task(self._read(*key))
        self._reads[key] = now, task
        return task

    async def _read(self, namespace: str, source: ClaimSource) -> Asked:
        path = f"{_API}/namespaces/{namespace}/{source.kind.lower()}s/{source.name}"
        async with self._slots:
            try:
                return await (self._template(path) if source.is_template else self._claim(path))
            except KubeError as error:
                _log.warning("Could not read what a pod claims", path=path, err=str(error))
                return LeftToScheduler("it could not be read")

    async def _template(self, path: str) -> Asked:
        template = await self._kube.find(path, TemplateObject)
        if template is None:
            return _MISSING
        return asked_of(template.claim_spec, await self._classes(template.claim_spec))

    async def _claim(self, path: str) -> Asked:
        claim = await self._kube.find(path, StoredClaim)
        return _MISSING if claim is None else claim.asked(await self._classes(claim.spec))

    async def _classes(self, spec: Body) -> Mapping[str, DeviceClass]:
        found = {
            name: await self._kube.find(f"{_API}/deviceclasses/{name}", DeviceClass)
            for name in classes_to_read(spec)
        }
        return {name: one for name, one in found.items() if one is not None}
