"""Select the short form of `make e2e` or the long one of `make soak` for chaos and load."""

import os

import pytest

RUNS = int(os.environ.get("RUNS", "0"))
"""How often a soak runs the tests of double booking; 0: this is no soak."""

long = pytest.mark.skipif(not RUNS, reason="takes more than a minute: make soak runs it")
"""Marks a test that waits for a pause of a minute, which unit tests prove on a shorter one."""


def often(short: int, long: int) -> int:
    """Return the first number, or the second one in a soak."""
    return long if RUNS else short
