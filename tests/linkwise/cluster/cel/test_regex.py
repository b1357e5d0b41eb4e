"""Regular expressions match what they match in Python where both have the same syntax."""

import re
from contextlib import suppress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from linkwise.cluster.cel.regex import RegexError, read_regex

ATOMS = st.sampled_from(["a", "b", ".", "[ab]", "[^a]", "[a-c]", "\\.", "\\d", "\\w", "-"])
REPEATED = st.builds("".join, st.tuples(ATOMS, st.sampled_from(["", "*", "+", "?", "*?", "??"])))
SEQUENCES = st.lists(REPEATED | st.sampled_from(["^", "$"]), max_size=5).map("".join)
GROUPS = st.recursive(
    SEQUENCES,
    lambda inner: st.builds(
        lambda before, first, second, after: f"{before}({first}|{second}){after}",
        SEQUENCES,
        inner,
        inner,
        SEQUENCES,
    ),
    max_leaves=6,
)


@given(pattern=GROUPS, text=st.text(alphabet="abc.1-\n", max_size=8))
def test_it_matches_as_in_python(pattern, text):
    expected = re.search(pattern.replace("$", r"\Z"), text, re.ASCII) is not None
    assert read_regex(pattern).occurs_in(text) is expected


@given(st.text(alphabet="ab()[]^$|*+?\\{}.-", max_size=12))
def test_any_pattern_is_read_or_refused(pattern):
    with suppress(RegexError):
        read_regex(pattern).occurs_in("ab" * 32)


@pytest.mark.parametrize(
    "pattern",
    [
        "a**",
        "a{2}",
        "*a",
        "^*",
        "(a)+",
        "(a",
        "a)",
        "[a",
        "[]a]",
        "[b-a]",
        "[[:alpha:]]",
        "\\b",
        "\\",
    ],
)
def test_other_syntax_is_refused(pattern):
    with pytest.raises(RegexError):
        read_regex(pattern)


def test_a_pattern_that_needs_exponential_time_elsewhere_costs_its_length():
    assert not read_regex("^" + "a*" * 120 + "b$").occurs_in("a" * 64)
