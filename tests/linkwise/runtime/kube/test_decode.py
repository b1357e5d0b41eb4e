import json

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from linkwise.runtime.kube.decode import decode

ANYTHING = msgspec.json.Decoder()
DEPTHS = (200, 995, 1500, 9990)

texts = st.text(st.sampled_from('ab"\\[]{},:\né'), max_size=12)
values = st.recursive(
    st.none() | st.integers() | texts,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(texts, inner, max_size=3),
    max_leaves=20,
)


def deep(depth, opens, closes, inner):
    """Return JSON that is nested in one object or list after another."""
    return opens * depth + inner + closes * depth


@given(
    values,
    values,
    st.sampled_from(DEPTHS),
    st.sampled_from([('{"a\\"[":', "}"), ("[0,", "]")]),
)
def test_what_stands_beside_something_deep_is_read_as_it_is(before, after, depth, kind):
    inner = json.dumps([before, after])
    body = f"[{json.dumps(before)},{deep(depth, *kind, inner)},{json.dumps(after)}]"

    first, _, last = decode(body.encode(), ANYTHING)

    assert (first, last) == (before, after)


@given(values)
def test_shallow_json_is_decoded_unchanged(value):
    assert decode(json.dumps(value).encode(), ANYTHING) == value


@pytest.mark.parametrize("size", [1 << 20, (1 << 20) + 1, (3 << 20) + 7])
@pytest.mark.parametrize("ends", ['"', '\\\\"', '\\""'], ids=["quote", "backslash", "both"])
def test_strings_of_any_length_are_decoded(size, ends):
    text = '"' + "[" * size + ends
    body = f"[{deep(1500, '[', ']', text)},{text},1]"

    assert decode(body.encode(), ANYTHING)[1:] == [json.loads(text), 1]


@pytest.mark.parametrize("body", [b"[" * 2000, b'{"a' * 2000, b'["' + b"[" * 2000, b"]" * 2000])
def test_deep_invalid_json_is_refused(body):
    with pytest.raises(msgspec.DecodeError):
        decode(body, ANYTHING)


class Thing(msgspec.Struct):
    name: str


def test_fields_beside_skipped_ones_are_decoded():
    body = f'{{"other": {deep(9990, "[", "]", "")}, "name": "it"}}'

    assert decode(msgspec.Raw(body.encode()), msgspec.json.Decoder(Thing)) == Thing("it")
