import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from linkwise.cluster.objects.quantity import parse_quantity
from linkwise.manifest.yaml_scalar import plain_value


@pytest.mark.parametrize(
    ("word", "value"),
    [
        ("", None),
        ("~", None),
        ("Null", None),
        ("y", True),
        ("on", True),
        ("False", False),
        ("NO", False),
        ("yEs", "yEs"),
        ("0", 0),
        ("-17", -17),
        ("+17", 17),
        ("1_000", 1000),
        ("010", 8),
        ("0o10", 8),
        ("0x1F", 31),
        ("-0b101", -5),
        ("08", 8.0),
        ("1.5", 1.5),
        (".5", 0.5),
        ("._5", "._5"),
        ("5.", 5.0),
        ("1e3", 1000.0),
        ("1e400", "1e400"),
        (".inf", ".inf"),
        (".nan", ".nan"),
        ("1:30", "1:30"),
        ("2026-01-01", "2026-01-01"),
        ("2026-01-01T00:00:00Z", "2026-01-01T00:00:00Z"),
        ("8Gi", "8Gi"),
        ("50000m", "50000m"),
        ("1.2.3", "1.2.3"),
        ("-", "-"),
        ("٣", "٣"),
        ("1٣", "1٣"),
    ],
)
def test_an_unquoted_word_means_what_it_means_to_kubectl(word, value):
    read = plain_value(word)

    assert (read, type(read)) == (value, type(value))


def test_an_integer_beyond_all_range_stays_text():
    digits = "9" * 5000

    assert plain_value(digits) == digits


@pytest.mark.parametrize("word", ["5e1", "50", "50000m"])
def test_an_unquoted_quantity_can_be_read_as_one(word):
    assert parse_quantity(plain_value(word)) == 50


@given(st.text(alphabet="0123456789+-._eExXoObB", max_size=12) | st.text(max_size=8))
def test_every_word_has_a_value_that_json_can_say(word):
    value = plain_value(word)

    assert value is None or isinstance(value, str | bool | int | float)
    assert not isinstance(value, float) or math.isfinite(value)
