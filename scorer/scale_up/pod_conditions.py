"""Mark pods that wait for capacity as unschedulable, as kube-scheduler does.

cluster-autoscaler and Karpenter add nodes for pods with the condition `PodScheduled` and the reason
`Unschedulable`. Pods behind scheduling gates have the reason `SchedulingGated`, which they ignore.
Neither reads the gates themselves.
"""

import asyncio
from collections.abc import Iterable

import structlog

from linkwise.cluster.objects.pod_status import NO_CAPACITY
from linkwise.planning.gang.pod_info import PodInfo
from linkwise.planning.gang.unit import Unit
from linkwise.runtime.kube.client import Ignored, Kube, KubeError
from linkwise.runtime.kube.errors import is_outdated
from linkwise.runtime.kube.paths import path_below
from linkwise.runtime.process.clock import Clock, rfc3339

_WRITES_MAX = 512
"""Pods that are changed in one pass."""
_CONCURRENT_WRITES = 8

_log = structlog.get_logger()


class PodConditions:
    """Writes the condition `PodScheduled` of pods behind our gate."""

    def __init__(self, kube: Kube, clock: Clock) -> None:
        """Write nothing yet.

        Args:
            kube: The API server.
            clock: The wall clock [s since 1970].
        """
        self._kube, self._clock = kube, clock

    async def reconcile(self, units: Iterable[Unit], lacking: Iterable[Unit]) -> None:
        """Mark the pods of units that lack capacity, and unmark those of the others.

        Args:
            units: All units that wait.
            lacking: Those that wait for capacity; empty where none may ask.
        """
        keys = {unit.key for unit in lacking}
        changes = [
            (pod, unit.key in keys)
            for unit in units
            for pod in unit.waiting
            if pod.lacks_capacity != (unit.key in keys)
        ]
        slots = asyncio.Semaphore(_CONCURRENT_WRITES)

        async def write(pod: PodInfo, *, lacks: bool) -> None:
            async with slots:
                await self._write(pod, lacks=lacks)

        await asyncio.gather(*(write(pod, lacks=lacks) for pod, lacks in changes[:_WRITES_MAX]))

    async def _write(self, pod: PodInfo, *, lacks: bool) -> None:
        condition = {
            "type": "PodScheduled",
            "status": "False",
            "reason": "Unschedulable" if lacks else "SchedulingGated",
            "message": NO_CAPACITY if lacks else "Scheduling is blocked due to non-empty gates",
            "lastTransitionTime": rfc3339(self._clock()),
        }
        body = {"metadata": {"uid": pod.uid}, "status": {"conditions": [condition]}}
        try:
            await self._kube.patch(path_below(pod.path, "status"), body, Ignored, kind="strategic")
        except KubeError as error:
            if not is_outdated(error):
                _log.warning(
                    "Could not ask for nodes", pod=f"{pod.namespace}/{pod.name}", err=str(error)
                )
