"""Label selectors as values: equal ones are one key of a column, and they cache their hash."""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import NamedTuple

from linkwise.cluster.objects.affinity import LabelSelector
from linkwise.cluster.objects.selector import LABEL_OPERATORS


class LabelRequirement(NamedTuple):
    """One requirement; In and NotIn have values, the other operators none."""

    key: str
    operator: str
    values: frozenset[str] = frozenset()

    def holds(self, labels: Mapping[str, str]) -> bool:
        """Return whether the labels satisfy it."""
        value = labels.get(self.key)
        match self.operator:
            case "In":
                return value is not None and value in self.values
            case "NotIn":
                return value is None or value not in self.values
            case "Exists":
                return value is not None
            case _:
                return value is None


@dataclass(frozen=True)
class LabelMatch:
    """A label selector: all requirements hold. Without any it matches everything."""

    requirements: frozenset[LabelRequirement] = frozenset()
    is_nothing: bool = False
    """It matches no pod: a selector that is missing, or that Kubernetes refuses."""
    _hash: int = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "_hash", hash((self.requirements, self.is_nothing)))

    def __hash__(self) -> int:
        """Return the hash, which is computed once."""
        return self._hash

    @cached_property
    def keys(self) -> frozenset[str]:
        """The keys of the labels that it reads."""
        return frozenset(one.key for one in self.requirements)

    @property
    def is_everything(self) -> bool:
        """It matches every pod."""
        return not (self.requirements or self.is_nothing)

    def matches(self, labels: Mapping[str, str]) -> bool:
        """Return whether it matches a pod with these labels."""
        return not self.is_nothing and all(one.holds(labels) for one in self.requirements)


NOTHING = LabelMatch(is_nothing=True)


def label_match(
    selector: LabelSelector | None,
    labels: Mapping[str, str],
    keys: Iterable[str] = (),
    mismatched: Iterable[str] = (),
) -> LabelMatch:
    """Return a selector as a value.

    The API server adds the last two to the selector of an affinity as well; twice is the same.

    Args:
        selector: The selector of a pod's rule.
        labels: The labels of this pod.
        keys: Labels whose values have to be those of this pod (`matchLabelKeys`).
        mismatched: Labels whose values must be others (`mismatchLabelKeys`).
    """
    if selector is None:
        return NOTHING
    requirements = set(_requirements(selector))
    if any(one.operator not in LABEL_OPERATORS for one in requirements):
        return NOTHING
    for operator, names in (("In", keys), ("NotIn", mismatched)):
        requirements |= {
            LabelRequirement(key, operator, frozenset((labels[key],)))
            for key in names
            if key in labels
        }
    return LabelMatch(frozenset(requirements))


def _requirements(selector: LabelSelector) -> Iterator[LabelRequirement]:
    for key, value in (selector.match_labels or {}).items():
        yield LabelRequirement(key, "In", frozenset((value,)))
    for one in selector.match_expressions or ():
        yield LabelRequirement(one.key, one.operator, frozenset(one.values or ()))
