"""Rules of a pod about the pods near it: topology spread, pod affinity and anti-affinity.

Only what kube-scheduler's filters PodTopologySpread and InterPodAffinity judge; preferences are
named, and left to it.
"""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from itertools import chain
from typing import NamedTuple

from linkwise.cluster.keys import NAMESPACE_NAME
from linkwise.cluster.objects.affinity import (
    LabelSelector,
    PodAffinity,
    PodAffinityTerm,
    TopologySpreadConstraint,
)
from linkwise.cluster.objects.label_match import LabelMatch, label_match
from linkwise.cluster.objects.pod import Pod

MAX_TERMS = 32
"""Terms and constraints of a pod; people write one to three."""
MAX_VALUES = 1_000
"""Keys, values and namespaces of all of them together."""
_SKEW_MAX = 1 << 31
_TERM_BYTES, _VALUE_BYTES = 1 << 10, 128


@dataclass(frozen=True)
class Selected:
    """The pods that a rule is about."""

    namespaces: frozenset[str] | None
    """None: all."""
    selector: LabelMatch
    by_labels: LabelMatch | None = None
    """Other namespaces, by their labels, until they are named (`namespaces`); None: no others."""
    _hash: int = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        parts = self.namespaces, self.selector, self.by_labels
        object.__setattr__(self, "_hash", hash(parts))

    def __hash__(self) -> int:
        """Return the hash, which is computed once."""
        return self._hash

    def matches(self, namespace: str, labels: Mapping[str, str]) -> bool:
        """Return whether a pod is one of them."""
        is_inside = self.namespaces is None or namespace in self.namespaces
        return is_inside and self.selector.matches(labels)


@dataclass(frozen=True)
class PodTerm:
    """A required term of pod affinity or anti-affinity."""

    pods: Selected
    key: str
    """The label whose value pods near each other share (`topologyKey`)."""


class UnresolvedTerm(NamedTuple):
    """A required term that selects namespaces by labels."""

    is_anti: bool
    """It is one of anti-affinity."""
    term: PodTerm


@dataclass(frozen=True)
class SpreadConstraint:
    """A topology spread constraint that must be satisfied (`DoNotSchedule`)."""

    pods: Selected
    key: str
    """The label whose values are the domains (`topologyKey`)."""
    max_skew: int
    min_domains: int
    honors_affinity: bool
    """Only nodes that satisfy the pod's node selector and node affinity count."""
    honors_taints: bool
    """Only nodes whose taints the pod tolerates count."""


@dataclass(frozen=True)
class NeighborRules:
    """What a pod requires of the pods near it."""

    affinity: tuple[PodTerm, ...] = ()
    anti_affinity: tuple[PodTerm, ...] = ()
    spread: tuple[SpreadConstraint, ...] = ()
    preferred: tuple[SpreadConstraint, ...] = ()
    """The topology spread that need not be satisfied (`ScheduleAnyway`)."""
    uncounted: tuple[str, ...] = ()
    """The preferences that do not count, in words. A pinned pod has no other node, so
    kube-scheduler does not regard them, either."""
    unresolved: tuple[UnresolvedTerm, ...] = ()
    """Terms that are left to kube-scheduler until the namespaces that they select are named."""
    oversize: str | None = None
    """Why the rules are too many to plan, and what to do; then none is kept."""
    weight: int = 0
    """Memory of the rules [bytes, about]."""
    _hash: int = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        parts = self.affinity, self.anti_affinity, self.spread, self.preferred
        object.__setattr__(self, "_hash", hash(parts) if any(parts) else 0)

    def __hash__(self) -> int:
        """Return the hash, which is computed once."""
        return self._hash

    def __bool__(self) -> bool:
        """Return whether a pod has any rule that is planned."""
        return bool(self.affinity or self.anti_affinity or self.spread)

    @property
    def delegated(self) -> tuple[str, ...]:
        """The rules that are left to kube-scheduler, in words."""
        kinds = dict.fromkeys(one.is_anti for one in self.unresolved)
        return tuple(
            f"pod {'anti-' if is_anti else ''}affinity that selects namespaces by labels"
            for is_anti in kinds
        )

    @property
    def pods(self) -> Iterator[Selected]:
        """The pods that each of the rules is about."""
        terms = (term.pods for term in chain(self.affinity, self.anti_affinity))
        return chain(terms, (one.pods for one in self.spread))


NO_RULES = NeighborRules()


def neighbor_rules(pod: Pod, namespace: str) -> NeighborRules:
    """Return what a pod requires of the pods near it.

    Cost: linear in its terms; nothing for a pod without any. Equal rules are one object.
    """
    affinity, spread = pod.spec.affinity, pod.spec.topology_spread_constraints
    near, far = (affinity.pod_affinity, affinity.pod_anti_affinity) if affinity else (None, None)
    if not (near or far or spread):
        return NO_RULES
    terms = [*(near.required if near else ()), *(far.required if far else ())]
    rules = spread or ()
    values = sum(map(_values_of_term, terms)) + sum(map(_values_of_constraint, rules))
    if reason := _oversize(len(terms) + len(rules), values):
        return NeighborRules(oversize=reason)
    labels = pod.labels
    together, together_left = _terms(near, labels, namespace)
    apart, apart_left = _terms(far, labels, namespace)
    needed, preferred = (
        tuple(
            _constraint(one, labels, namespace)
            for one in rules
            if (one.when_unsatisfiable == "ScheduleAnyway") is is_preferred
        )
        for is_preferred in (False, True)
    )
    named = ("pod affinity", near), ("pod anti-affinity", far)
    return _shared(
        NeighborRules(
            together,
            apart,
            needed,
            preferred,
            uncounted=tuple(f"{name} that is preferred" for name, one in named if _prefers(one)),
            unresolved=(
                *(UnresolvedTerm(False, term) for term in together_left),
                *(UnresolvedTerm(True, term) for term in apart_left),
            ),
            weight=_TERM_BYTES * (len(terms) + len(rules)) + _VALUE_BYTES * values,
        )
    )


def repelling_terms(pod: Pod, namespace: str) -> tuple[PodTerm, ...]:
    """Return the required anti-affinity of a pod, which keeps other pods away, too.

    None of it where it is too large to keep.
    """
    affinity = pod.spec.affinity
    if affinity is None or affinity.pod_anti_affinity is None:
        return ()
    far = affinity.pod_anti_affinity
    if _oversize(len(far.required), sum(map(_values_of_term, far.required))):
        return ()
    return tuple(_term(one, pod.labels, namespace) for one in far.required)


@lru_cache(maxsize=1024)
def _shared(rules: NeighborRules) -> NeighborRules:
    return rules


def _oversize(terms: int, values: int) -> str | None:
    for count, most, what in (
        (terms, MAX_TERMS, "terms and constraints"),
        (values, MAX_VALUES, "keys, values and namespaces"),
    ):
        if count > most:
            return (
                f"its pod affinity and topology spread have {count} {what}, and at most {most} "
                "are planned: give the pods that are meant a label in common, and select that"
            )
    return None


def _terms(
    affinity: PodAffinity | None, labels: Mapping[str, str], namespace: str
) -> tuple[tuple[PodTerm, ...], tuple[PodTerm, ...]]:
    """Return the terms that name their namespaces, and those that select some by labels."""
    required = affinity.required if affinity else ()
    terms = [_term(one, labels, namespace) for one in required]
    named = tuple(term for term in terms if term.pods.by_labels is None)
    return named, tuple(term for term in terms if term.pods.by_labels is not None)


def _prefers(affinity: PodAffinity | None) -> bool:
    return bool(affinity and affinity.preferred_during_scheduling_ignored_during_execution)


def _term(term: PodAffinityTerm, labels: Mapping[str, str], namespace: str) -> PodTerm:
    """Return a term as a value."""
    namespaces: frozenset[str] | None = frozenset(term.namespaces or ())
    selector, by_labels = term.namespace_selector, None
    if selector is not None:
        named = _named(selector)
        if named is None:
            by_labels = label_match(selector, {})
        else:
            namespaces = namespaces | named if namespaces is not None and named else None
    elif not namespaces:
        namespaces = frozenset((namespace,))
    keys, mismatched = term.match_label_keys or (), term.mismatch_label_keys or ()
    match = label_match(term.label_selector, labels, keys, mismatched)
    return PodTerm(Selected(namespaces, match, by_labels), term.topology_key)


def _named(selector: LabelSelector) -> frozenset[str] | None:
    """Return the namespaces that a selector names; empty: it selects all; None: by other labels."""
    match = label_match(selector, {})
    if match.is_everything:
        return frozenset()
    if match.is_nothing or any(
        one.key != NAMESPACE_NAME or one.operator != "In" for one in match.conditions
    ):
        return None
    first, *others = (one.values for one in match.conditions)
    # No namespace has an empty name: of none that is named in common, no pod is selected.
    return first.intersection(*others) or frozenset(("",))


def _constraint(
    one: TopologySpreadConstraint, labels: Mapping[str, str], namespace: str
) -> SpreadConstraint:
    selector = label_match(one.label_selector, labels, one.match_label_keys or ())
    return SpreadConstraint(
        Selected(frozenset((namespace,)), selector),
        one.topology_key,
        min(one.max_skew, _SKEW_MAX),
        1 if one.min_domains is None else one.min_domains,
        honors_affinity=one.node_affinity_policy != "Ignore",
        honors_taints=one.node_taints_policy == "Honor",
    )


def _values(selector: LabelSelector | None) -> int:
    expressions = (selector.match_expressions or ()) if selector else ()
    named = len(selector.match_labels or ()) if selector else 0
    return named + sum(1 + len(one.values or ()) for one in expressions)


def _sizes(lists: Iterable[list[str] | None]) -> int:
    return sum(len(one or ()) for one in lists)


def _values_of_term(term: PodAffinityTerm) -> int:
    lists = term.namespaces, term.match_label_keys, term.mismatch_label_keys
    return _values(term.label_selector) + _values(term.namespace_selector) + _sizes(lists)


def _values_of_constraint(one: TopologySpreadConstraint) -> int:
    return _values(one.label_selector) + _sizes((one.match_label_keys,))
