"""The namespaces that rules about other pods select by labels, and rules that name these instead.

As kube-scheduler does, a term that selects namespaces by labels is judged by the names of those
that have such labels now.
"""

from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import cache, lru_cache, partial

import msgspec
from msgspec import Struct

from linkwise.cluster.keys import NAMESPACE_NAME
from linkwise.cluster.objects.label_match import LabelMatch
from linkwise.cluster.objects.metadata import Metadata
from linkwise.cluster.requests.neighbors.neighbor import Neighbor
from linkwise.cluster.requests.neighbors.rules import NeighborRules, PodTerm

LABELS_MAX = 16 << 10
"""Longest labels of a namespace that are kept [characters]; one with longer ones is selected by no
label but its name."""
Labels = Mapping[str, str]
SelectNamespaces = Callable[[LabelMatch], frozenset[str] | None]
"""Returns the namespaces with such labels; None: they are not known."""


class NamespaceObject(Struct, frozen=True):
    """A namespace, of which only the labels count."""

    metadata: Metadata = Metadata()

    @property
    def labels(self) -> Labels:
        """Its labels, with its name among them, whether or not the API server has added it yet."""
        own = self.metadata.labels or {}
        if sum(len(key) + len(value) for key, value in own.items()) > LABELS_MAX:
            own = {}
        return {**own, NAMESPACE_NAME: self.metadata.name}


_decoder = msgspec.json.Decoder(NamespaceObject)


def selected(namespaces: Mapping[str, Labels], match: LabelMatch) -> frozenset[str]:
    """Return the namespaces with some labels. Cost: linear in the namespaces."""
    return frozenset(name for name, labels in namespaces.items() if match.matches(labels))


def selecting(namespaces: Mapping[str, Labels] | None) -> SelectNamespaces:
    """Return what selects some of these namespaces, each selection computed once; None: unknown."""
    if namespaces is None:
        return lambda _: None
    return cache(partial(selected, namespaces))


def rules_with_namespaces(rules: NeighborRules, select: SelectNamespaces) -> NeighborRules:
    """Return rules whose terms name the namespaces that they select; others stay unresolved."""
    if not rules.unresolved:
        return rules
    together, apart, left = list(rules.affinity), list(rules.anti_affinity), []
    for one in rules.unresolved:
        term = _named(one.term, select)
        if term is None:
            left.append(one)
        else:
            (apart if one.is_anti else together).append(term)
    return replace(
        rules, affinity=tuple(together), anti_affinity=tuple(apart), unresolved=tuple(left)
    )


def neighbor_with_namespaces(neighbor: Neighbor, select: SelectNamespaces) -> Neighbor:
    """Return a neighbor whose terms name the namespaces that they select."""
    if not neighbor.unresolved:
        return neighbor
    found = [(term, _named(term, select)) for term in neighbor.unresolved]
    repels = (*neighbor.repels, *(term for _, term in found if term is not None))
    left = tuple(term for term, named in found if named is None)
    return replace(neighbor, repels=repels, unresolved=left)


def _named(term: PodTerm, select: SelectNamespaces) -> PodTerm | None:
    pods = term.pods
    found = select(pods.by_labels) if pods.by_labels else frozenset[str]()
    if found is None:
        return None
    return _naming(term, found)


@lru_cache(maxsize=128)
def _naming(term: PodTerm, found: frozenset[str]) -> PodTerm:
    """Return a term that names some namespaces; equal ones are one object."""
    names = found | term.pods.namespaces if term.pods.namespaces else found
    return replace(term, pods=replace(term.pods, namespaces=names, by_labels=None))
