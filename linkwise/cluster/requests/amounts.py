"""Validate a GPU amount of a container, and suggest a valid one."""

import re
from collections.abc import Callable
from fractions import Fraction
from functools import lru_cache
from math import ceil

from linkwise.cluster.finding import Code, Finding, Severity
from linkwise.cluster.keys import GPU_CORE, GPU_MEM
from linkwise.cluster.objects.container import Amount
from linkwise.cluster.objects.quantity import (
    SHORT,
    QuantityError,
    parse_quantity,
    split_quantity,
    whole,
)

CORE_STEP = 5
"""Compute is allocated in steps of this [% of one card]."""
CORE_MAX = 100
"""Compute of one card [%]."""
MEMORY_MAX = 4096
"""No card has more memory [GiB]; a larger amount was meant in another unit."""

MEMORY_UNUSUAL = 512
"""No card of today has as much memory [GiB]; many people write MiB."""
_PERCENT = re.compile(r"\s*([0-9]{1,6})\s*%\s*")

_GIB_OF_SUFFIX = {
    Fraction(multiplier): Fraction(gib)
    for power, gib in ((1, Fraction(1, 1 << 20)), (2, Fraction(1, 1 << 10)), (3, 1), (4, 1 << 10))
    for multiplier in (1000**power, 1024**power)
}
"""A suffix of bytes in GiB. People write G for Gi."""


def sound_amount(resource: str, value: Amount, cards: int | None) -> int | None:
    """Return a valid amount; None if `check_amount` may have a finding.

    Also None for a very long text, which is not cached.

    Args:
        resource: As in `check_amount`.
        value: As in `check_amount`.
        cards: As in `check_amount`.
    """
    is_long = isinstance(value, str) and len(value) > SHORT
    return None if is_long else _sound_amount(resource, value, cards)


# A cluster has few different amounts. Typed, since 1, 1.0 and true are equal keys.
@lru_cache(maxsize=4096, typed=True)
def _sound_amount(resource: str, value: Amount, cards: int | None) -> int | None:
    amount, finding = check_amount(resource, value, "", cards)
    return amount if finding is None else None


def check_amount(
    resource: str, value: Amount, field: str, cards: int | None
) -> tuple[int, Finding | None]:
    """Return an amount and its finding.

    Args:
        resource: One of `keys.RESOURCES`.
        value: The amount as written.
        field: Its path in the pod.
        cards: Number of cards of a share; None if unreadable: then no upper bound applies.

    Returns:
        The amount as a whole number, 0 if unreadable, and the finding or None.
    """
    try:
        amount = whole(value)
    except QuantityError as problem:
        return 0, unreadable(value, field, problem, resource)
    rule = _RULES.get(resource, _gpu_problem)
    return amount or 0, rule(amount, value, field, cards)


def unreadable(value: Amount, field: str, problem: QuantityError, resource: str) -> Finding:
    """Return the finding for an amount that is not a quantity."""
    fix = "write a plain whole number, such as 10"
    if isinstance(value, str) and (percent := _PERCENT.fullmatch(value)):
        fix = _without_percent(int(percent[1]), resource)
    return Finding(Code.QUANTITY, Severity.ERROR, field, value, str(problem), fix)


def _without_percent(number: int, resource: str) -> str:
    if resource == GPU_MEM:
        return f"write GiB; a percentage of a card is asked for by {GPU_CORE}"
    if resource != GPU_CORE:
        return f"write a whole number of GPUs, or ask for a part of one by {GPU_MEM}"
    is_valid = 0 < number <= CORE_MAX and number % CORE_STEP == 0
    choices = [number] if is_valid else nearest_multiples(number, CORE_STEP, CORE_MAX)
    return f"write {either(choices)}, without the percent sign"


def nearest_multiples(amount: Fraction | int, step: int, highest: int | None = None) -> list[int]:
    """Return the multiples of a step next to an amount, below and above, from one step on.

    >>> nearest_multiples(22, 5, 100), nearest_multiples(0, 5, 100), nearest_multiples(250, 5, 100)
    ([20, 25], [5], [100])
    """
    below = amount // step * step
    bound = max(below + step, step) if highest is None else highest
    return sorted({min(max(near, step), bound) for near in (below, below + step)})


def either(choices: list[int]) -> str:
    """Return choices for a person, such as `20 or 25`."""
    return " or ".join(map(str, choices))


def _core_problem(
    amount: int | None, value: Amount, field: str, cards: int | None
) -> Finding | None:
    step = CORE_STEP * (cards or 1)
    highest = CORE_MAX * cards if cards else None
    if amount and amount > 0 and amount % step == 0 and (highest is None or amount <= highest):
        return None
    allowed = f"a multiple of {step} from {step}" + (f" to {highest}" if highest else " on")
    of = f"the total over {cards} cards" if cards and cards > 1 else "percent of one card"
    fix = f"write {either(nearest_multiples(parse_quantity(value), step, highest))}"
    return Finding(
        Code.CORE_STEP,
        Severity.ERROR,
        field,
        value,
        f"{value} is not allowed: compute is {allowed}, {of}",
        fix if amount != 0 else f"{fix}, or remove the resource",
    )


def _memory_problem(
    amount: int | None, value: Amount, field: str, cards: int | None
) -> Finding | None:
    if amount is None or amount < 1:
        return Finding(
            Code.MEMORY_WHOLE,
            Severity.ERROR,
            field,
            value,
            f"{value} is not allowed: GPU memory is a whole number of GiB, at least 1",
            f"write {max(1, ceil(parse_quantity(value)))}",
        )
    if cards is None or amount < MEMORY_UNUSUAL * cards:
        return None
    if amount <= MEMORY_MAX * cards:
        return _unusual_memory(amount, value, field, cards)
    on_cards = "a card" if cards == 1 else f"{cards} cards"
    return Finding(
        Code.MEMORY_UNITS,
        Severity.ERROR,
        field,
        value,
        f"{value} is {amount} GiB, more than {on_cards} can have ({MEMORY_MAX * cards}): the unit "
        "is GiB already, without a suffix",
        f"write {_gib_meant(value, MEMORY_MAX * cards)}",
    )


def _unusual_memory(amount: int, value: Amount, field: str, cards: int) -> Finding:
    meant = cards * ceil(Fraction(amount, cards << 10))
    return Finding(
        Code.MEMORY_UNITS,
        Severity.WARNING,
        field,
        value,
        f"{value} is {amount // cards} GiB of a card, more than any has today: did you mean MiB?",
        f"write {meant} for {amount} MiB: the unit is GiB",
    )


def _gib_meant(value: Amount, highest: int) -> int:
    """Guess the intended GiB of an amount in another unit (with a suffix, MiB, or bytes)."""
    number, multiplier = split_quantity(value)
    exact = number * multiplier
    if multiplier in _GIB_OF_SUFFIX:
        guesses = [number * _GIB_OF_SUFFIX[multiplier], number]
    else:
        guesses = [exact / (1 << 10), exact / (1 << 30), number]
    return next((ceil(guess) for guess in guesses if 1 <= guess <= highest), 1)


def _gpu_problem(
    amount: int | None, value: Amount, field: str, _cards: int | None
) -> Finding | None:
    if amount is not None and amount >= 1:
        return None
    fix = f"write {max(1, ceil(parse_quantity(value)))}"
    if amount is None:
        fix += f", or ask for a part of a GPU by {GPU_MEM}"
    else:
        fix += ", or remove the resource"
    return Finding(
        Code.GPU_WHOLE,
        Severity.ERROR,
        field,
        value,
        f"{value} is not allowed: GPUs are asked for in whole numbers, at least 1",
        fix,
    )


_RULES: dict[str, Callable[[int | None, Amount, str, int | None], Finding | None]] = {
    GPU_CORE: _core_problem,
    GPU_MEM: _memory_problem,
}
