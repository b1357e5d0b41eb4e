"""One requirement of a label selector, made ready to be judged a thousand times a second."""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass

from cluster.pod import LabelSelector


@dataclass(frozen=True, slots=True)
class Condition:
    """A requirement on one label; a selector's conditions must all hold."""

    key: str
    operator: str
    """In, NotIn, Exists or DoesNotExist."""
    values: frozenset[str]
    text: str
    """The requirement as people write it, such as `team In (a, b)`."""

    def holds(self, value: str | None) -> bool:
        """Tell whether it holds for the label's value, None for an absent label."""
        if self.operator == "In":
            return value in self.values
        if self.operator == "NotIn":
            return value not in self.values
        return (value is None) == (self.operator == "DoesNotExist")


def conditions_of(selector: LabelSelector | None) -> tuple[Condition, ...]:
    """Return a selector's conditions, those of `matchLabels` first; none for an absent one."""
    if selector is None:
        return ()
    equal = (
        Condition(key, "In", frozenset((value,)), f"{key}={value}")
        for key, value in (selector.match_labels or {}).items()
    )
    return (*equal, *_expressions(selector))


def _expressions(selector: LabelSelector) -> Iterator[Condition]:
    for wanted in selector.match_expressions or ():
        values = f" ({', '.join(wanted.values)})" if wanted.values else ""
        text = f"{wanted.key} {wanted.operator}{values}"
        yield Condition(wanted.key, wanted.operator, frozenset(wanted.values or ()), text)


def first_unmet(conditions: tuple[Condition, ...], labels: Mapping[str, str]) -> Condition | None:
    """Return the first condition that labels do not meet; None when they meet all."""
    for condition in conditions:
        if not condition.holds(labels.get(condition.key)):
            return condition
    return None


def can_hold(conditions: Iterable[Condition]) -> bool:
    """Tell whether some set of labels meets all conditions.

    Exact, since conditions on different labels do not depend on each other.
    """
    by_key: dict[str, list[Condition]] = {}
    for condition in conditions:
        by_key.setdefault(condition.key, []).append(condition)
    return all(_value_exists(same) for same in by_key.values())


def _value_exists(conditions: list[Condition]) -> bool:
    """Tell whether absence, a named value or any other value meets conditions on one label."""
    if all(one.holds(None) for one in conditions):
        return True
    if any(one.operator == "DoesNotExist" for one in conditions):
        return False
    wanted = [one.values for one in conditions if one.operator == "In"]
    if not wanted:
        # There are more values than conditions can name.
        return True
    refused = {value for one in conditions if one.operator == "NotIn" for value in one.values}
    return not frozenset.intersection(*wanted) <= refused
