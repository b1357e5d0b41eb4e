import pytest

from linkwise.manifest.lines import WHOLE, embedded, read_documents, read_json_stream
from linkwise.manifest.place import SourceError, field


def test_a_json_text_is_one_document_with_lines():
    [document] = read_documents('\n{"a": [1,\n{"b": 2}]}')

    assert document.value == {"a": [1, {"b": 2}]}
    assert document.line == 2
    assert document.line_of(("a", 1, "b")) == 3


def test_yaml_in_braces_is_yaml():
    [first, second] = read_documents("{a: 1}\n---\n{b: on}\n")

    assert (first.value, second.value) == ({"a": 1}, {"b": True})
    assert second.line_of(("b",)) == 3


def test_a_byte_order_mark_is_not_part_of_the_text():
    assert [document.value for document in read_documents("\ufeff[1]")] == [[1]]


@pytest.mark.parametrize("text", ["", "\n \n", "# only a comment\n", "---\n---\n"])
def test_a_blank_text_has_no_document(text):
    assert read_documents(text) == []


@pytest.mark.parametrize("text", ['{"a": 1\n"b": 2}', '{"a": 1,\n"a": 2}'])
def test_broken_json_is_an_error_with_its_line(text):
    with pytest.raises(SourceError, match="line 2: "):
        read_documents(text)


CONFIGMAP = """\
data:
  literal: |
    first
    second
  folded: >
    first
    second
  quoted: "first\\nsecond"
"""


@pytest.mark.parametrize(("key", "line"), [("literal", 4), ("folded", 5), ("quoted", 8)])
def test_the_second_line_of_an_embedded_text_is_found_in_the_file(key, line):
    [document] = read_documents(CONFIGMAP)

    assert embedded(document, ("data", key)).outer(2) == line


def test_a_text_that_stands_in_no_other_has_its_own_lines():
    assert WHOLE.outer(7) == 7


def test_a_path_is_written_as_people_write_it():
    path = ("spec", "containers", 0, "resources", "limits", "aliyun.com/gpu")

    assert field(path) == "spec.containers[0].resources.limits[aliyun.com/gpu]"
    assert field((0, "name")) == "[0].name"
    assert field(()) == ""


def test_json_texts_that_follow_each_other_have_their_lines():
    first, second = read_json_stream('{"a":\n1}\n\n[\n2]')

    assert (first.value, first.line, first.line_of(("a",))) == ({"a": 1}, 1, 1)
    assert (second.value, second.line, second.line_of((0,))) == ([2], 4, 5)


def test_text_that_is_not_a_json_stream_has_no_documents():
    assert read_json_stream("{} a: b") == []


def test_a_mistake_in_one_of_many_json_texts_has_its_line():
    with pytest.raises(SourceError, match="line 3: the key 'a' stands already on line 1"):
        read_json_stream('{}\n{"a": 1,\n"a": 2}')
