"""Label selectors as values: equal ones are one key of a column, and they cache their hash."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property

from linkwise.cluster.objects.affinity import LabelSelector
from linkwise.cluster.objects.condition import Condition, conditions_of, first_unmet
from linkwise.cluster.objects.selector import LABEL_OPERATORS


@dataclass(frozen=True)
class LabelMatch:
    """A label selector: all conditions hold. Without any it matches everything."""

    conditions: frozenset[Condition] = frozenset()
    is_nothing: bool = False
    """It matches no pod: a selector that is missing, or that Kubernetes refuses."""
    _hash: int = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "_hash", hash((self.conditions, self.is_nothing)))

    def __hash__(self) -> int:
        """Return the hash, which is computed once."""
        return self._hash

    @cached_property
    def keys(self) -> frozenset[str]:
        """The keys of the labels that it reads."""
        return frozenset(one.key for one in self.conditions)

    @property
    def is_everything(self) -> bool:
        """It matches every pod."""
        return not (self.conditions or self.is_nothing)

    def matches(self, labels: Mapping[str, str]) -> bool:
        """Return whether it matches a pod with these labels."""
        return not self.is_nothing and first_unmet(self.conditions, labels) is None


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
    # Equal conditions are one, however people write them.
    conditions = {replace(one, text="") for one in conditions_of(selector)}
    if any(one.operator not in LABEL_OPERATORS for one in conditions):
        return NOTHING
    for operator, names in (("In", keys), ("NotIn", mismatched)):
        conditions |= {
            Condition(key, operator, frozenset((labels[key],))) for key in names if key in labels
        }
    return LabelMatch(frozenset(conditions))
