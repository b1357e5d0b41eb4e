"""Reads watched pods within limits of memory, since tenants write pods of any size."""

from collections import Counter
from collections.abc import Mapping, Set

from msgspec import Raw, structs

from linkwise.cluster.keys import RECORD
from linkwise.cluster.objects.kube_object import Labels
from linkwise.cluster.objects.pod import Pod
from linkwise.planning.gang.compact_pod import MAX_BYTES, OVERHEAD, compact, weight
from linkwise.planning.state.memory_budget import NAMESPACE_MAX, TOTAL_MAX
from linkwise.runtime.kube.objects import Key
from linkwise.views.live.live_cluster import read_pod

SMALL = 16 << 10
"""A pod of this size is kept as it is [bytes]; usual ones are smaller."""
_TEXTS_MAX = 4096
"""Labels, and annotations besides those of its GPUs, that are kept of a larger one [characters]."""
_MEMORY = 4
"""Memory of a pod for each byte of it once it is encoded, about."""
_CONTAINERS_MAX = 16
"""Containers that are kept of the largest pods."""


class LivePods:
    """The reader of a watch of pods."""

    def __init__(self, namespace_max: int = NAMESPACE_MAX, total_max: int = TOTAL_MAX) -> None:
        """Start without pods.

        Args:
            namespace_max: Limit of one namespace [bytes].
            total_max: Limit of all namespaces [bytes].
        """
        self._namespace_max, self._total_max = namespace_max, total_max
        self._total = 0
        """Of all namespaces [bytes]."""
        self._weights: dict[Key, int] = {}
        self._used: Counter[str] = Counter()
        """By namespace [bytes]."""

    def read(self, raw: Raw) -> Pod:
        """Return what is kept of a pod, from its JSON.

        Of a pod that is larger than planned ones may be, and of those beyond a limit, little more
        is kept than what they request and what they have.
        """
        pod = read_pod(raw)
        key = pod.metadata.namespace, pod.metadata.name
        self._release(key)
        if memoryview(raw).nbytes > SMALL:
            pod = _compact(pod)
        size = weight(pod)
        taken = size * _MEMORY
        is_full = self._used[key[0]] + taken > self._namespace_max
        if size > MAX_BYTES or is_full or self._total + taken > self._total_max:
            pod, taken = _minimal(pod), OVERHEAD
        self._weights[key] = taken
        self._used[key[0]] += taken
        self._total += taken
        return pod

    def changed(self, items: Mapping[Key, Pod], changed: Set[Key]) -> None:
        """Free the memory of pods that are gone."""
        for key in changed:
            if key not in items:
                self._release(key)

    def _release(self, key: Key) -> None:
        namespace, _ = key
        taken = self._weights.pop(key, 0)
        self._total -= taken
        self._used[namespace] -= taken
        if not self._used[namespace]:
            del self._used[namespace]


def _compact(pod: Pod) -> Pod:
    """Return a smaller pod that is planned as the whole one, with its GPUs and some texts."""
    kept, own = compact(pod), pod.metadata
    metadata = structs.replace(
        own,
        labels={**_some(own.labels), **(kept.metadata.labels or {})},
        annotations={**_some(own.annotations), **_record(pod), **(kept.metadata.annotations or {})},
        owner_references=[owner for owner in own.owner_references or () if owner.controller][:1],
    )
    spec = structs.replace(
        kept.spec,
        affinity=pod.spec.affinity,
        topology_spread_constraints=pod.spec.topology_spread_constraints,
    )
    return structs.replace(pod, metadata=metadata, spec=spec)


def _some(texts: Labels | None) -> Labels:
    """Return texts up to a length, the shortest names first."""
    kept: Labels = {}
    length = 0
    for key, text in sorted((texts or {}).items(), key=lambda item: (len(item[0]), item)):
        length += len(key) + len(text)
        if length > _TEXTS_MAX:
            break
        kept[key] = text
    return kept


def _minimal(pod: Pod) -> Pod:
    """Return a pod with what it requests and what it has, without what it requires of nodes."""
    kept = compact(pod)
    metadata = structs.replace(
        kept.metadata,
        annotations={**_record(pod), **(kept.metadata.annotations or {})},
        deletion_timestamp=pod.metadata.deletion_timestamp,
    )
    spec = structs.replace(
        kept.spec,
        affinity=None,
        tolerations=None,
        node_selector=None,
        containers=kept.spec.containers[:_CONTAINERS_MAX],
        init_containers=(kept.spec.init_containers or ())[:_CONTAINERS_MAX] or None,
    )
    return structs.replace(pod, metadata=metadata, spec=spec)


def _record(pod: Pod) -> Labels:
    """Return the annotations that say which GPUs a pod has."""
    return {key: text for key, text in pod.annotations.items() if key in RECORD}
