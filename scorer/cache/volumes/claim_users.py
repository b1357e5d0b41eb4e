"""The pods that name a claim for volumes or devices, and those that use it on a node."""

from collections.abc import Callable, Iterable

from linkwise.planning.gang.pod_info import PodInfo
from linkwise.planning.gang.pod_volumes import uses_volumes
from linkwise.runtime.kube.objects import Key


class ClaimUsers:
    """Keys of pods by the claims that they name, until they are finished."""

    def __init__(self, names: Callable[[PodInfo], Iterable[str]]) -> None:
        """Start without pods; `names` returns those of the claims of a pod."""
        self._names = names
        self._naming: dict[Key, set[Key]] = {}
        self._using: dict[Key, set[Key]] = {}
        """Those of them that are on a node, or are to be."""

    def update(self, key: Key, before: PodInfo | None, pod: PodInfo | None) -> set[Key]:
        """Take a changed pod; return the claims that it uses now, or does not use any more.

        Args:
            key: Of the pod.
            before: The pod before; None: there was none.
            pod: The pod now; None: it is gone.
        """
        left, named = self._claims(before), self._claims(pod)
        used = named if pod and uses_volumes(pod) else set[Key]()
        for claim in left - named:
            _remove(self._naming, claim, key)
        for claim in named:
            self._naming.setdefault(claim, set()).add(key)
        was_used = {claim for claim in left | named if key in self._using.get(claim, ())}
        for claim in was_used - used:
            _remove(self._using, claim, key)
        for claim in used - was_used:
            self._using.setdefault(claim, set()).add(key)
        return was_used ^ used

    def naming(self, claims: Iterable[Key] | None) -> set[Key]:
        """Return the pods that name one of these claims; None: any claim."""
        if claims is None:
            return set().union(*self._naming.values())
        return {key for claim in claims for key in self._naming.get(claim, ())}

    def using(self, claim: Key) -> Iterable[Key]:
        """Return the pods that use a claim."""
        return self._using.get(claim, ())

    def _claims(self, pod: PodInfo | None) -> set[Key]:
        return {(pod.namespace, name) for name in self._names(pod)} if pod else set()


def _remove(pods: dict[Key, set[Key]], claim: Key, pod: Key) -> None:
    if claim in pods:
        pods[claim].discard(pod)
        if not pods[claim]:
            del pods[claim]
