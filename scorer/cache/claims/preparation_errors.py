"""Read why nodes do not prepare pods: what their kubelets say in Events.

Whoever may create Events in the namespace of a pod can write such an Event, too, so its text is
quoted for people, and decides nothing.
"""

from collections.abc import Iterable
from operator import attrgetter

from linkwise.cluster.finding import printable
from linkwise.cluster.objects.kube_object import KubeObject
from linkwise.planning.gang.crd import truncated
from linkwise.planning.gang.pod_info import PodInfo
from linkwise.runtime.kube.client import Kube
from linkwise.runtime.kube.paths import api_path
from scorer.cache.claims.paced_reads import PacedReads

_KUBELET, _REASON = "kubelet", "FailedPrepareDynamicResources"
_INTERVAL = 60.0
"""Between two reads of the Events of one pod [s]."""
_EVENTS_MAX, _BYTES_MAX = 32, 1 << 18
"""In one answer. A kubelet writes one Event for each text."""
_TEXT_MAX = 400


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
        self._reads = PacedReads(self._find, _INTERVAL)

    def of(self, pod: PodInfo) -> str:
        """Return the text of the kubelet about a pod; empty: there is none, or it is not read."""
        return self._reads.of(pod) or ""

    def is_read(self, pod: PodInfo) -> bool:
        """Return whether the Events of a pod were read, or could not be."""
        return self._reads.is_read(pod)

    async def read(self, pods: Iterable[PodInfo], now: float) -> list[PodInfo]:
        """Read the Events of pods that are due; return the pods whose text has changed.

        Args:
            pods: All unprepared pods; what is known about others is forgotten.
            now: Seconds since 1970.
        """
        return await self._reads.read(pods, now)

    async def _find(self, pod: PodInfo) -> str | None:
        """Return the text of the latest Event of a kubelet about a pod; None: there is none.

        Raises:
            KubeError: The Events cannot be read.
        """
        fields = f"involvedObject.uid={pod.uid},reason={_REASON},source={_KUBELET}"
        found = await self._kube.get(
            api_path("v1", "namespaces", pod.namespace, "events"),
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
        return printable(truncated(latest.message, _TEXT_MAX)) or None
