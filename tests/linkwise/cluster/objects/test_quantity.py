from fractions import Fraction

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from linkwise.cluster.objects import quantity
from linkwise.cluster.objects.quantity import (
    QuantityError,
    count,
    is_zero,
    parse_quantity,
    split_quantity,
    whole,
)

POWER_OF_SUFFIX = {
    "n": (10, -9),
    "u": (10, -6),
    "m": (10, -3),
    "": (10, 0),
    "k": (10, 3),
    "M": (10, 6),
    "G": (10, 9),
    "T": (10, 12),
    "P": (10, 15),
    "E": (10, 18),
    "Ki": (2, 10),
    "Mi": (2, 20),
    "Gi": (2, 30),
    "Ti": (2, 40),
    "Pi": (2, 50),
    "Ei": (2, 60),
}
EXPONENTS = st.tuples(
    st.sampled_from("eE"), st.sampled_from(("", "+", "-")), st.integers(0, 64)
).map(lambda parts: (f"{parts[0]}{parts[1]}{parts[2]}", int(f"{parts[1]}{parts[2]}")))
DIGITS = st.text("0123456789", max_size=12)


@given(
    sign=st.sampled_from(("", "+", "-")),
    before=DIGITS,
    point=st.booleans(),
    after=DIGITS,
    suffix=st.sampled_from(sorted(POWER_OF_SUFFIX)).map(lambda s: (s, *POWER_OF_SUFFIX[s]))
    | EXPONENTS.map(lambda pair: (pair[0], 10, pair[1])),
)
def test_every_quantity_of_the_grammar_has_its_exact_value(sign, before, point, after, suffix):
    fraction = after if point else ""
    before = before or ("" if fraction else "0")
    text, base, power = suffix
    digits = int(f"{before}{fraction}") * (-1 if sign == "-" else 1)

    value = parse_quantity(f"{sign}{before}{'.' if point else ''}{fraction}{text}")

    assert value == Fraction(digits, 10 ** len(fraction)) * Fraction(base) ** power


@pytest.mark.parametrize(
    "same",
    [
        (50, "50", 5e1, "5e1", "50000m", "+50", "0.05k", "50.", "00050", 50.0),
        ("5E", "5e18", "5000P", 5 * 10**18),
        ("5E3", "5k", "5000", "5e+3", 5e3),
        ("1Ki", 1024, "1.0240e3"),
        ("1", "1000m", "1000000u", "1000000000n"),
        ("0", "-0", 0, ".0", "0Ei"),
        (0.1, "100m", "0.1", "1e-1"),
    ],
    ids=lambda same: str(same[0]),
)
def test_different_spellings_of_one_amount_are_equal(same):
    assert len({parse_quantity(spelling) for spelling in same}) == 1


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        (50, 50),
        ("50", 50),
        (-3, -3),
        ("-3", -3),
        (5e1, 50),
        ("50000m", 50),
        ("8Gi", 8 * 2**30),
        ("12345678901234567890123", 12345678901234567890123),
        (5.5, None),
        ("1500m", None),
        ("1e-3", None),
    ],
    ids=str,
)
def test_only_an_amount_without_a_fraction_is_whole(value, expected):
    assert whole(value) == expected


@given(st.integers(-(10**30), 10**30))
def test_a_whole_number_is_read_alike_bare_and_as_text(number):
    assert whole(number) == whole(str(number)) == number == parse_quantity(number)


@pytest.mark.parametrize(
    "value",
    [
        *("", " ", "1 ", " 1", "1\n", "+", ".", "-.", "Ki", "e3", "1e", "1e+", "1e1.5"),
        *("1ki", "1KI", "1K", "1g", "1mi", "1e3Ki", "1kk", "1Kim", "1.1.1", "1_000", "1,5", "0x10"),
        *("8GB", "8 Gi", "٣", "½", "NaN", "inf", "--1"),
        *(float("inf"), float("-inf"), float("nan"), True, False),
    ],
    ids=repr,
)
def test_text_that_is_not_a_quantity_is_refused(value):
    with pytest.raises(QuantityError):
        parse_quantity(value)
    with pytest.raises(QuantityError):
        whole(value)


@pytest.mark.parametrize(
    "value",
    ["1e65", "1e-65", "1e999999999999", "9" * 65, "1" * 1_000_000, 10**64, -(10**64), 1e300],
    ids=lambda value: f"{value!r:.12}",
)
def test_a_size_no_machine_has_is_no_count(value):
    with pytest.raises(QuantityError):
        whole(value)


MOST = 10**64


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        pytest.param("0" * 70 + "8", 8, id="leading-zeros"),
        pytest.param("8." + "0" * 70, 8, id="zeros-behind-the-point"),
        pytest.param("0." + "0" * 99 + "1e100", 1, id="a-point-moved-back"),
        pytest.param("9" * 70, MOST, id="seventy-digits"),
        pytest.param("-" + "9" * 70, -MOST, id="below-zero"),
        pytest.param("1e65", MOST, id="one-past-the-most"),
        pytest.param("1e1000000", MOST, id="a-long-exponent"),
        pytest.param("1e" + "9" * 5000, MOST, id="an-exponent-of-any-length"),
        pytest.param("0e1000000", 0, id="nothing-of-any-size"),
        pytest.param("1e-1000000", Fraction(1, MOST), id="next-to-nothing"),
        pytest.param("-1e-1000000", Fraction(-1, MOST), id="next-to-nothing-below-zero"),
        pytest.param("1" * 1_000_000, MOST, id="a-million-digits"),
        pytest.param("1" * 1_000_000 + "Ei", MOST * 2**60, id="a-million-digits-with-a-suffix"),
        pytest.param("1." + "0" * 99 + "1", 1 + Fraction(1, MOST), id="rounded-away-from-zero"),
        pytest.param(10**70, MOST, id="a-bare-number"),
        pytest.param(-(10**70), -MOST, id="a-bare-number-below-zero"),
    ],
)
def test_an_amount_of_any_length_is_read_and_saturates(text, expected):
    assert parse_quantity(text) == expected


def test_long_text_that_is_not_a_quantity_is_shortened():
    with pytest.raises(QuantityError, match=r"'1111+…' is no quantity") as caught:
        parse_quantity("1" * 1_000_000 + "?")

    assert len(str(caught.value)) < 250


@given(st.text("0123456789.eE+-numkKMGTPi \n٣", max_size=70))
@example("5E")
def test_any_text_is_a_quantity_or_refused(text):
    try:
        value = parse_quantity(text)
    except QuantityError as error:
        assert str(error)  # noqa: PT017 - that it is raised or not is what varies
        return

    number, multiplier = split_quantity(text)
    assert number * multiplier == value
    if abs(value) < MOST:
        assert whole(text) == (value if value.denominator == 1 else None)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        pytest.param("4", 4, id="digit"),
        pytest.param("0004", 4, id="leading-zeros"),
        pytest.param("999999999", 999_999_999, id="nine-digits"),
        pytest.param("0", 0, id="zero"),
        pytest.param("1000000000", None, id="ten-digits"),
        pytest.param("", None, id="empty"),
        pytest.param("-1", None, id="negative"),
        pytest.param("+4", None, id="sign"),
        pytest.param(" 4", None, id="blank"),
        pytest.param("4\n", None, id="newline"),
        pytest.param("1.0", None, id="fraction"),
        pytest.param("٤", None, id="digit-of-another-script"),
        pytest.param("²", None, id="superscript"),
    ],
)
def test_a_count_is_a_text_of_one_to_nine_digits(text, expected):
    assert count(text) == expected


def test_long_amounts_are_not_cached():
    before = quantity._is_zero.cache_info().currsize

    assert is_zero("0" * 10_000)
    assert quantity._is_zero.cache_info().currsize == before
