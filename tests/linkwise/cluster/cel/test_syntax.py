"""The expressions that are parsed, and the messages about others."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from linkwise.cluster.cel.syntax import NODES_MAX, TEXT_MAX, SyntaxRefused, parse

ATTRIBUTES = "device.attributes['gpu.nvidia.com']"


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("", "the end at character 1 is not evaluated"),
        ("device.driver ==", "the end at character 17"),
        ("device.driver == 'a' 'b'", "\"'b'\" at character 22 is not expected"),
        ("device.nodeName == 'a'", "reads device.nodeName"),
        ("device['nodeName'] == 'a'", "reads device.nodeName"),
        ("other.driver == 'a'", "'other' at character 1"),
        ("device.attributes[device.driver].type == 'gpu'", "is an index that is no text"),
        ("device.attributes.all(d, true)", "'all' at character 19 is a function"),
        ("device.attributes['a'].?b.orValue('') == ''", "is not evaluated"),
        ("device.driver + 'a' == 'b'", "\"+ 'a' == 'b'\" is not evaluated"),
        ("1.5 < 2.0", "'1.5 < 2.0' is not evaluated"),
        ("b'a' == b'a'", "'b' at character 1"),
        ("'''a''' == 'a'", "is not evaluated"),
        ("'\\x41' == 'A'", "has the escape \\x"),
        ("null == null", "'null' at character 1"),
        ("1 < 2 < 3", "compares a comparison"),
        ("- device.driver == 1", "follows a minus"),
        ("'a' in device", "of which no field is read"),
        ("quantity(device.driver) == quantity('1')", "no constant text"),
        ("quantity('1e3') == quantity('1k')", "'1e3' is no amount such as 40Gi"),
        ("quantity('1.0001') == quantity('1')", "is no amount"),
        ("semver('1.2') == semver('1.2.0')", "'1.2' is no version such as 1.2.3"),
        ("semver('1.2.3-rc') == semver('1.2.3')", "is no version"),
        ("semver('1.2', true) == semver('1.2.0')", "another number of arguments"),
        ("has(device)", "of which no field is read"),
        ("cel.bind(all, device, has(all.later))", "of which no field is read"),
        ("has('a')", "asks for no entry of a mapping"),
        (f"{ATTRIBUTES}.a.matches('(ab)*')", "a repeated group or anchor at character 6"),
        (f"{ATTRIBUTES}.a.matches('a{{2}}')", "'{' at character 2 of the regular expression"),
        (f"{ATTRIBUTES}.a.matches('(?i)a')", "a flag or named group"),
        (f"{ATTRIBUTES}.a.matches('{'a' * 257}')", "more than 256 characters"),
        (f"{ATTRIBUTES}.a.matches({ATTRIBUTES}.b)", "no constant text"),
        ("cel.bind(device, 1, true)", "'device' at character 10 is no new name"),
        ("cel.other(a, 1, true)", "is not evaluated"),
        ("(" * 30 + "true" + ")" * 30, "is nested too deep"),
        ("!" * 30 + "true", "is nested too deep"),
        (" && ".join(["true"] * NODES_MAX), f"more than {NODES_MAX} parts"),
        ("true" + " " * TEXT_MAX, f"more than {TEXT_MAX} characters"),
    ],
)
def test_what_is_not_evaluated_is_refused_with_its_place(text, reason):
    refused = parse(text)

    assert isinstance(refused, SyntaxRefused)
    assert reason in str(refused)


PARTS = st.sampled_from(
    [
        *("device", ".", "driver", "attributes", "capacity", "'gpu.nvidia.com'", "cel", "bind"),
        *("[", "]", "(", ")", "==", "!=", "<", "in", "&&", "||", "!", "?", ":", ",", "-", "1"),
        *("has", "matches", "lowerAscii", "compareTo", "quantity", "'40Gi'", "'^.*a$'", "x"),
    ]
)


@given(st.lists(PARTS, max_size=40))
def test_any_text_is_parsed_or_refused(parts):
    parse(" ".join(parts))


@given(st.text(max_size=60))
def test_any_characters_are_parsed_or_refused(text):
    parse(text)
