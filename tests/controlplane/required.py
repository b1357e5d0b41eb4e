"""Skip tests whose programs are missing and cannot be built here."""

from collections.abc import Callable
from typing import TypeVar

import pytest
from controlplane.binaries import MissingError, Say

T = TypeVar("T")


def required(build: Callable[[Say], T]) -> T:
    """Return programs; skip the test where they are missing and there is no Go to build them."""
    try:
        return build(print)
    except MissingError as missing:
        pytest.skip(str(missing))
