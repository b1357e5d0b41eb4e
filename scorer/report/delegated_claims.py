"""Report by an Event that the claims of a pod are delegated to kube-scheduler, and why."""

from collections.abc import Callable

from linkwise.planning.gang.events import (
    SHARED,
    EventMessage,
    claim_delegated,
    claim_fenced,
    event_about,
)
from linkwise.planning.gang.pod_info import PodInfo
from linkwise.runtime.kube.client import Kube
from linkwise.runtime.kube.event_recorder import EventRecorder
from linkwise.runtime.process.clock import Clock
from linkwise.runtime.process.cooperative import cooperatively
from scorer.cache.claims.waiting_claims import WaitingClaims
from scorer.cache.informers import Informers
from scorer.metrics import Stage
from scorer.queue.fault_isolation import FaultIsolation


class DelegatedClaims:
    """Pods without a node whose claims are delegated to kube-scheduler.

    Admission has delegated them, with a reason; or they wait for GPUs beside fenced nodes.
    """

    def __init__(
        self,
        kube: Kube,
        informers: Informers,
        recorder: EventRecorder,
        faults: FaultIsolation,
        clock: Clock,
        fences: Callable[[], int],
    ) -> None:
        """Report nothing yet.

        Args:
            kube: The API server.
            informers: The pods.
            recorder: Creates the Events.
            faults: Isolates unforeseen exceptions.
            clock: The wall clock [s since 1970].
            fences: Returns the number of rules that keep GPUs from such claims.
        """
        self._informers, self._recorder, self._faults = informers, recorder, faults
        self._clock, self._fences = clock, fences
        self._claims = WaitingClaims(kube)
        self._reported: frozenset[tuple[str, EventMessage]] = frozenset()
        """Uid of the pod, and what was reported about it."""

    async def run(self, interval: float) -> None:
        """Report each pod once, until cancelled.

        Args:
            interval: Between two passes over all pods [s].
        """
        await self._faults.repeat(Stage.REPORT, self._pass, interval)

    async def _pass(self) -> None:
        delegated: list[tuple[PodInfo, EventMessage]] = []
        waiting: list[PodInfo] = []
        async for pod in cooperatively(self._informers.pods.reflector.items.values()):
            if pod.lacks_devices and (not pod.delegated or SHARED in pod.delegated):
                waiting.append(pod)
            elif pod.delegated:
                delegated.append((pod, claim_delegated(pod.delegated)))
        fenced = await self._claims.of_gpus(waiting if self._fences() else (), self._clock())
        delegated += [(pod, claim_fenced()) for pod in fenced]
        self._reported = frozenset(
            key
            for pod, message in delegated
            if (key := (pod.uid, message)) in self._reported
            or self._recorder.record(event_about(pod, message))
        )
