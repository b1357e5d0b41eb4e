import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from linkwise.manifest.json_text import places, read_json
from linkwise.manifest.place import MAX_DEPTH, SourceError

JSON = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(max_size=5),
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner, max_size=3)
    ),
    max_leaves=10,
)


def paths(value, path=()):
    yield path
    if isinstance(value, dict | list):
        for step, item in value.items() if isinstance(value, dict) else enumerate(value):
            yield from paths(item, (*path, step))


@given(JSON, st.sampled_from((None, 1)))
def test_json_is_read_as_it_was_written(value, indent):
    assert read_json(json.dumps(value, indent=indent)) == value


@given(st.dictionaries(st.text(max_size=3), st.lists(st.text(max_size=3), min_size=1), min_size=1))
def test_every_value_has_the_line_on_which_it_stands(value):
    lines = json.dumps(value, indent=1).split("\n")
    place = places("\n".join(lines))

    for key, items in value.items():
        line = place.find((key,)).line
        assert lines[line - 1].strip() == f"{json.dumps(key)}: ["
        for i, item in enumerate(items):
            assert lines[line + i].strip().removesuffix(",") == json.dumps(item)
            assert place.find((key, i)).line == line + i + 1


def test_a_path_that_is_not_there_has_the_line_of_its_nearest_parent():
    place = places('{\n"a": {\n"b": [\n1]}}')

    assert place.find(("a", "b", 0)).line == 4
    assert place.find(("a", "b", 7, "c")).line == 3
    assert place.find(("a", "c")).line == 2
    assert place.find(("x",)).line == 1


@pytest.mark.parametrize(
    ("text", "line", "part"),
    [
        ("", 1, "expecting value"),
        ("[1,\n2,]", 2, "column 3"),
        ('{"a": 1,\n\n"a": 2}', 3, "the key 'a' stands already on line 1"),
        ('{"a": 1,\n"\\u0061": 2}', 2, "the key 'a' stands already on line 1"),
        ("[1,\nNaN]", 2, "NaN is no number"),
        ("[1,\n\n-Infinity]", 3, "-Infinity is no number"),
        ('["\\\\ud800",\n"\\ud800"]', 2, "surrogate"),
        ("[\n" * (MAX_DEPTH + 1) + "]" * (MAX_DEPTH + 1), MAX_DEPTH + 1, "deeper than 100"),
        ("[" * 100_000, 1, "deeper than 100"),
        ('{"a":' * 100_000, 1, "deeper than 100"),
        ("[1,\n" + "9" * 5000 + "]", 2, "too long"),
        ("[1,\n" + "9" * 5000 + "]]]", 2, "too long"),
        ('"a\tb"', 1, "control character"),
        ("[] []", 1, "extra data"),
    ],
    ids=range(14),
)
def test_text_that_is_not_strict_json_is_an_error_with_its_line(text, line, part):
    with pytest.raises(SourceError, match=part) as caught:
        read_json(text)

    assert caught.value.line == line


def test_nesting_up_to_the_bound_is_read():
    text = "[" * MAX_DEPTH + "]" * MAX_DEPTH

    assert json.dumps(read_json(text)) == text


def test_a_pair_of_surrogates_is_one_character():
    assert read_json('"\\ud83d\\ude00"') == "\U0001f600"


@given(st.text() | st.text(alphabet='[]{}",:\\u1d8 \n'))
def test_any_text_is_a_value_or_a_clear_error(text):
    try:
        value = read_json(text)
    except SourceError as error:
        lines, message = [error.line], error.message
    else:
        place = places(text)
        lines, message = [place.find(path).line for path in paths(value)], ""

    assert all(1 <= line <= text.count("\n") + 1 for line in lines)
    assert "\n" not in message


TOO_LONG = "9" * 5000


def test_a_number_that_is_too_long_has_its_line_also_before_a_text_that_never_ends():
    # Each of these quotes would be tried to the end of the text, were it not read once.
    text = f'[1,\n{TOO_LONG},\n"' + '\\"' * 100_000

    with pytest.raises(SourceError, match="line 2: not JSON: a number is too long"):
        read_json(text)


def test_places_can_be_counted_from_another_line():
    assert places("[\n1]", 7).find((0,)).line == 8
