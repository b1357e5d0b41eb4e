"""Limit the memory for waiting pods of each namespace, so that no tenant can exhaust it."""

from collections import Counter
from collections.abc import Sequence
from operator import itemgetter

from linkwise.planning.gang.pod_info import PodInfo, unplanned
from linkwise.runtime.kube.objects import Key

NAMESPACE_MAX = 64 << 20
"""Limit of the waiting pods of one namespace [bytes]: about 13,000 small pods."""
TOTAL_MAX = 256 << 20
"""Limit of the waiting pods of all namespaces [bytes]."""

_WHY = (
    f"too much waits in its namespace: at most {NAMESPACE_MAX >> 20} MiB of its pods are kept, and "
    f"{TOTAL_MAX >> 20} MiB of all namespaces; this one is planned when others are placed, or "
    "deleted"
)


class MemoryBudget:
    """The memory of waiting pods, by namespace.

    At the total limit, the namespace that uses most memory loses its newest pods to a namespace
    that uses less, as long as it keeps using at least as much. So the smaller share only grows, and
    pods are not exchanged without end.
    """

    def __init__(self, namespace_max: int = NAMESPACE_MAX, total_max: int = TOTAL_MAX) -> None:
        """Start without pods.

        Args:
            namespace_max: Limit of one namespace [bytes].
            total_max: Limit of all namespaces [bytes].
        """
        self._namespace_max, self._total_max = namespace_max, total_max
        self._kept: dict[str, dict[Key, int]] = {}
        """By namespace: the memory of pods that are kept, oldest first [bytes]."""
        self._used: Counter[str] = Counter()
        """By namespace [bytes]."""
        self._total = 0
        """Of all namespaces [bytes]."""
        self._excluded: dict[str, dict[Key, int]] = {}
        """By namespace: the memory that pods that are not kept would use, oldest first [bytes]."""
        self._dropped: set[Key] = set()

    def __len__(self) -> int:
        """Return how many pods are not kept."""
        return sum(map(len, self._excluded.values()))

    @property
    def dropped(self) -> frozenset[Key]:
        """Pods that `take` returned whole, but that lost their memory since: call `shrink`."""
        return frozenset(self._dropped)

    def take(self, pod: PodInfo) -> PodInfo:
        """Return what is kept of a new version of a pod."""
        self.release(pod.key)
        if pod.unplannable or not (pod.waiting or pod.ungated):
            return pod
        largest = self._largest() if self._total + pod.weight > self._total_max else ("", 0)
        victims = self._victims(pod.namespace, pod.weight, *largest)
        if victims is None:
            self._excluded.setdefault(pod.namespace, {})[pod.key] = pod.weight
            return unplanned(pod, _WHY)
        for key in victims:
            self._leave_out(key)
            self._dropped.add(key)
        self._kept.setdefault(pod.namespace, {})[pod.key] = pod.weight
        self._used[pod.namespace] += pod.weight
        self._total += pod.weight
        return pod

    def shrink(self, pod: PodInfo) -> PodInfo:
        """Return what is kept of a pod that was dropped."""
        self._dropped.discard(pod.key)
        return unplanned(pod, _WHY)

    def confirm(self, pod: PodInfo) -> None:
        """Note the version that the watch keeps, since a list may replace pods while it is read."""
        if pod.unplannable is _WHY:
            if pod.key in self._kept.get(pod.namespace, {}):
                self._leave_out(pod.key)
        elif pod.key in self._excluded.get(pod.namespace, {}):
            self._dropped.add(pod.key)

    def release(self, key: Key) -> None:
        """Free the memory of a deleted pod."""
        namespace, _ = key
        self._dropped.discard(key)
        freed = _pop(self._kept, key)
        self._used[namespace] -= freed
        self._total -= freed
        if not self._used[namespace]:
            del self._used[namespace]
        _pop(self._excluded, key)

    def fitting(self) -> Key | None:
        """Return a pod that is not kept, but would fit now; None: there is none.

        Cost: linear in the namespaces, if any pod is not kept.
        """
        largest = self._largest() if self._excluded else ("", 0)
        for namespace, pods in self._excluded.items():
            key, size = next(iter(pods.items()))
            if self._victims(namespace, size, *largest) is not None:
                return key
        return None

    def _leave_out(self, key: Key) -> None:
        namespace, _ = key
        size = self._kept[namespace][key]
        self.release(key)
        self._excluded.setdefault(namespace, {})[key] = size

    def _largest(self) -> tuple[str, int]:
        """Return the namespace that uses most memory, and how much [bytes]."""
        return max(self._used.items(), key=itemgetter(1), default=("", 0))

    def _victims(self, namespace: str, size: int, largest: str, takes: int) -> Sequence[Key] | None:
        """Return the pods that must be dropped to keep another pod; None: it cannot be kept.

        Args:
            namespace: The pod's.
            size: The pod's memory [bytes].
            largest: The namespace that uses most memory; its pods are dropped.
            takes: The memory of that namespace [bytes].
        """
        used, left = self._used[namespace] + size, self._total_max - self._total - size
        if used > self._namespace_max:
            return None
        if left >= 0:
            return ()
        victims = []
        for key, weight in reversed(self._kept.get(largest, {}).items()):
            victims.append(key)
            left, takes = left + weight, takes - weight
            if left >= 0:
                break
        return victims if left >= 0 and used <= takes else None


def _pop(pods: dict[str, dict[Key, int]], key: Key) -> int:
    """Remove a pod from its namespace, and return its memory [bytes]; 0: it is not there."""
    namespace, _ = key
    of_namespace = pods.get(namespace, {})
    size = of_namespace.pop(key, 0)
    if not of_namespace:
        pods.pop(namespace, None)
    return size
