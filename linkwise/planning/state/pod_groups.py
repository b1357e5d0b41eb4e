"""The pods that are placed together, and the groups of them that changed."""

from collections.abc import Iterable, Iterator
from itertools import chain

from linkwise.planning.gang.pod_info import PodInfo
from linkwise.runtime.kube.objects import Key


class PodGroups:
    """Pods that wait or waited for GPUs, by namespace and gang, or by their own name."""

    def __init__(self) -> None:
        """Start without pods."""
        self._pods: dict[Key, dict[Key, PodInfo]] = {}
        self._followers: dict[Key, dict[Key, PodInfo]] = {}
        """Pods without GPUs that have the mark of a gang, in the same way."""
        self._kin: dict[Key, dict[Key, PodInfo]] = {}
        """Pods of the owner of a gang that are no members, in the same way."""
        self._dirty: set[Key] = set()

    def __iter__(self) -> Iterator[Key]:
        """Yield namespaces and names of gangs, and of pods that wait without a gang."""
        return iter(self._pods)

    def of(self, key: Key) -> Iterable[PodInfo]:
        """Return the pods of a group: of all gangs of a name, or one pod."""
        return self._pods.get(key, {}).values()

    def with_followers(self, key: Key) -> Iterable[PodInfo]:
        """Return the pods of a group, and those without GPUs that have its mark."""
        return chain(self.of(key), self._followers.get(key, {}).values())

    def kin(self, key: Key) -> Iterable[PodInfo]:
        """Return the pods of the owners of a group's gangs that are placed by themselves."""
        return self._kin.get(key, {}).values()

    def add(self, pod: PodInfo) -> None:
        """Add a pod to its group, if it has one."""
        for pods, group in self._places(pod):
            self.mark_dirty(group)
            pods.setdefault(group, {})[pod.key] = pod

    def remove(self, pod: PodInfo) -> None:
        """Remove a pod from its group, if it has one."""
        for pods, group in self._places(pod):
            self.mark_dirty(group)
            del pods[group][pod.key]
            if not pods[group]:
                del pods[group]

    def _places(self, pod: PodInfo) -> Iterator[tuple[dict[Key, dict[Key, PodInfo]], Key]]:
        if pod.group is not None:
            yield self._pods, (pod.namespace, pod.group)
        if pod.follows is not None:
            yield self._followers, (pod.namespace, pod.follows)
        if pod.kin is not None:
            yield self._kin, (pod.namespace, pod.kin)

    def mark_dirty(self, group: Key) -> None:
        """Let the planner assemble the units of a group again."""
        self._dirty.add(group)

    def drain_dirty(self) -> frozenset[Key]:
        """Return the groups that changed since the last call. The planner is the only consumer."""
        drained = frozenset(self._dirty)
        self._dirty.clear()
        return drained
