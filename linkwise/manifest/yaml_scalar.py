"""Resolve unquoted YAML scalars as kubectl does: YAML 1.1 without dates and base 60."""

import math
import re

_WORDS: dict[str, bool | None] = {
    **dict.fromkeys(("", "~", "null", "Null", "NULL")),
    **dict.fromkeys(("y", "Y", "yes", "Yes", "YES", "on", "On", "ON"), True),
    **dict.fromkeys(("true", "True", "TRUE"), True),
    **dict.fromkeys(("n", "N", "no", "No", "NO", "off", "Off", "OFF"), False),
    **dict.fromkeys(("false", "False", "FALSE"), False),
}
_NUMBER_START = frozenset("+-.0123456789")
_INTEGER = re.compile(r"([-+]?)(?:0[xX]([0-9a-fA-F]+)|0[bB]([01]+)|0[oO]?([0-7]+)|(0|[1-9]\d*))")
_BASES = (16, 2, 8, 10)
_FLOAT = re.compile(r"[-+]?(\.\d+|\d+(\.\d*)?)([eE][-+]?\d+)?")
_MAX_DIGITS = 400
"""Longer integers are treated as floats: they exceed the range and stay text."""


def plain_value(word: str) -> str | int | float | bool | None:
    """Return the value of an unquoted scalar.

    Numbers beyond the range stay text, as do infinities and NaN, which JSON cannot represent.

    Source: kubernetes-sigs/yaml, `goyaml.v2/resolve.go` at 742f5e6.

    >>> plain_value("5e1"), plain_value("010"), plain_value("2026-01-01"), plain_value("on")
    (50.0, 8, '2026-01-01', True)
    """
    if word in _WORDS:
        return _WORDS[word]
    if word[0] not in _NUMBER_START or not word.isascii():
        return word
    digits = word.replace("_", "") if word[0] != "." else word
    integer = _INTEGER.fullmatch(digits)
    if integer and len(digits) <= _MAX_DIGITS:
        sign, *by_base = integer.groups()
        base, found = next((b, d) for b, d in zip(_BASES, by_base, strict=True) if d is not None)
        return int(sign + found, base)
    if _FLOAT.fullmatch(digits):
        number = float(digits)
        return word if math.isinf(number) else number
    return word
