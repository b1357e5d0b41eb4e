"""Parse Kubernetes quantities such as `"50000m"`.

A quantity is exact up to `MAX_DIGITS` digits before and after the point. Beyond that it is
rounded away from zero: no machine has such amounts, and a few characters (`1e1000000`) would
otherwise create numbers of any size.

Source: Kubernetes API reference, `Quantity` (apimachinery `pkg/api/resource/quantity.go`). There a
value is rounded up to 10⁻⁹ and capped at 2⁶³ - 1.
"""

import re
from fractions import Fraction
from functools import lru_cache

from linkwise.cluster.finding import quoted
from linkwise.cluster.objects.container import Amount

MAX_DIGITS = 64
"""Maximum digits before and after the point; real manifests have about ten."""
SHORT = 64
"""Maximum length of an amount that is cached [characters]."""

_MULTIPLIERS = {
    "": Fraction(1),
    "n": Fraction(1, 10**9),
    "u": Fraction(1, 10**6),
    "m": Fraction(1, 1000),
    **{suffix: Fraction(1000**power) for power, suffix in enumerate("kMGTPE", 1)},
    **{f"{letter}i": Fraction(1024**power) for power, letter in enumerate("KMGTPE", 1)},
}
_QUANTITY = re.compile(
    r"(?P<sign>[+-]?)(?=\.?[0-9])(?P<before>[0-9]*)(?:\.(?P<after>[0-9]*))?"
    r"(?:[eE](?P<exponent>[+-]?[0-9]+)|(?P<suffix>[KMGTPE]i|[numkMGTPE])?)"
)
_BOUND = 10**MAX_DIGITS
_LEAST = Fraction(1, _BOUND)


class QuantityError(ValueError):
    """An amount is not a Kubernetes quantity; the message describes the format."""


def parse_quantity(value: Amount) -> Fraction:
    """Return the value of a quantity (text or JSON number), exact up to `MAX_DIGITS`.

    Raises:
        QuantityError: It is not a quantity.

    >>> parse_quantity("1.5Ki"), parse_quantity("5E"), parse_quantity("5E3")
    (Fraction(1536, 1), Fraction(5000000000000000000, 1), Fraction(5000, 1))
    """
    number, multiplier = split_quantity(value)
    return number * multiplier


def split_quantity(value: Amount) -> tuple[Fraction, Fraction]:
    """Return the number of a quantity as written, and the multiplier of its suffix or exponent.

    Raises:
        QuantityError: As `parse_quantity`.

    >>> split_quantity("8Gi")
    (Fraction(8, 1), Fraction(1073741824, 1))
    """
    if isinstance(value, bool):
        raise QuantityError("true and false are no quantities; write a number")
    if isinstance(value, int):
        return Fraction(max(-_BOUND, min(value, _BOUND))), Fraction(1)
    text = value if isinstance(value, str) else repr(value)
    return _short(text) if len(text) <= SHORT else _split_text(text)


def whole(value: Amount) -> int | None:
    """Return a quantity as a whole number; None if it has a fraction.

    Raises:
        QuantityError: It is not a quantity, or has more than `MAX_DIGITS` digits.
    """
    exact = parse_quantity(value)
    if not -_BOUND < exact < _BOUND or 0 < abs(exact) <= _LEAST:
        raise QuantityError(f"more than {MAX_DIGITS} digits before or after the point are not read")
    return exact.numerator if exact.denominator == 1 else None


def is_zero(value: Amount) -> bool:
    """Return whether an amount is zero; False if it is unreadable."""
    is_long = isinstance(value, str) and len(value) > SHORT
    return _is_zero.__wrapped__(value) if is_long else _is_zero(value)


@lru_cache(maxsize=4096)
def _is_zero(value: Amount) -> bool:
    try:
        return not parse_quantity(value)
    except QuantityError:
        return False


def count(text: str) -> int | None:
    """Return the number in a text of one to nine digits; None for any other.

    Longer texts are invalid here, and may be slow to parse or large to cache.
    """
    return _digits(text) if len(text) < 10 else None


@lru_cache(maxsize=4096)
def _digits(text: str) -> int | None:
    return int(text) if text.isascii() and text.isdigit() else None


@lru_cache(maxsize=4096)
def _short(text: str) -> tuple[Fraction, Fraction]:
    return _split_text(text)


def _split_text(text: str) -> tuple[Fraction, Fraction]:
    match = _QUANTITY.fullmatch(text)
    if match is None:
        raise QuantityError(
            f"{quoted(text)} is no quantity: a number, perhaps with one of the suffixes "
            "n u m k M G T P E Ki Mi Gi Ti Pi Ei or an exponent such as e3"
        )
    sign, before, after = match["sign"], match["before"], match["after"] or ""
    if match["exponent"] is None:
        return _decimal(sign, before, after, 0), _MULTIPLIERS[match["suffix"] or ""]
    exponent = _exponent(match["exponent"])
    if len(text) <= SHORT and abs(exponent) <= MAX_DIGITS:
        return _decimal(sign, before, after, 0), Fraction(10) ** exponent
    return _decimal(sign, before, after, exponent), Fraction(1)


def _exponent(text: str) -> int:
    """Return an exponent, limited to nine digits."""
    digits = text.lstrip("+-").lstrip("0")[:9] or "0"
    return -int(digits) if text[0] == "-" else int(digits)


def _decimal(sign: str, before: str, after: str, exponent: int) -> Fraction:
    """Return `before.after` times a power of ten, within `MAX_DIGITS` on both sides of the point.

    Cost: linear in the digits.
    """
    digits = (before + after).lstrip("0")
    if not digits:
        return Fraction(0)
    # Number of digits before the point; if negative, of zeros after it.
    magnitude = len(digits) - len(after) + exponent
    kept = magnitude + MAX_DIGITS
    if magnitude > MAX_DIGITS:
        value = Fraction(_BOUND)
    elif kept <= 0:
        value = _LEAST
    else:
        number = int(digits[:kept]) + bool(digits[kept:].strip("0"))
        value = Fraction(number) * Fraction(10) ** (magnitude - min(kept, len(digits)))
    return -value if sign == "-" else value
