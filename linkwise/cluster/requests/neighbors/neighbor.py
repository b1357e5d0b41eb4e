"""A pod as the rules of other pods see it: compact enough to keep for every pod."""

from dataclasses import dataclass, field
from functools import lru_cache
from sys import intern
from typing import TypeAlias

from linkwise.cluster.objects.kube_object import Labels
from linkwise.cluster.objects.pod import Pod
from linkwise.cluster.requests.neighbors.rules import PodTerm, Selected, repelling_terms

LABELS_MAX = 2 << 10
"""Longest labels of a pod that are kept [characters]."""
VALUES_MAX = 64
"""Values of the anti-affinity of a pod that are kept; larger ones are left to kube-scheduler."""
REPELS_MAX = 8
"""Terms of the anti-affinity of a pod that are kept: the first ones; others are left to
kube-scheduler."""
_Pairs: TypeAlias = tuple[tuple[str, str], ...]


@dataclass(frozen=True, slots=True)
class Neighbor:
    """A pod on a node, as the affinity and topology spread of others see it."""

    namespace: str = ""
    labels: Labels | None = field(default_factory=dict, hash=False)
    """None: they are too long to keep. Such a pod counts as one that others must not be near."""
    repels: tuple[PodTerm, ...] = ()
    """Its required anti-affinity, which keeps pods away from it: at most `REPELS_MAX` terms."""
    is_ending: bool = False
    """It is being deleted, so that topology spread does not count it."""
    unresolved: tuple[PodTerm, ...] = ()
    """More such terms, which select namespaces by labels; they keep no pod away until those are
    named."""

    def is_in(self, pods: Selected) -> bool:
        """Return whether a rule is about it; False where its labels are not known."""
        return self.labels is not None and pods.matches(self.namespace, self.labels)

    def may_be_in(self, pods: Selected) -> bool:
        """Return the same; where its labels are not known, whether its namespace is right."""
        if self.labels is not None:
            return pods.matches(self.namespace, self.labels)
        is_inside = pods.namespaces is None or self.namespace in pods.namespaces
        return is_inside and not pods.selector.is_nothing


NO_NEIGHBOR = Neighbor()
"""A pod of which nothing is known but its resources: no rule is about it."""


def neighbor_of(pod: Pod, namespace: str) -> Neighbor:
    """Return what others see of a pod; pods with equal labels and terms share one object."""
    labels = pod.labels
    terms = repelling_terms(pod, namespace)
    if sum(_size(term) for term in terms) > VALUES_MAX:
        terms = ()
    terms = tuple(dict.fromkeys(terms))[:REPELS_MAX]
    is_ending = bool(pod.metadata.deletion_timestamp)
    if sum(len(key) + len(value) for key, value in labels.items()) > LABELS_MAX:
        return _neighbor(namespace, None, terms, is_ending)
    return _shared(namespace, tuple(sorted(labels.items())), terms, is_ending)


@lru_cache(maxsize=4096)
def _shared(
    namespace: str, labels: _Pairs, terms: tuple[PodTerm, ...], is_ending: bool
) -> Neighbor:
    kept = {intern(key): intern(value) for key, value in labels}
    return _neighbor(namespace, kept, terms, is_ending)


def _neighbor(
    namespace: str, labels: Labels | None, terms: tuple[PodTerm, ...], is_ending: bool
) -> Neighbor:
    repels = tuple(term for term in terms if term.pods.by_labels is None)
    unresolved = tuple(term for term in terms if term.pods.by_labels is not None)
    return Neighbor(intern(namespace), labels, repels, is_ending, unresolved)


def _size(term: PodTerm) -> int:
    by_labels = term.pods.by_labels
    conditions = (*term.pods.selector.conditions, *(by_labels.conditions if by_labels else ()))
    return len(term.pods.namespaces or ()) + sum(1 + len(one.values) for one in conditions)
