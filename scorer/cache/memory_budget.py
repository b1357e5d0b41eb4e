"""Limit the memory for waiting pods of each namespace, so that no tenant can exhaust it."""

from collections import Counter
from collections.abc import Sequence
from operator import itemgetter

from scorer.cache.cluster_state import Key
from scorer.gang.pod_info import PodInfo, unplanned

MOST = 64 << 20
"""What the waiting pods of one namespace may take [bytes, about]: some 13,000 plain ones."""
MOST_OF_ALL = 256 << 20
"""What those of all namespaces may take [bytes, about]."""

_WHY = (
    f"too much waits in its namespace: at most {MOST >> 20} MiB of its pods are kept, and "
    f"{MOST_OF_ALL >> 20} MiB of all namespaces; this one is planned when others are placed, or "
    "deleted"
)


class MemoryBudget:
    """The memory that waiting pods take, by namespace.

    Where all namespaces together would take too much, the one that takes the most has the pods left
    out that came last, as long as it still takes at least as much as the namespace for which they
    are left out. So the smaller part only grows, and pods are not exchanged without end.
    """

    def __init__(self, most: int = MOST, most_of_all: int = MOST_OF_ALL) -> None:
        """Start without pods.

        Args:
            most: What the waiting pods of one namespace may take [bytes].
            most_of_all: What those of all namespaces may take [bytes].
        """
        self._most, self._most_of_all = most, most_of_all
        self._kept: dict[str, dict[Key, int]] = {}
        """By namespace: pods that are kept, the first one first, and what they take [bytes]."""
        self._used: Counter[str] = Counter()
        """By namespace [bytes]."""
        self._total = 0
        """By all namespaces [bytes]."""
        self._over: dict[str, dict[Key, int]] = {}
        """By namespace: pods that are not kept, the first seen first, and what they would take."""
        self._dropped: set[Key] = set()

    def __len__(self) -> int:
        """Return how many pods are not kept."""
        return sum(map(len, self._over.values()))

    @property
    def dropped(self) -> frozenset[Key]:
        """Pods that `take` returned whole, and of which less has to be kept by now: `shrink`."""
        return frozenset(self._dropped)

    def take(self, pod: PodInfo) -> PodInfo:
        """Return what is kept of a pod as it is now."""
        self.release(pod.key)
        if pod.unplannable or not (pod.waiting or pod.ungated):
            return pod
        largest = self._largest() if self._total + pod.weight > self._most_of_all else ("", 0)
        instead = self._instead_of(pod.namespace, pod.weight, *largest)
        if instead is None:
            self._over.setdefault(pod.namespace, {})[pod.key] = pod.weight
            return unplanned(pod, _WHY)
        for key in instead:
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
        """Note what is kept of a pod in the end: a list may have been read while it was taken."""
        if pod.unplannable is _WHY:
            if pod.key in self._kept.get(pod.namespace, {}):
                self._leave_out(pod.key)
        elif pod.key in self._over.get(pod.namespace, {}):
            self._dropped.add(pod.key)

    def release(self, key: Key) -> None:
        """Forget a pod."""
        namespace, _ = key
        self._dropped.discard(key)
        freed = _pop(self._kept, key)
        self._used[namespace] -= freed
        self._total -= freed
        if not self._used[namespace]:
            del self._used[namespace]
        _pop(self._over, key)

    def fitting(self) -> Key | None:
        """Return a pod that is not kept though there is room for it by now; None: there is none.

        Cost: linear in the namespaces, where any pod is not kept.
        """
        largest = self._largest() if self._over else ("", 0)
        for namespace, pods in self._over.items():
            key, weighs = next(iter(pods.items()))
            if self._instead_of(namespace, weighs, *largest) is not None:
                return key
        return None

    def _leave_out(self, key: Key) -> None:
        namespace, _ = key
        weighs = self._kept[namespace][key]
        self.release(key)
        self._over.setdefault(namespace, {})[key] = weighs

    def _largest(self) -> tuple[str, int]:
        """Return the namespace that takes the most, and how much [bytes]."""
        return max(self._used.items(), key=itemgetter(1), default=("", 0))

    def _instead_of(
        self, namespace: str, weighs: int, largest: str, takes: int
    ) -> Sequence[Key] | None:
        """Return which pods are left out where one more is kept; None: that one is left out.

        Args:
            namespace: Of the one more.
            weighs: What it would take [bytes].
            largest: The namespace that takes the most, and gives way where there is no room.
            takes: How much that is [bytes].
        """
        used, left = self._used[namespace] + weighs, self._most_of_all - self._total - weighs
        if used > self._most:
            return None
        if left >= 0:
            return ()
        found = []
        for key, weight in reversed(self._kept.get(largest, {}).items()):
            found.append(key)
            left, takes = left + weight, takes - weight
            if left >= 0:
                break
        return found if left >= 0 and used <= takes else None


def _pop(pods: dict[str, dict[Key, int]], key: Key) -> int:
    """Remove a pod from its namespace, and return its bytes; 0 where it is not there."""
    namespace, _ = key
    of_namespace = pods.get(namespace, {})
    weighs = of_namespace.pop(key, 0)
    if not of_namespace:
        pods.pop(namespace, None)
    return weighs
