"""Claims that several pods name: only one pod is planned, and preempts others, for its GPUs."""

from collections.abc import Callable, Mapping

from linkwise.cluster.nodes.device_claims import HeldClaim
from linkwise.planning.gang.pod_info import PodInfo
from linkwise.planning.gang.unit import Unit
from linkwise.runtime.kube.objects import Key

_KEPT = 64
"""So many pods are kept beside twice as many as wait."""


class Claimants:
    """The first pod that waits and names a claim, of each claim."""

    def __init__(
        self,
        held: Callable[[], Mapping[Key, HeldClaim]] = dict,
        waits: Callable[[PodInfo], bool] = lambda _: True,
    ) -> None:
        """Start without pods.

        Args:
            held: Returns the claims that have GPUs.
            waits: Returns whether a pod still waits.
        """
        self._held, self._waits = held, waits
        self._first: dict[Key, PodInfo] = {}
        self._most = _KEPT

    def __len__(self) -> int:
        """The number of pods that are kept."""
        return len(self._first)

    def blocker(self, unit: Unit) -> str | None:
        """Return why a unit does not get GPUs of its own by a claim that another pod names, too."""
        for pod in unit.waiting:
            for name in pod.usage.claims if pod.usage else ():
                held, first = self._held().get((pod.namespace, name)), self._first_of(pod, name)
                if first.uid != pod.uid and any(first.uid == each.uid for each in unit.waiting):
                    return f"pods {first.name} and {pod.name} name claim {name}: each needs its own"
                if first.uid != pod.uid:
                    return f"pod {first.name}, which names claim {name}, too, is planned before it"
                if held is not None and held.is_used_by_others(pod.uid):
                    return f"another pod uses claim {name} of pod {pod.name}"
        return None

    def _first_of(self, pod: PodInfo, claim: str) -> PodInfo:
        key = pod.namespace, claim
        first = self._first.get(key)
        if first is None or not self._waits(first):
            first = self._first[key] = pod
            if len(self._first) > self._most:
                self._first = {key: one for key, one in self._first.items() if self._waits(one)}
                self._most = 2 * len(self._first) + _KEPT
        return first
