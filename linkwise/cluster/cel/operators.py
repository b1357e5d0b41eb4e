"""The operators of expressions, on values."""

from collections.abc import Callable, Mapping
from operator import ge, gt, le, lt

from linkwise.cluster.cel.values import Failure, Partial, Quantity, Value, Version

_PRIMITIVE = (str, int, bool)


class Aborted(Exception):  # noqa: N818 - the evaluation is, not only a part of it.
    """Kubernetes gives up the whole evaluation, whatever the other operands are.

    cel-go looks values up in a table of the constants of a list, and these cannot be hashed.
    """


def wrong_types(function: str) -> Failure:
    """Return the failure of a function that is not evaluated for its arguments."""
    return Failure(f"{function} is not evaluated for values of these types")


def not_boolean(value: Value | Failure) -> Failure:
    """Return the failure of a condition that has such a value."""
    return value if isinstance(value, Failure) else Failure("a condition is not true or false")


def has_entry(container: Value, key: Value) -> bool | Failure:
    """Return whether a mapping has an entry."""
    if not (isinstance(container, Mapping) and isinstance(key, str)):
        return wrong_types("in")
    if isinstance(container, Partial) and key not in container:
        return Failure(f"it is not known whether the device has {key!r}")
    return key in container


def _contains(item: Value, container: Value) -> bool | Failure:
    if isinstance(container, Mapping):
        return has_entry(container, item)
    if isinstance(item, Quantity | Version):
        raise Aborted
    if type(container) is not tuple or type(item) not in _PRIMITIVE:
        return wrong_types("in")
    return any(_equal(item, one) is True for one in container)


def _equal(left: Value, right: Value) -> bool | Failure:
    """Return whether two values are equal; texts and numbers are equal to none of another type."""
    if isinstance(left, Version) and isinstance(right, Version):
        return left.precedence == right.precedence
    if type(left) is type(right) and isinstance(left, (*_PRIMITIVE, Quantity)):
        return left == right
    is_other = type(left) in _PRIMITIVE and not isinstance(right, Mapping)
    return False if is_other else wrong_types("==")


def _unequal(left: Value, right: Value) -> bool | Failure:
    equal = _equal(left, right)
    return equal if isinstance(equal, Failure) else not equal


def _negated(value: Value) -> bool | Failure:
    return not value if isinstance(value, bool) else not_boolean(value)


def _ordered(
    sign: str, compare: Callable[[str | int, str | int], bool]
) -> Callable[[Value, Value], bool | Failure]:
    def ordered(left: Value, right: Value) -> bool | Failure:
        if type(left) is type(right) and isinstance(left, str | int) and not isinstance(left, bool):
            return compare(left, right)  # type: ignore[arg-type]  # It has the type of `left`.
        return wrong_types(sign)

    return ordered


OPERATORS: Mapping[str, Callable[..., Value | Failure]] = {
    "list": lambda *items: items,
    "!": _negated,
    "==": _equal,
    "!=": _unequal,
    "in": _contains,
    **{sign: _ordered(sign, fn) for sign, fn in (("<", lt), ("<=", le), (">", gt), (">=", ge))},
}
