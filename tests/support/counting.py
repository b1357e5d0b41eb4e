"""Work counted in calls of functions, Python's and C's, which no load of the machine changes."""

import sys
from collections.abc import Callable


def calls(work: Callable[[], object]) -> int:
    """Return the number of function calls of some work."""
    count = 0

    def note(_frame: object, event: str, _arg: object) -> None:
        nonlocal count
        count += event in ("call", "c_call")

    sys.setprofile(note)
    try:
        work()
    finally:
        sys.setprofile(None)
    return count
