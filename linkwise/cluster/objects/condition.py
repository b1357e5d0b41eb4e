"""Requirements of label selectors, prepared for fast matching."""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass

from linkwise.cluster.objects.affinity import LabelSelector


@dataclass(frozen=True, slots=True)
class Condition:
    """A requirement on one label; all conditions of a selector must hold."""

    key: str
    operator: str
    """In, NotIn, Exists or DoesNotExist."""
    values: frozenset[str]
    text: str = ""
    """The requirement as people write it, such as `team In (a, b)`; empty: nobody reads it."""

    def holds(self, value: str | None) -> bool:
        """Return whether it holds for the value of the label; None for an absent label."""
        if self.operator == "In":
            return value in self.values
        if self.operator == "NotIn":
            return value not in self.values
        return (value is None) == (self.operator == "DoesNotExist")


def conditions_of(selector: LabelSelector | None) -> tuple[Condition, ...]:
    """Return the conditions of a selector, those of `matchLabels` first."""
    if selector is None:
        return ()
    equal = (
        Condition(key, "In", frozenset((value,)), f"{key}={value}")
        for key, value in (selector.match_labels or {}).items()
    )
    return (*equal, *_expressions(selector))


def _expressions(selector: LabelSelector) -> Iterator[Condition]:
    for requirement in selector.match_expressions or ():
        key, operator, values = requirement.key, requirement.operator, requirement.values or ()
        text = f"{key} {operator}" + (f" ({', '.join(values)})" if values else "")
        yield Condition(key, operator, frozenset(values), text)


def first_unmet(conditions: Iterable[Condition], labels: Mapping[str, str]) -> Condition | None:
    """Return the first condition that labels do not meet; None if they meet all."""
    for condition in conditions:
        if not condition.holds(labels.get(condition.key)):
            return condition
    return None


def can_hold(conditions: Iterable[Condition]) -> bool:
    """Return whether some set of labels meets all conditions.

    Exact, since conditions on different labels do not depend on each other.
    """
    by_key: dict[str, list[Condition]] = {}
    for condition in conditions:
        by_key.setdefault(condition.key, []).append(condition)
    return all(_value_exists(same) for same in by_key.values())


def _value_exists(conditions: list[Condition]) -> bool:
    """Return whether any value, or the absence of the label, meets conditions on it."""
    if all(one.holds(None) for one in conditions):
        return True
    if any(one.operator == "DoesNotExist" for one in conditions):
        return False
    wanted = [one.values for one in conditions if one.operator == "In"]
    if not wanted:
        # Conditions name finitely many values.
        return True
    refused = {value for one in conditions if one.operator == "NotIn" for value in one.values}
    return not frozenset.intersection(*wanted) <= refused
