"""Watch the labels of namespaces, for the rules of pods that select namespaces by them.

While they were never listed, since the right to read them is missing (an older ClusterRole), such
rules are left to kube-scheduler. So are those of a namespace whose pods have too many of them.
"""

from collections.abc import Callable, Iterable, Mapping, Set

import msgspec
import structlog
from msgspec import Raw

from linkwise.cluster.objects.label_match import LabelMatch
from linkwise.cluster.requests.neighbors.namespaces import Labels, NamespaceObject, selected
from linkwise.planning.gang.pod_info import PodInfo
from linkwise.planning.gang.pod_namespaces import selectors_of, with_namespaces
from linkwise.runtime.kube.client import Kube
from linkwise.runtime.kube.decode import decode
from linkwise.runtime.kube.objects import Key
from linkwise.runtime.kube.reflector import Reflector

SELECTORS_MAX = 128
"""Different selectors that are followed."""
NAMESPACE_SELECTORS_MAX = 16
"""Those of the pods of one namespace."""

_namespaces = msgspec.json.Decoder(NamespaceObject)
_log = structlog.get_logger()


class NamespaceInformer:
    """The namespaces that the rules of pods select."""

    def __init__(self, kube: Kube, on_change: Callable[[Set[Key]], None]) -> None:
        """Prepare the watch.

        Args:
            kube: The API server.
            on_change: Takes the pods whose rules select other namespaces now.
        """
        self._on_change = on_change
        self._labels: dict[str, Labels] = {}
        self._selected: dict[LabelMatch, frozenset[str]] = {}
        """What each selector that is followed selects."""
        self._pods: dict[LabelMatch, dict[str, set[Key]]] = {}
        """The pods that have it, by their namespace."""
        self._of_pod: dict[Key, frozenset[LabelMatch]] = {}
        self._is_known = False
        self.reflector: Reflector[Labels] = Reflector(
            kube,
            "/api/v1/namespaces",
            read_namespace,
            on_change=self._changed,
            on_forbidden=self._forbidden,
        )

    @property
    def followed(self) -> int:
        """The number of selectors that are followed."""
        return len(self._selected)

    def update(self, key: Key, pod: PodInfo | None) -> None:
        """Follow the selectors of a pod, before its namespaces are named; None: it is gone.

        Cost: linear in the namespaces for a new selector; nothing for a pod without any.
        """
        matches = frozenset(selectors_of(pod)) if pod else frozenset[LabelMatch]()
        before = self._of_pod.pop(key, frozenset())
        if not (matches or before):
            return
        for match in before - matches:
            self._drop(match, key)
        if kept := frozenset(match for match in matches if self._follow(match, key)):
            self._of_pod[key] = kept

    def complete(self, pod: PodInfo) -> PodInfo:
        """Return a pod whose rules name the namespaces that they select, as far as is known."""
        return with_namespaces(pod, self._selected.get) if self._is_known else pod

    def _follow(self, match: LabelMatch, key: Key) -> bool:
        pods = self._pods.get(match, {})
        if key[0] not in pods:
            own = sum(key[0] in of for of in self._pods.values())
            is_full = match not in self._pods and len(self._pods) >= SELECTORS_MAX
            if is_full or own >= NAMESPACE_SELECTORS_MAX:
                return False
        self._pods.setdefault(match, {}).setdefault(key[0], set()).add(key)
        if match not in self._selected:
            self._selected[match] = selected(self._labels, match)
        return True

    def _drop(self, match: LabelMatch, key: Key) -> None:
        pods = self._pods[match]
        pods[key[0]].discard(key)
        if not pods[key[0]]:
            del pods[key[0]]
        if not pods:
            del self._pods[match], self._selected[match]

    def _changed(self, items: Mapping[Key, Labels], changed: Set[Key]) -> None:
        for key in changed:
            if key in items:
                self._labels[key[1]] = items[key]
            else:
                self._labels.pop(key[1], None)
        others = [match for match in self._pods if self._reselect(match, changed)]
        if not self._is_known:
            self._is_known, others = True, list(self._pods)
        pods = (key for match in others for of in self._pods[match].values() for key in of)
        if keys := set(pods):
            self._on_change(keys)

    def _reselect(self, match: LabelMatch, changed: Iterable[Key]) -> bool:
        """Return whether a selector selects other namespaces now."""
        before = self._selected[match]
        names = {name for _, name in changed}
        found = {name for name in names & self._labels.keys() if match.matches(self._labels[name])}
        if found == before & names:
            return False
        self._selected[match] = before - names | found
        return True

    def _forbidden(self) -> None:
        _log.warning("Left namespace selectors to kube-scheduler", err=self.reflector.error)


def read_namespace(raw: Raw) -> Labels:
    """Return the labels of a namespace."""
    return decode(raw, _namespaces).labels
