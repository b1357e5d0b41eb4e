"""How long tests of chaos and load run: short ones with all others, long ones by `make soak`."""

import os

RUNS = int(os.environ.get("RUNS", "0"))
"""How often the tests of double booking run in a soak; 0 where this is none."""


def often(short: int, long: int) -> int:
    """Return the number that fits: of all tests, or of a soak."""
    return long if RUNS else short
