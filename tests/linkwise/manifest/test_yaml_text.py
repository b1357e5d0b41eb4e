import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from linkwise.manifest.place import MAX_DEPTH, SourceError
from linkwise.manifest.yaml_text import MAX_COPIED, MAX_COPIED_CHARACTERS, read_yaml

PLAIN = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**60), 2**60) | st.text(max_size=6),
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=4), inner, max_size=3)
    ),
    max_leaves=8,
)


def only(text):
    [(value, place)] = read_yaml(text)
    return value, place


@given(st.dictionaries(st.text(max_size=4), PLAIN, min_size=1, max_size=3))
def test_what_a_dumper_writes_is_read_as_it_was(value):
    assert only(yaml.safe_dump(value, default_style='"'))[0] == value


def test_each_path_has_the_line_of_its_key_or_item():
    _, place = only("a:\n  b: 1\n  c:\n  - x\n  -\n    d: {e: 2}\n")

    lines = [place.find(path).line for path in [(), ("a",), ("a", "c"), ("a", "c", 1, "d", "e")]]
    assert lines == [1, 1, 3, 6]


def test_documents_are_separated_and_empty_ones_skipped():
    documents = read_yaml("# nothing\n---\n---\na: 1\n---\n~\n--- [b]\n...\n---\nfalse\n")

    assert [(value, place.line) for value, place in documents] == [
        ({"a": 1}, 4),
        (["b"], 7),
        (False, 10),
    ]


def test_an_alias_stands_for_a_copy_of_what_it_names():
    value, place = only("a: &x {b: [1]}\nc:\n- *x\nd: *x\n")

    assert value == {"a": {"b": [1]}, "c": [{"b": [1]}], "d": {"b": [1]}}
    assert value["a"] is not value["d"]
    assert value["a"]["b"] is not value["d"]["b"]
    assert place.find(("d",)).line == 4
    assert place.find(("d", "b")).line == 1


def test_a_scalar_may_be_anchored_as_key_or_value():
    assert only("&k a: &v 1\nb: [*k, *v]\n")[0] == {"a": 1, "b": ["a", 1]}


def test_an_anchor_of_another_document_is_unknown():
    with pytest.raises(SourceError, match="names no anchor"):
        read_yaml("a: &x 1\n---\nb: *x\n")


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("a: &a {x: 1, z: 2}\nb: {<<: *a, z: 3}", {"x": 1, "z": 3}),
        ("a: &a {x: 1}\nc: &c {x: 2, z: 4}\nb: {<<: [*a, *c]}", {"x": 1, "z": 4}),
        ("b: {'<<': 1}", {"<<": 1}),
        ("b: [<<]", ["<<"]),
    ],
    ids=["own value wins", "first of a list wins", "quoted it is a key", "as a value it is text"],
)
def test_merge_keys_add_what_is_missing(text, value):
    assert only(text)[0]["b"] == value


def test_a_merged_value_has_the_line_where_it_was_written():
    _, place = only("a: &a\n  x: 1\nb:\n  <<: *a\n  z: 2\n")

    assert [place.find(("b", key)).line for key in "xz"] == [2, 5]


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("on: 1", {"true": 1}),
        ("n: 1", {"false": 1}),
        ("80: 1", {"80": 1}),
        ("1.5: 1", {"1.5": 1}),
        ("a: !!str 5", {"a": "5"}),
        ("a: !!int '5'", {"a": 5}),
        ("a: ! 5", {"a": "5"}),
        ("a: !!map {}", {"a": {}}),
        ("a: '5'", {"a": "5"}),
        ('a: "on"', {"a": "on"}),
        ("a: |\n  5\n", {"a": "5\n"}),
        ("a: 2026-01-01", {"a": "2026-01-01"}),
        ("%YAML 1.1\n---\na: 1\n", {"a": 1}),
    ],
)
def test_words_and_keys_are_read_as_kubectl_reads_them(text, value):
    assert only(text)[0] == value


def test_literal_block_has_its_first_content_line():
    _, place = only("a: |\n  x\nb: >\n  y\nc: |-\n\n  z\nd: w\n")

    assert [place.find((key,)).literal for key in "abcd"] == [2, None, 6, None]


LAUGHS = "a0: &a0 [x,x,x,x,x,x,x,x,x,x]\n" + "".join(
    f"a{i}: &a{i} [{','.join([f'*a{i - 1}'] * 10)}]\n" for i in range(1, 12)
)
LONG = (
    "a: &a {text}\n"
    + "b: ["
    + ",".join(["*a"] * 1000)
    + "]\n"
    + "c: ["
    + ",".join(["*a"] * 1000)
    + "]\n"
)
LONG_TEXT = LONG.replace("{text}", "x" * 1000)
LONG_KEY = LONG.replace("{text}", "{" + "x" * 1000 + ": 1}")
CHAIN = "a0: &a0 [x]\n" + "".join(f"a{i}: &a{i} [*a{i - 1}]\n" for i in range(1, MAX_DEPTH + 5))


@pytest.mark.parametrize(
    ("text", "line", "part"),
    [
        ("a: 1\nb: 2\na: 3\n", 3, "the key 'a' stands already on line 1"),
        ("on: 1\ntrue: 2\n", 2, "the key 'true' stands already on line 1"),
        ("a: b: c\n", 1, "mapping values are not allowed"),
        ("a:\n\tb: 1\n", 2, "a tab cannot indent"),
        ("a: [1\n", 2, "not YAML"),
        ("a: 'b\n", 2, "not YAML"),
        ("? [a]\n: b\n", 1, "a key must be text"),
        ("? {a: b}\n: b\n", 1, "a key must be text"),
        ("a: &x b\n*x : c\n", 2, "not an alias"),
        ("~: b\n", 1, "a key is missing"),
        ("a: *x\n", 1, "names no anchor"),
        ("a: &x\n- *x\n", 2, "stands inside what it names"),
        ("a: 1\nb: \x07\n", 2, "U\\+0007"),
        ("a: \ud800\n", 1, "U\\+D800"),
        ("a: !Ref b\n", 1, "the tag !Ref"),
        ("a: !foo {}\n", 1, "the tag !foo"),
        ("b: {<<: 1}\n", 1, "<< takes a mapping"),
        ("b: {<<: [1]}\n", 1, "<< takes a mapping"),
        ("a:\n" + "- " * (MAX_DEPTH + 1) + "x\n", 2, "deeper than 100"),
        ("[" * 100_000, 1, "deeper than 100"),
        (LAUGHS, 4, f"more than {MAX_COPIED} values"),
        (LONG_TEXT, 3, f"more than {MAX_COPIED_CHARACTERS} characters"),
        (LONG_KEY, 3, f"more than {MAX_COPIED_CHARACTERS} characters"),
        (CHAIN, MAX_DEPTH, "deeper than 100"),
    ],
    ids=range(24),
)
def test_text_that_is_not_yaml_is_an_error_with_its_line(text, line, part):
    with pytest.raises(SourceError, match=part) as caught:
        read_yaml(text)

    assert caught.value.line == line


@given(st.text() | st.text(alphabet="ab:- \n{}[]&*!|>'\"#%?,<\t"))
def test_any_text_is_a_list_of_documents_or_a_clear_error(text):
    try:
        documents = read_yaml(text)
    except SourceError as error:
        lines, message = [error.line], error.message
    else:
        lines, message = [place.line for _, place in documents], ""

    assert all(line >= 1 for line in lines)
    assert "\n" not in message
