"""Claims that several pods name: only one pod is planned, and preempts others, for its GPUs.

A PersistentVolumeClaim that only one pod may use is that of the first pod that is planned.
"""

from collections.abc import Callable, Iterator, Mapping

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
        uses_volumes: Callable[[PodInfo], bool] = lambda _: True,
    ) -> None:
        """Start without pods.

        Args:
            held: Returns the claims that have GPUs.
            waits: Returns whether a pod still waits.
            uses_volumes: Returns whether a pod that was planned is on a node, or is to be.
        """
        self._volumes = _ExclusiveVolumes(uses_volumes)
        self._held, self._waits = held, waits
        self._first: dict[Key, PodInfo] = {}
        self._most = _KEPT

    def __len__(self) -> int:
        """The number of pods that are kept."""
        return len(self._first) + len(self._volumes)

    def plan(self, unit: Unit) -> None:
        """Take a unit that is planned."""
        self._volumes.plan(unit)

    def blocker(self, unit: Unit) -> str | None:
        """Return why a unit does not get what is its own by a claim that another pod names, too."""
        return self._gpu_blocker(unit) or self._volumes.blocker(unit)

    def _gpu_blocker(self, unit: Unit) -> str | None:
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


class _ExclusiveVolumes:
    """The pods that were planned and name a PersistentVolumeClaim which only one pod may use.

    Until its node is written, no other pod shows that its claim is in use.
    """

    def __init__(self, uses: Callable[[PodInfo], bool] = lambda _: True) -> None:
        self._uses = uses
        self._planned: dict[Key, PodInfo] = {}
        self._most = _KEPT

    def __len__(self) -> int:
        return len(self._planned)

    def blocker(self, unit: Unit) -> str | None:
        """Return why a unit waits for a claim that a pod has which was planned; None: for none."""
        for claim, pod in _exclusive(unit):
            other = self._planned.get(claim)
            if other is not None and other.uid != pod.uid and self._uses(other):
                return (
                    f"pod {other.name}, which names PersistentVolumeClaim {claim[1]}, too, is "
                    "planned before it, and only one pod may use it (ReadWriteOncePod)"
                )
        return None

    def plan(self, unit: Unit) -> None:
        """Take a unit that is planned."""
        for claim, pod in _exclusive(unit):
            self._planned[claim] = pod
        if len(self._planned) > self._most:
            used = {claim: one for claim, one in self._planned.items() if self._uses(one)}
            self._planned, self._most = used, 2 * len(used) + _KEPT


def _exclusive(unit: Unit) -> Iterator[tuple[Key, PodInfo]]:
    for pod in unit.waiting:
        volumes = pod.member.volumes if pod.member else None
        for name in volumes.exclusive if volumes else ():
            yield (pod.namespace, name), pod
