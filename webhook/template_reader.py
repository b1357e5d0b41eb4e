"""Read the ResourceClaimTemplates that pods name, and their DeviceClasses, when a pod is reviewed.

They are not watched: tenants can create any number of them, and few pods name one. What was read
holds for a short time, so that the pods of a gang cost one read. A template cannot be changed, only
replaced; the scorer compares the claim that was made with what admission has read.
"""

import asyncio
import re
import time
from collections.abc import Callable, Collection

import structlog

from cluster.requests.templates.claim_spec import (
    Asked,
    LeftToScheduler,
    TemplateObject,
    asked_of,
)
from cluster.requests.templates.device_class import DeviceClass, classes_to_read
from runtime.kube.client import Kube, KubeError

_API = "/apis/resource.k8s.io/v1"
_HOLDS = 2.0
"""What was read is read again after this time [s]."""
_TIMEOUT = 1.0
"""A review waits so long; an API server gives it 3 s [s]."""
_AT_A_TIME = 8
_KEPT = 1024
"""Templates that are kept; each has at most 32 requests."""
_NAMES_MAX = 8
"""Templates of one pod that are read."""
_NAME = re.compile(r"[a-z0-9]([-.a-z0-9]{0,251}[a-z0-9])?")
"""A pod is reviewed before its fields are validated, and a name becomes part of a path."""
_UNREAD = LeftToScheduler("it could not be read in time")

_log = structlog.get_logger()


class TemplateReader:
    """Reads templates and classes, and keeps them for a short time."""

    def __init__(self, kube: Kube, now: Callable[[], float] = time.monotonic) -> None:
        """Start without templates.

        Args:
            kube: The API server.
            now: The clock [s].
        """
        self._kube, self._now = kube, now
        self._reads: dict[tuple[str, str], tuple[float, asyncio.Task[Asked]]] = {}
        """By namespace and name: when it was started to be read, oldest first."""
        self._slots = asyncio.Semaphore(_AT_A_TIME)

    async def read(self, namespace: str, names: Collection[str]) -> dict[str, Asked]:
        """Return what templates of a namespace ask for."""
        chosen = sorted(name for name in names if _NAME.fullmatch(name))[:_NAMES_MAX]
        tasks = {name: self._start((namespace, name)) for name in chosen}
        if tasks:
            await asyncio.wait(tasks.values(), timeout=_TIMEOUT)
        return {name: task.result() if task.done() else _UNREAD for name, task in tasks.items()}

    def _start(self, key: tuple[str, str]) -> asyncio.Task[Asked]:
        """Return the read of a template, which may be under way or done."""
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

    async def _read(self, namespace: str, name: str) -> Asked:
        async with self._slots:
            try:
                return await self._ask(
                    f"{_API}/namespaces/{namespace}/resourceclaimtemplates/{name}"
                )
            except KubeError as error:
                _log.warning(
                    "Could not read template", template=f"{namespace}/{name}", err=str(error)
                )
                return LeftToScheduler("it could not be read")

    async def _ask(self, path: str) -> Asked:
        template = await self._kube.find(path, TemplateObject)
        if template is None:
            return LeftToScheduler("it does not exist yet: create it before the pods")
        spec = template.claim_spec
        found = {
            name: await self._kube.find(f"{_API}/deviceclasses/{name}", DeviceClass)
            for name in classes_to_read(spec)
        }
        return asked_of(spec, {name: one for name, one in found.items() if one is not None})
