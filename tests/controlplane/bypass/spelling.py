"""JSON as hostile clients write it: numbers in every spelling, keys more than once."""

import json
from dataclasses import dataclass
from random import Random

_TWINS = ("{}", "[]", '"0"', "null", '"void"', '"x"', "8")


@dataclass(frozen=True, slots=True)
class Literal:
    """Text that is written as it is, such as a number that Python would write differently."""

    text: str


def quantity(count: int, random: Random) -> object:
    """Return an amount that an API server may read as `count`."""
    spellings = (
        *(count, str(count), f"{count * 1000}m", f"{count}e0", f"{count}E0", f"{count}.000"),
        *(f"+{count}", f"{count * 10**6}u", f"{count * 10**9}n", f"{count / 1000}k", f"0{count}"),
        *(Literal(f"{count}.0"), Literal(f"{count}e0"), Literal(f"{count * 10}E-1")),
        # These are other amounts, or none.
        *(f" {count}", f"{count}Ki", f"-{count}", f"{count}n", f"0x{count}", "1e-1", True, None),
        *("1" * 70, "9e99", f"{count}e999999", "", [count], {"a": count}, "\uff11", "0.5"),
    )
    return random.choice(spellings[:14] if random.random() < 0.8 else spellings)


def encode(value: object, random: Random, doubled: float) -> str:
    """Return a value as JSON.

    Args:
        value: Maps, lists, texts, numbers and literals.
        random: What decides.
        doubled: The probability with which a key of a map is written a second time.
    """
    if isinstance(value, Literal):
        return value.text
    if isinstance(value, dict):
        pairs = []
        for key, item in value.items():
            pair = f"{json.dumps(key)}:{encode(item, random, doubled)}"
            pairs.append(pair)
            if random.random() < doubled:
                twin = f"{json.dumps(key)}:{random.choice(_TWINS)}"
                pairs.insert(random.randrange(len(pairs) + 1), twin)
        return "{" + ",".join(pairs) + "}"
    if isinstance(value, list):
        return "[" + ",".join(encode(item, random, doubled) for item in value) + "]"
    return json.dumps(value)
