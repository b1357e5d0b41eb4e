"""How much is `"50000m"`: Kubernetes quantities, exactly.

Source: Kubernetes API reference, `Quantity` (apimachinery `pkg/api/resource/quantity.go`). There a
value is rounded up to 10⁻⁹ and capped at 2⁶³ - 1; here it stays exact, since every limit on it that
Linkwise knows is far from both.
"""

import re
from fractions import Fraction
from functools import lru_cache

from cluster.pod import Amount

MAX_LENGTH = 64
"""Longest text that is read [characters]; quantities of real manifests have about ten."""
MAX_EXPONENT = 64
"""Largest power of ten that is read; beyond it a few characters would make numbers of any size."""

_MULTIPLIERS = {
    "": Fraction(1),
    "n": Fraction(1, 10**9),
    "u": Fraction(1, 10**6),
    "m": Fraction(1, 1000),
    **{suffix: Fraction(1000**power) for power, suffix in enumerate("kMGTPE", 1)},
    **{f"{letter}i": Fraction(1024**power) for power, letter in enumerate("KMGTPE", 1)},
}
_QUANTITY = re.compile(
    r"(?P<number>[+-]?(?:[0-9]+(?:\.[0-9]*)?|\.[0-9]+))"
    r"(?:[eE](?P<exponent>[+-]?[0-9]+)|(?P<suffix>[KMGTPE]i|[numkMGTPE])?)"
)
_BOUND = 10**MAX_EXPONENT


class QuantityError(ValueError):
    """An amount is no Kubernetes quantity; the message says what one looks like."""


def parse_quantity(value: Amount) -> Fraction:
    """Return the exact value of a quantity: a text, or a bare JSON number.

    Raises:
        QuantityError: It is no quantity, or one beyond `MAX_LENGTH` and `MAX_EXPONENT`.

    >>> parse_quantity("1.5Ki"), parse_quantity("5E"), parse_quantity("5E3")
    (Fraction(1536, 1), Fraction(5000000000000000000, 1), Fraction(5000, 1))
    """
    number, multiplier = split_quantity(value)
    return number * multiplier


def split_quantity(value: Amount) -> tuple[Fraction, Fraction]:
    """Return the number of a quantity as written, and what its suffix or exponent multiplies by.

    Raises:
        QuantityError: As `parse_quantity`.

    >>> split_quantity("8Gi")
    (Fraction(8, 1), Fraction(1073741824, 1))
    """
    if isinstance(value, bool):
        raise QuantityError("true and false are no quantities; write a number")
    if isinstance(value, int):
        if not -_BOUND < value < _BOUND:
            raise QuantityError(f"the number is beyond 10^{MAX_EXPONENT}")
        return Fraction(value), Fraction(1)
    return _split_text(value if isinstance(value, str) else repr(value))


def whole(value: Amount) -> int | None:
    """Return a quantity as a whole number; None when it has a fraction.

    Raises:
        QuantityError: As `parse_quantity`.
    """
    exact = parse_quantity(value)
    return exact.numerator if exact.denominator == 1 else None


@lru_cache(maxsize=4096)
def is_zero(value: Amount) -> bool:
    """Tell whether an amount asks for nothing; one that cannot be read may ask for something."""
    try:
        return not parse_quantity(value)
    except QuantityError:
        return False


def count(text: str) -> int | None:
    """Return a text of one to nine digits as a number; None for any other.

    Longer ones count nothing here, and a text may be long enough to be slow to read, or to keep.
    """
    return _digits(text) if len(text) < 10 else None


@lru_cache(maxsize=4096)
def _digits(text: str) -> int | None:
    return int(text) if text.isascii() and text.isdigit() else None


def _split_text(text: str) -> tuple[Fraction, Fraction]:
    if len(text) > MAX_LENGTH:
        raise QuantityError(f"a quantity has at most {MAX_LENGTH} characters")
    match = _QUANTITY.fullmatch(text)
    if match is None:
        raise QuantityError(
            f"{text!r} is no quantity: a number, perhaps with one of the suffixes "
            "n u m k M G T P E Ki Mi Gi Ti Pi Ei or an exponent such as e3"
        )
    number = Fraction(match["number"])
    if match["exponent"] is None:
        return number, _MULTIPLIERS[match["suffix"] or ""]
    exponent = int(match["exponent"])
    if abs(exponent) > MAX_EXPONENT:
        raise QuantityError(f"the exponent of {text!r} is beyond {MAX_EXPONENT}")
    return number, Fraction(10) ** exponent
