"""Read why nodes do not prepare pods: what their kubelets say in Events.

Whoever may create Events in the namespace of a pod can write such an Event, too, so its text is
quoted for people, and decides nothing.
"""

import math
from collections.abc import Iterable
from operator import attrgetter

import structlog

from cluster.finding import printable
from cluster.objects.kube_object import KubeObject
from runtime.kube.client import Kube, KubeError
from scorer.gang.crd import truncated
from scorer.gang.pod_info import PodInfo

_KUBELET, _REASON = "kubelet", "FailedPrepareDynamicResources"
_INTERVAL = 60.0
"""Between two reads of the Events of one pod [s]."""
_READS_MAX = 64
"""In one pass."""
_EVENTS_MAX, _BYTES_MAX = 32, 1 << 18
"""In one answer. A kubelet writes one Event for each text."""
_TEXT_MAX = 400

_log = structlog.get_logger()


class _Source(KubeObject, frozen=True):
    component: str = ""


class _Event(KubeObject, frozen=True):
    message: str = ""
    reason: str = ""
    source: _Source = _Source()
    last_timestamp: str | None = None
    event_time: str | None = None

    @property
    def time(self) -> str:
        """When it was seen last (RFC 3339)."""
        return self.last_timestamp or self.event_time or ""


class _Events(KubeObject, frozen=True):
    items: list[_Event] | None = None


class PreparationErrors:
    """The latest error of each pod that its node does not prepare."""

    def __init__(self, kube: Kube) -> None:
        """Read nothing yet."""
        self._kube = kube
        self._texts: dict[str, str] = {}
        self._read: dict[str, float] = {}
        """By uid of the pod: when its Events were read last [s since 1970]."""

    def of(self, pod: PodInfo) -> str:
        """Return the text of the kubelet about a pod; empty: there is none, or it is not read."""
        return self._texts.get(pod.uid, "")

    def is_read(self, pod: PodInfo) -> bool:
        """Return whether the Events of a pod were read, or could not be."""
        return pod.uid in self._read

    async def read(self, pods: Iterable[PodInfo], now: float) -> list[PodInfo]:
        """Read the Events of unprepared pods; return the pods whose text has changed.

        Each pod is read at most once in `_INTERVAL`, those first that were read longest ago.

        Args:
            pods: All unprepared pods; what is known about others is forgotten.
            now: Seconds since 1970.
        """
        by_uid = {pod.uid: pod for pod in pods}
        self._texts = {uid: text for uid, text in self._texts.items() if uid in by_uid}
        self._read = {uid: time for uid, time in self._read.items() if uid in by_uid}
        read = {uid: self._read.get(uid, -math.inf) for uid in by_uid}
        due = sorted((uid for uid in by_uid if now - read[uid] >= _INTERVAL), key=read.__getitem__)
        changed = []
        for uid in due[:_READS_MAX]:
            pod = by_uid[uid]
            try:
                text = await self._find(pod)
            except KubeError as error:
                _log.warning("Could not read events", pod=pod.name, err=str(error))
                self._read |= dict.fromkeys(due, now)
                break
            self._read[uid] = now
            if text and text != self._texts.get(uid):
                self._texts[uid] = text
                changed.append(pod)
        return changed

    async def _find(self, pod: PodInfo) -> str:
        """Return the text of the latest Event of a kubelet about a pod; empty: there is none.

        Raises:
            KubeError: The Events cannot be read.
        """
        fields = f"involvedObject.uid={pod.uid},reason={_REASON},source={_KUBELET}"
        found = await self._kube.get(
            f"/api/v1/namespaces/{pod.namespace}/events",
            _Events,
            params={"fieldSelector": fields, "limit": str(_EVENTS_MAX)},
            max_bytes=_BYTES_MAX,
        )
        events = (
            event
            for event in found.items or ()
            if event.reason == _REASON and event.source.component == _KUBELET
        )
        latest = max(events, key=attrgetter("time"), default=_Event())
        return printable(truncated(latest.message, _TEXT_MAX))
