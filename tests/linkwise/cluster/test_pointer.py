import jsonpatch
import pytest
from hypothesis import given
from hypothesis import strategies as st

from linkwise.cluster.pointer import escape


@pytest.mark.parametrize(
    ("key", "segment"),
    [
        ("plain", "plain"),
        ("example.org/a", "example.org~1a"),
        ("a~b", "a~0b"),
        ("example.org/a~1b", "example.org~1a~01b"),
        ("~1", "~01"),
        ("", ""),
    ],
)
def test_what_a_pointer_takes_for_its_own_is_escaped(key, segment):
    assert escape(key) == segment


@given(st.text(), st.dictionaries(st.text(), st.just("other"), max_size=3))
def test_a_patch_finds_any_key_of_a_map(key, others):
    steps = [{"op": "add", "path": f"/{escape(key)}", "value": "here"}]

    assert jsonpatch.apply_patch(dict(others), steps) == {**others, key: "here"}
