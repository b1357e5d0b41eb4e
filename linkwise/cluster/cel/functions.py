"""The functions of expressions, by name; those of a value have a dot before it."""

import re
import string
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from linkwise.cluster.cel.regex import Regex, RegexError, read_regex
from linkwise.cluster.cel.values import Quantity, Value, Version, read_version
from linkwise.cluster.objects.quantity import parse_quantity

_REGEX_MAX = 256
"""Longest regular expression [characters]."""
_ATTRIBUTE_MAX = 64
"""Longest text of an attribute [characters]; a regular expression costs its length times this."""
_QUANTITY = re.compile(r"[0-9]{1,15}(\.[0-9]{1,3})?([kMGTPE]|[KMGTPE]i)?")
"""Amounts that Kubernetes neither rounds nor limits."""
_LOWER = str.maketrans(string.ascii_uppercase, string.ascii_lowercase)
_UPPER = str.maketrans(string.ascii_lowercase, string.ascii_uppercase)


@dataclass(frozen=True, slots=True)
class Function:
    """A function."""

    arguments: int
    """Their number, with the receiver."""
    call: Callable[..., Value | None] | None = None
    """Returns its value, or None for arguments of other types. There is no call of a function whose
    only argument is read with the expression."""
    reads: Callable[[str], Quantity | Version | Regex | str] | None = None
    """Returns the last argument, a constant text, as the value that it stands for, or what is wrong
    with it."""


def _read_quantity(text: str) -> Quantity | str:
    is_amount = _QUANTITY.fullmatch(text)
    return (
        Quantity(parse_quantity(text)) if is_amount else f"{text[:40]!r} is no amount such as 40Gi"
    )


def _read_version(text: str) -> Version | str:
    return read_version(text) or f"{text[:40]!r} is no version such as 1.2.3"


def _read_regex(text: str) -> Regex | str:
    if len(text) > _REGEX_MAX:
        return f"the regular expression has more than {_REGEX_MAX} characters"
    try:
        return read_regex(text)
    except RegexError as error:
        return str(error)


def _on(*types: type, call: Callable[..., Value]) -> Callable[..., Value | None]:
    """Return a function for arguments of exactly these types; None for others."""

    def checked(*arguments: Value | Regex) -> Value | None:
        return call(*arguments) if tuple(map(type, arguments)) == types else None

    return checked


def _on_texts(call: Callable[[str, str], bool]) -> Callable[..., Value | None]:
    return _on(str, str, call=call)


def _on_amounts(call: Callable[..., Value]) -> Callable[..., Value | None]:
    """Return a function for two amounts, or two versions."""

    def checked(left: Value, right: Value) -> Value | None:
        if isinstance(left, Version) and isinstance(right, Version):
            return call(left.precedence, right.precedence)
        is_defined = isinstance(left, Quantity) and isinstance(right, Quantity)
        return call(left, right) if is_defined else None

    return checked


def _matches(text: Value, regex: Regex) -> bool | None:
    if not isinstance(text, str) or len(text) > _ATTRIBUTE_MAX:
        return None
    return regex.occurs_in(text)


FUNCTIONS: Mapping[str, Function] = {
    "quantity": Function(1, reads=_read_quantity),
    "semver": Function(1, reads=_read_version),
    ".matches": Function(2, _matches, reads=_read_regex),
    ".startsWith": Function(2, _on_texts(str.startswith)),
    ".endsWith": Function(2, _on_texts(str.endswith)),
    ".contains": Function(2, _on_texts(lambda text, part: part in text)),
    ".lowerAscii": Function(1, _on(str, call=lambda text: text.translate(_LOWER))),
    ".upperAscii": Function(1, _on(str, call=lambda text: text.translate(_UPPER))),
    ".compareTo": Function(2, _on_amounts(lambda left, right: (left > right) - (left < right))),
    ".isGreaterThan": Function(2, _on_amounts(lambda left, right: left > right)),
    ".isLessThan": Function(2, _on_amounts(lambda left, right: left < right)),
    ".major": Function(1, _on(Version, call=lambda version: version.major)),
    ".minor": Function(1, _on(Version, call=lambda version: version.minor)),
    ".patch": Function(1, _on(Version, call=lambda version: version.patch)),
}
