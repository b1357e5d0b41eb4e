"""The use of the nodes by pods: by node, by priority, and of pods that are ending."""

from collections import Counter
from collections.abc import Iterable, Mapping
from itertools import chain

from linkwise.cluster.account.pod_usage import PodUsage
from linkwise.planning.gang.pod_info import PodInfo


class PodUsages:
    """The usages of pods that are bound to a node, or have an allocation there."""

    def __init__(self) -> None:
        """Start without pods."""
        self._by_node: dict[str, dict[str, PodUsage]] = {}
        """By node, then by uid of the pod."""
        self._priorities = Counter[int]()
        """The number of pods with GPUs by our record, by their priority."""
        self._priorities_of_others = Counter[int]()
        """The same of pods with whole GPUs that Linkwise did not place."""
        self._ending: dict[str, str] = {}
        """By uid of a pod with GPUs that is being deleted: its node."""

    def add(self, pod: PodInfo) -> None:
        """Add the usage of a pod, if it has one."""
        if pod.is_ending and pod.usage:
            self._ending[pod.uid] = pod.usage.target
        if (usage := pod.usage) and has_place(usage):
            self._by_node.setdefault(usage.target, {})[pod.uid] = usage
            self._count(usage, 1)

    def remove(self, pod: PodInfo) -> None:
        """Remove the usage of a pod, if it has one."""
        self._ending.pop(pod.uid, None)
        if (usage := pod.usage) and has_place(usage):
            del self._by_node[usage.target][pod.uid]
            if not self._by_node[usage.target]:
                del self._by_node[usage.target]
            self._count(usage, -1)

    def on(self, node: str) -> Iterable[PodUsage]:
        """Return the usages on a node."""
        return self.by_uid(node).values()

    def by_uid(self, node: str) -> Mapping[str, PodUsage]:
        """Return the usages on a node, by uid of the pod."""
        return self._by_node.get(node, {})

    def lowest_priority(self, *, others: bool) -> int | None:
        """Return the lowest priority of a pod with GPUs by our record; None: there is none.

        Args:
            others: Pods with whole GPUs that Linkwise did not place count, too.
        """
        counted = (self._priorities, self._priorities_of_others if others else ())
        return min(chain.from_iterable(counted), default=None)

    @property
    def ending(self) -> Mapping[str, str]:
        """By uid of a pod with GPUs that is being deleted: its node."""
        return self._ending

    def is_ending(self, uid: str) -> bool:
        """Return whether a pod with GPUs is being deleted."""
        return uid in self._ending

    def _count(self, usage: PodUsage, change: int) -> None:
        if usage.allocation or usage.is_of_others:
            counts = self._priorities if usage.allocation else self._priorities_of_others
            counts[usage.priority] += change
            if not counts[usage.priority]:
                del counts[usage.priority]


def has_place(usage: PodUsage) -> bool:
    """Return whether a pod is on a node, or has a record of one."""
    return bool(usage.target or usage.record)
