"""Limit the memory for waiting pods of each namespace, so that no tenant can exhaust it."""

from collections import Counter

from scorer.cache.cluster_state import Key
from scorer.gang.pod_info import PodInfo, unplanned

MOST = 64 << 20
"""What the waiting pods of one namespace may take [bytes, about]: some 13,000 plain ones."""

_WHY = (
    f"too much waits in its namespace: at most {MOST >> 20} MiB of its pods are kept; this one is "
    "planned when others of the namespace are placed, or deleted"
)


class MemoryBudget:
    """The memory that waiting pods take, by namespace."""

    def __init__(self, most: int = MOST) -> None:
        """Start without pods.

        Args:
            most: What the waiting pods of one namespace may take [bytes].
        """
        self._most = most
        self._kept: dict[Key, int] = {}
        self._used: Counter[str] = Counter()
        """By namespace [bytes]."""
        self._over: dict[str, dict[Key, int]] = {}
        """By namespace: pods that are not kept, the first seen first, and what they would take."""

    def __len__(self) -> int:
        """Return how many pods are not kept."""
        return sum(map(len, self._over.values()))

    def take(self, pod: PodInfo) -> PodInfo:
        """Return what is kept of a pod as it is now."""
        self.release(pod.key)
        if pod.unplannable or not (pod.waiting or pod.ungated):
            return pod
        if self._used[pod.namespace] + pod.weight > self._most:
            self._over.setdefault(pod.namespace, {})[pod.key] = pod.weight
            return unplanned(pod, _WHY)
        self._kept[pod.key] = pod.weight
        self._used[pod.namespace] += pod.weight
        return pod

    def confirm(self, pod: PodInfo) -> None:
        """Note what is kept of a pod in the end: a list may have been read while it was taken."""
        if pod.unplannable is _WHY and pod.key in self._kept:
            self.release(pod.key)
            self._over.setdefault(pod.namespace, {})[pod.key] = pod.weight

    def release(self, key: Key) -> None:
        """Forget a pod."""
        namespace, _ = key
        self._used[namespace] -= self._kept.pop(key, 0)
        if not self._used[namespace]:
            del self._used[namespace]
        over = self._over.get(namespace)
        if over is not None:
            over.pop(key, None)
            if not over:
                del self._over[namespace]

    def fitting(self) -> Key | None:
        """Return a pod that is not kept though there is room for it by now; None: there is none."""
        for namespace, pods in self._over.items():
            key, weighs = next(iter(pods.items()))
            if self._used[namespace] + weighs <= self._most:
                return key
        return None
