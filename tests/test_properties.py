"""Property tests have so many times the examples that they name, and no coverage."""

import pytest

pytest_plugins = ["pytester"]
PROPERTY = """\
from hypothesis import given, settings
from hypothesis.strategies import integers

seen = []

@settings(max_examples=8, deadline=None, derandomize=True, database=None)
@given(integers())
def test_property(number):
    seen.append(number)

def test_number(request):
    assert len(seen) == {number}
    marks = [item.get_closest_marker("no_cover") for item in request.session.items]
    assert [mark is not None for mark in marks] == [True, False]
"""


@pytest.mark.parametrize(("times", "number"), [("1", 8), ("3", 24), ("0.5", 4)])
def test_examples_are_multiplied(pytester, monkeypatch, times, number):
    monkeypatch.setenv("PYTEST_DISABLE_PLUGIN_AUTOLOAD", "1")
    monkeypatch.delenv("PYTEST_ADDOPTS", raising=False)
    monkeypatch.setattr("support.properties.EXAMPLES", float(times))
    pytester.makepyfile(PROPERTY.replace("{number}", str(number)))

    result = pytester.runpytest_inprocess(
        *("-p", "support.properties", "-p", "_hypothesis_pytestplugin", "-p", "no:cacheprovider"),
        *("-W", "ignore"),
    )

    result.assert_outcomes(passed=2)
