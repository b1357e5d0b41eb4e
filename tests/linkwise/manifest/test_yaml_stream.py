import json

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from linkwise.manifest.place import MAX_DEPTH, SourceError
from linkwise.manifest.yaml_stream import read_parts
from linkwise.manifest.yaml_text import read_yaml

texts = st.text(st.characters(codec="utf-8", exclude_categories=("C",)), max_size=12).filter(
    # A text with what may be an anchor, an alias or a tag is read whole.
    lambda text: not set(text) & set("&*!")
)
values = st.recursive(
    st.none() | st.booleans() | st.integers(-99, 99) | texts,
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(texts.filter(lambda key: key != "<<"), inner, max_size=3)
    ),
    max_leaves=8,
)
objects = st.dictionaries(st.sampled_from(["kind", "metadata", "spec", "a b"]), values, min_size=1)


def whole(text: str) -> list[object]:
    return [value for value, _ in read_yaml(text)]


def parts(text: str) -> list[object]:
    return [document.value for document in read_parts(text)]


@given(st.lists(objects, min_size=1, max_size=3), st.integers(0, 3))
def test_a_list_is_read_item_by_item_and_then_its_head(items, indent):
    dumped = yaml.safe_dump(json.loads(json.dumps(items)), allow_unicode=True)
    inner = "".join(f"{' ' * indent}{line}\n" for line in dumped.splitlines())
    text = f"apiVersion: v1\nitems:\n{inner}kind: List\n"

    assert parts(text) == [*whole(text)[0]["items"], {"apiVersion": "v1", "kind": "List"}]


@given(st.lists(objects, min_size=1, max_size=3))
def test_documents_are_read_one_by_one(documents):
    text = yaml.safe_dump_all(json.loads(json.dumps(documents)), allow_unicode=True)

    assert parts(text) == whole(text)


LIST = """\
# made by hand
apiVersion: v1
items:

# the first
- kind: Pod
  text: |
    - not an item
    items:
    - nor this
- kind: Node

  list:
  - 1
kind: List
---
kind: Last
"""


def test_each_part_has_its_lines():
    found = [
        (one.value.get("kind"), one.line, one.line_of(("list", 0))) for one in read_parts(LIST)
    ]

    assert [(kind, line) for kind, line, _ in found] == [
        ("Pod", 6),
        ("Node", 11),
        ("List", 1),
        ("Last", 16),
    ]
    assert found[1][2] == 14


def test_a_block_of_text_is_no_item():
    assert next(read_parts(LIST)).value["text"] == "- not an item\nitems:\n- nor this\n"


@pytest.mark.parametrize(
    ("text", "line"),
    [
        ("items:\n- a: 1\n- a: 1\n  b: 2\n  a: 3\n", 5),
        ("items:\n- a: [1\n- b: 1\n", 3),
        ("a: 1\n---\nb: 1\n\tc: 2\n", 4),
        ("items:\n- {<<: 1}\n", 2),
        ("items:\n- a: 1\nitems:\n- b: 1\n", 3),
        ("items: 1\nitems:\n- b: 1\n", 2),
        ("a: 1\n---\n{{ b }}: c\n", 3),
        ("items:\n- a: {{ b }}\n", 2),
        ("items:\n- a: 1\n- b: \x07\n", 3),
    ],
    ids=[
        "a key twice",
        "an open bracket",
        "a tab",
        "a merge of a number",
        "items twice",
        "items that are no list",
        "a template",
        "a template in an item",
        "a control character",
    ],
)
def test_error_message_has_the_line(text, line):
    with pytest.raises(SourceError) as caught:
        parts(text)

    assert caught.value.line == line
    with pytest.raises(SourceError) as in_whole:
        whole(text)
    assert str(in_whole.value) == str(caught.value)


@pytest.mark.parametrize(
    "text",
    [
        "items:\n- &a {b: 1}\n- *a\n",
        "items:\n- a: !!str 1\n",
        "%YAML 1.1\n---\nitems:\n- a: 1\n",
        "--- {items: [1]}\n",
        "a: '&b'\nc: x -*y\n---\nd: 1\n",
        "items: [{a: 1}]\nkind: List\n",
        "a: 2020-01-01\nb: 0x10\nc: yes\nd: ~\n1: 2\n",
        "",
        "---\n---\n",
    ],
    ids=[
        "alias",
        "tag",
        "directive",
        "mark",
        "looks like an anchor",
        "flow",
        "scalars",
        "nothing",
        "empty ones",
    ],
)
def test_part_with_unusual_syntax_is_read_like_a_whole_text(text):
    assert parts(text) == whole(text)


def test_a_merge_in_an_item_is_read_as_it_is_meant():
    assert parts("items:\n- <<: {a: 1}\n  b: 2\nkind: List\n") == [
        {"b": 2, "a": 1},
        {"kind": "List"},
    ]


def test_parts_are_read_lazily():
    reading = read_parts("items:\n- a: 1\n- b: [\n")

    assert next(reading).value == {"a": 1}
    with pytest.raises(SourceError, match="line"):
        next(reading)


@pytest.mark.parametrize(
    "text",
    ["a: " + "[" * 1_000_000, "a: " + "{b: " * 300_000, "items:\n- " + "- " * 100_000 + "x\n"],
    ids=["lists", "mappings", "an item"],
)
def test_deep_nesting_is_refused_before_it_is_parsed_to_its_end(text):
    with pytest.raises(SourceError, match=f"nested deeper than {MAX_DEPTH} levels"):
        list(read_parts(text))


@pytest.mark.parametrize("text", ["1: a\nkind: Pod", "items:\n- a: 1\n  b: 2\n"])
def test_a_byte_order_mark_changes_nothing(text):
    marked, plain = list(read_parts("\ufeff" + text)), list(read_parts(text))

    assert [each.value for each in marked] == [each.value for each in plain]
    assert [each.line_of(("b",)) for each in marked] == [each.line_of(("b",)) for each in plain]
