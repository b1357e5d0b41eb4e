"""Report by an Event that the claims of a pod are left to kube-scheduler, and why."""

import asyncio

from runtime.kube.event_recorder import Event, EventRecorder, ObjectReference
from scorer.cache.informers import Informers
from scorer.gang.pod_info import PodInfo
from scorer.metrics import Stage
from scorer.queue.fault_isolation import FaultIsolation
from scorer.report.events import claim_left

_YIELD_AFTER = 500
"""Pods after which other tasks run."""


class LeftClaims:
    """Pods without a node whose claims admission has left to kube-scheduler."""

    def __init__(
        self, informers: Informers, recorder: EventRecorder, faults: FaultIsolation
    ) -> None:
        """Report nothing yet."""
        self._informers, self._recorder, self._faults = informers, recorder, faults
        self._reported: frozenset[str] = frozenset()
        """Uids."""

    async def run(self, interval: float) -> None:
        """Report each pod once, until cancelled.

        Args:
            interval: Between two passes over all pods [s].
        """
        while True:
            await asyncio.sleep(interval)
            with self._faults.isolate(Stage.REPORT, ""):
                await self._pass()

    async def _pass(self) -> None:
        found: set[str] = set()
        for number, pod in enumerate(list(self._informers.pods.reflector.items.values())):
            if number % _YIELD_AFTER == _YIELD_AFTER - 1:
                await asyncio.sleep(0)
            if pod.left and (pod.uid in self._reported or self._recorder.record(_event(pod))):
                found.add(pod.uid)
        self._reported = frozenset(found)


def _event(pod: PodInfo) -> Event:
    about = ObjectReference("v1", "Pod", pod.name, pod.uid, pod.namespace)
    message = claim_left(pod.left)
    return Event(about, message.reason, message.text, change=message.text)
