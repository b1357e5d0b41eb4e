"""The pods that name a PersistentVolumeClaim or a ResourceClaim."""

from collections.abc import Callable, Iterable

from linkwise.planning.gang.pod_info import PodInfo
from linkwise.runtime.kube.objects import Key


class ClaimUsers:
    """Keys of pods by the claims that they name, until they are finished."""

    def __init__(self, names: Callable[[PodInfo], Iterable[str]]) -> None:
        """Start without pods; `names` returns those of the claims of a pod."""
        self._names = names
        self._pods: dict[Key, set[Key]] = {}

    def update(self, before: PodInfo | None, pod: PodInfo | None) -> set[Key]:
        """Take a changed pod; return the claims that it names or named."""
        left, named = self._claims(before), self._claims(pod)
        for one in filter(None, (before, pod)):
            for claim in left - named:
                self._remove(claim, one.key)
            for claim in named:
                self._pods.setdefault(claim, set()).add(one.key)
        return left | named

    def _remove(self, claim: Key, pod: Key) -> None:
        if pods := self._pods.get(claim):
            pods.discard(pod)
            if not pods:
                del self._pods[claim]

    def pods(self, claims: Iterable[Key] | None) -> set[Key]:
        """Return the pods that name one of these claims; None: any claim."""
        named = self._pods.values() if claims is None else map(self._of, claims)
        return {key for keys in named for key in keys}

    def _of(self, claim: Key) -> Iterable[Key]:
        return self._pods.get(claim, ())

    def _claims(self, pod: PodInfo | None) -> set[Key]:
        return {(pod.namespace, name) for name in self._names(pod)} if pod else set()
