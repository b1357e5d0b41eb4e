"""Set the number of examples of property tests, and turn off coverage in them.

`make test` tries half of what the tests name, `make properties` many times as many. Tracing more
than doubles the time of a property, which repeats the same lines.
"""

import os

import pytest
from hypothesis import settings

EXAMPLES = float(os.environ.get("EXAMPLES", "1"))
"""Times those that the tests name."""


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    scaled = set()
    for item in items:
        if not isinstance(item, pytest.Function) or not item.get_closest_marker("hypothesis"):
            continue
        item.add_marker("no_cover")
        test = item.function
        # Hypothesis has no public way to multiply what a test names.
        named = getattr(test, "_hypothesis_internal_use_settings", None)
        if EXAMPLES != 1 and named and test not in scaled:
            scaled.add(test)
            number = max(1, round(EXAMPLES * named.max_examples))
            test._hypothesis_internal_use_settings = settings(named, max_examples=number)
