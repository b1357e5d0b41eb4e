"""Equal devices are evaluated once, and different ones are not taken for equal."""

import pytest

from linkwise.cluster.cel import selection
from linkwise.cluster.cel.selection import selects
from linkwise.cluster.cel.values import DeviceFacts, Failure, read_version

DRIVER = "gpu.nvidia.com"
ATTRIBUTES = f"device.attributes['{DRIVER}']"


def a_device(**attributes):
    return DeviceFacts(DRIVER, tuple(attributes.items()))


def test_devices_that_differ_in_what_is_not_read_are_evaluated_once():
    selection._selects.cache_clear()
    for i in range(50):
        assert selects((f"{ATTRIBUTES}.product == 'a'",), a_device(product="a", uuid=f"GPU-{i}"))

    assert selection._selects.cache_info().misses == 1


@pytest.mark.parametrize(
    ("expression", "first", "second"),
    [
        (f"{ATTRIBUTES}.x == 1", {"x": 1}, {"x": True}),
        (f"has({ATTRIBUTES}.x)", {"x": 1}, {"y": 1}),
        (f"'x' in {ATTRIBUTES}", {"x": 1}, {"y": 1}),
        ("'other' in device.attributes", {"other/x": 1}, {"y": 1}),
        ("cel.bind(all, device.attributes, 'other' in all)", None, {"y": 1}),
        ("device.attributes['other'].x == 1", {"other/x": 1, "x": 2}, {"other/x": 2, "x": 1}),
    ],
)
def test_devices_that_differ_in_what_is_read_are_evaluated_each(expression, first, second):
    if first is not None:
        assert selects((expression,), a_device(**first)) is True
    assert selects((expression,), a_device(**second)) is not True


def test_a_value_of_an_unknown_kind_fails_although_it_is_not_read():
    assert isinstance(selects(("true",), a_device(x=None)), Failure)


@pytest.mark.parametrize("domain", ["attributes", "capacity"])
def test_a_domain_that_is_absent_is_not_guessed(domain):
    # Kubernetes says that it is there.
    assert isinstance(selects((f"!has(device.{domain}.other)",), a_device(x=1)), Failure)


def test_a_regular_expression_is_matched_with_no_text_longer_than_an_attribute():
    assert selects((f"'{'a' * 64}'.matches('a')",), a_device()) is True
    assert isinstance(selects((f"'{'a' * 65}'.matches('a')",), a_device()), Failure)


def test_all_expressions_have_to_hold_up_to_the_first_that_does_not():
    device = a_device(x=1)

    assert selects((), device) is True
    assert selects(("true", f"{ATTRIBUTES}.x == 2", f"{ATTRIBUTES}.y == 2"), device) is False
    assert isinstance(selects((f"{ATTRIBUTES}.y == 2", "false"), device), Failure)


def test_versions_that_differ_in_their_build_alone_are_equal():
    version = read_version("1.2.3+a")
    device = a_device(release=version)

    assert str(version) == "1.2.3+a"
    assert selects((f"{ATTRIBUTES}.release == semver('1.2.3+b')",), device) is True
    assert selects((f"{ATTRIBUTES}.release.isLessThan(semver('1.2.3'))",), device) is False
    assert selects((f"{ATTRIBUTES}.release.compareTo(semver('1.2.3+b')) == 0",), device) is True
