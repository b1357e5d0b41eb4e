"""Let kube-scheduler try a pod again once it fits on a node.

kube-scheduler tries a pod again on an event of its own watch, such as the end of another pod. If
our watch shows that end a moment later, the pod is refused once more. Of other changes, such as a
list of unhealthy GPUs, kube-scheduler has no event at all. Then it leaves the pod alone until
another event, or for 30 to 60 s (`podMaxInUnschedulablePodsDuration` as shipped, which it checks
every 30 s). An extender cannot report events; an update of the pod is one.

A pod that is not requeued here waits for that time: too many pods were refused, a write failed, or
the scorer was restarted.

Source: kubernetes v1.36, `PodSchedulingPropertiesChange` in pkg/scheduler/framework/events.go: a
change of annotations is an update of the pod; and the hint of extenders in
pkg/scheduler/framework/runtime/framework.go: a pod that one refused is tried again on any event.
"""

import asyncio

import structlog

from linkwise.cluster.keys import REQUEUED
from linkwise.planning.gang.pod_info import PodInfo
from linkwise.runtime.kube.client import Ignored, KubeError
from linkwise.runtime.kube.errors import is_outdated
from linkwise.runtime.kube.objects import Key
from linkwise.runtime.process.clock import loop_time, rfc3339
from scorer.commit.handle import Handle
from scorer.extender.filter import Filter
from scorer.extender.refusals import Refusal, Refusals
from scorer.metrics import Stage

_WRITES_MAX = 16
"""Pods that are written in one pass."""
_SHARE = 1 / 20
"""Of the time of a processor, at most, that passes take."""

_log = structlog.get_logger()


class Requeuer:
    """Looks for such pods, for one term of the Lease."""

    def __init__(self, handle: Handle, pod_filter: Filter, refusals: Refusals) -> None:
        """Start without a pass."""
        self._kube, self._state, self._clock = handle.kube, handle.informers.state, handle.clock
        self._faults, self._filter, self._refusals = handle.faults, pod_filter, refusals

    async def run(self, interval: float) -> None:
        """Write the pods that fit until cancelled.

        Args:
            interval: Between two passes, at least [s]. For so long kube-scheduler may try a pod by
                itself.
        """
        while True:
            busy = 0.0
            with self._faults.isolate(Stage.COMMIT, ""):
                busy = await self._pass()
            await asyncio.sleep(max(interval, busy / _SHARE))

    async def _pass(self) -> float:
        """Write the pods that fit, and return for how long this computed [s].

        Cost: for each pod as much as its question by kube-scheduler; other tasks run between.
        """
        busy = 0.0
        fitting: list[tuple[Refusal, PodInfo]] = []
        for key, refusal in self._refusals.older():
            started = loop_time()
            if (pod := self._waiting(key, refusal)) is None:
                self._refusals.forget(key, refusal)
            elif self._filter.fits_any(refusal.request, refusal.priority, refusal.nodes):
                fitting.append((refusal, pod))
            busy += loop_time() - started
            await asyncio.sleep(0)
        # As in the queue of kube-scheduler.
        fitting.sort(key=lambda each: -each[0].priority)
        await asyncio.gather(*(self._requeue(*each) for each in fitting[:_WRITES_MAX]))
        return busy

    def _waiting(self, key: Key, refusal: Refusal) -> PodInfo | None:
        """Return a refused pod; None where our watch does not show it as one that waits."""
        pod = self._state.pod(key)
        return pod if pod and pod.uid == refusal.uid and not pod.bound else None

    async def _requeue(self, refusal: Refusal, pod: PodInfo) -> None:
        # Before the write, because the pod may be refused once more before its answer.
        self._refusals.forget(pod.key, refusal)
        annotations = {REQUEUED: rfc3339(self._clock())}
        body = {"metadata": {"uid": pod.uid, "annotations": annotations}}
        with self._faults.isolate(Stage.COMMIT, pod.key):
            try:
                await self._kube.patch(pod.path, body, Ignored, kind="merge")
            except KubeError as error:
                if not is_outdated(error):
                    _log.warning("Could not requeue pod", pod="/".join(pod.key), err=str(error))
            else:
                _log.info("Requeued pod", pod="/".join(pod.key))
