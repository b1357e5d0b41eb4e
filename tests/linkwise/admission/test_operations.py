import jsonpatch
import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from linkwise.admission.operations import add, add_keys, append, encode_patch, extend, remove
from linkwise.cluster.pointer import escape

maps = st.dictionaries(st.text(max_size=4), st.text(max_size=2), max_size=3)


@given(present=st.none() | maps, wanted=maps)
def test_added_keys_are_in_the_map_beside_others(present, wanted):
    wanted = {key: value for key, value in wanted.items() if key not in (present or {})}
    steps = add_keys("/a", present, {key: (value, "rule") for key, value in wanted.items()})

    after = jsonpatch.apply_patch({"a": present}, [step.wire() for step in steps])

    assert (after["a"] or {}) == {**(present or {}), **wanted}


@given(
    present=st.none() | st.lists(st.integers(), max_size=3),
    wanted=st.lists(st.integers(), max_size=3),
)
def test_values_are_appended_in_order(present, wanted):
    steps = extend("/a", present, [(value, "rule") for value in wanted])

    after = jsonpatch.apply_patch({"a": present}, [step.wire() for step in steps])

    assert (after["a"] or []) == [*(present or []), *wanted]


@given(present=st.none() | st.lists(st.integers(), max_size=3))
def test_one_value_is_appended(present):
    step = append("/a", present, 7, "rule")

    after = jsonpatch.apply_patch({"a": present}, [step.wire()])

    assert after["a"] == [*(present or []), 7]


@pytest.mark.parametrize(
    ("key", "segment"),
    [("plain", "plain"), ("a/b", "a~1b"), ("a~b", "a~0b"), ("~1", "~01"), ("~/", "~0~1")],
)
def test_keys_are_escaped_by_json_pointer_syntax(key, segment):
    assert escape(key) == segment


def test_operation_that_creates_a_map_has_distinct_rules():
    (step,) = add_keys("/a", None, {"x": ("1", "one"), "y": ("2", "two"), "z": ("3", "one")})

    assert step.rule == "one, two"


def test_removal_has_no_value_on_the_wire():
    assert remove("/a", "because").wire() == {"op": "remove", "path": "/a"}


def test_rule_is_not_sent():
    step = append("/a", None, 1, "because")

    assert msgspec.json.decode(msgspec.json.encode(step))["rule"] == "because"
    assert "rule" not in step.wire()


def test_patch_is_sent_as_the_operations_without_their_rules():
    patch = encode_patch([add("/a", {"b": ["c"]}, "because"), remove("/d", "because")])

    assert msgspec.json.decode(patch) == [
        {"op": "add", "path": "/a", "value": {"b": ["c"]}},
        {"op": "remove", "path": "/d"},
    ]
