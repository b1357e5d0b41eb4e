"""The pods that fitted on no node when kube-scheduler asked, until it asks about them again."""

from collections.abc import Iterable, Sequence
from itertools import chain
from sys import intern
from typing import NamedTuple

from msgspec.structs import replace

from linkwise.cluster.objects.pod import Pod
from linkwise.cluster.requests.request import Request
from linkwise.runtime.kube.objects import Key
from scorer.extender.filter import FilterVerdict

_PODS_MAX = 256
"""Beyond it the pod that was refused longest ago is delegated to kube-scheduler, which tries it
again after 30 s by the shipped configuration."""


class Refusal(NamedTuple):
    """One such pod."""

    uid: str
    request: Request
    priority: int
    nodes: Sequence[str]
    """All nodes that kube-scheduler asked about. In a large cluster it asks about a sample."""
    generation: int
    """The number of `older` calls before it."""


class Refusals:
    """At most 256 pods; each replaces what is known of a pod of its name."""

    def __init__(self) -> None:
        """Start without a pod."""
        self._pods: dict[Key, Refusal] = {}
        """The one that was refused longest ago first."""
        self._generation = 0

    def note(self, pod: Pod, verdict: FilterVerdict) -> None:
        """Take the answer to kube-scheduler about a pod."""
        key = pod.metadata.namespace, pod.metadata.name
        self._pods.pop(key, None)
        request = verdict.request
        if verdict.names or request is None:
            return
        if len(self._pods) >= _PODS_MAX:
            del self._pods[next(iter(self._pods))]
        self._pods[key] = Refusal(
            pod.metadata.uid,
            # Pods can have thousands of containers, and only the resource of the first one counts.
            replace(request, containers=request.containers[:1]),
            pod.spec.priority or 0,
            # The same names are decoded again for each pod.
            tuple(map(intern, chain(verdict.resolvable, verdict.unresolvable))),
            self._generation,
        )

    def older(self) -> Iterable[tuple[Key, Refusal]]:
        """Return the pods that were refused before the last call, and not since."""
        self._generation += 1
        return [
            (key, refusal)
            for key, refusal in self._pods.items()
            if refusal.generation < self._generation - 1
        ]

    def forget(self, key: Key, refusal: Refusal) -> None:
        """Remove a pod, unless it was refused once more."""
        if self._pods.get(key) is refusal:
            del self._pods[key]
