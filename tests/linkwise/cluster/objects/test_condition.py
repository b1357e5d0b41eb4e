import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.strategies import profile_labels, profiles

from linkwise.cluster.objects.affinity import LabelSelector, Requirement
from linkwise.cluster.objects.condition import can_hold, conditions_of, first_unmet


def selector(raw):
    return LabelSelector(
        match_labels=raw.get("matchLabels"),
        match_expressions=[Requirement(**one) for one in raw.get("matchExpressions", ())],
    )


HOLDS = {
    "In": lambda value, values: value in values,
    "NotIn": lambda value, values: value not in values,
    "Exists": lambda value, _: value is not None,
    "DoesNotExist": lambda value, _: value is None,
}
"""What a requirement means, from the documentation of Kubernetes."""


def matches(raw, labels):
    wanted = raw.get("matchLabels", {}).items() <= labels.items()
    return wanted and all(
        HOLDS[one["operator"]](labels.get(one["key"]), one.get("values", ()))
        for one in raw.get("matchExpressions", ())
    )


@given(profiles(), profile_labels())
def test_conditions_hold_exactly_when_the_selector_matches(raw, labels):
    for one in raw:
        raw_selector = one.get("objectSelector", {})

        met = first_unmet(conditions_of(selector(raw_selector)), labels) is None

        assert met is matches(raw_selector, labels)


@given(profiles(), profile_labels())
def test_what_some_labels_meet_can_hold(raw, labels):
    for one in raw:
        conditions = conditions_of(selector(one.get("objectSelector", {})))

        assert can_hold(conditions) or first_unmet(conditions, labels) is not None


def expression(operator, *values):
    return {"key": "a", "operator": operator, "values": list(values)}


@pytest.mark.parametrize(
    ("expressions", "possible"),
    [
        ([], True),
        ([expression("Exists")], True),
        ([expression("Exists"), expression("DoesNotExist")], False),
        ([expression("In", "x", "y"), expression("In", "y", "z")], True),
        ([expression("In", "x"), expression("In", "y")], False),
        ([expression("In", "x"), expression("NotIn", "x")], False),
        ([expression("In", "x"), expression("DoesNotExist")], False),
        ([expression("NotIn", "x"), expression("Exists")], True),
        ([expression("NotIn", "x"), expression("DoesNotExist")], True),
    ],
    ids=range(9),
)
def test_contradictions_are_seen(expressions, possible):
    wanted = conditions_of(selector({"matchExpressions": expressions}))

    assert can_hold(wanted) is possible


VALUES = st.sampled_from("xyz")


@given(
    st.lists(
        st.builds(expression, st.sampled_from(("In", "NotIn")), VALUES, VALUES)
        | st.builds(expression, st.sampled_from(("Exists", "DoesNotExist"))),
        max_size=4,
    )
)
def test_conditions_on_one_label_can_hold_exactly_when_some_value_or_none_meets_them(expressions):
    wanted = conditions_of(selector({"matchExpressions": expressions}))
    tried = [{}, *({"a": value} for value in (*"xyz", "another"))]

    assert can_hold(wanted) is any(first_unmet(wanted, labels) is None for labels in tried)


def test_a_selector_that_is_absent_has_no_condition():
    assert conditions_of(None) == ()


@pytest.mark.parametrize(
    ("raw", "text"),
    [
        ({"matchLabels": {"a": "x"}}, "a=x"),
        ({"matchExpressions": [expression("In", "x", "y")]}, "a In (x, y)"),
        ({"matchExpressions": [expression("DoesNotExist")]}, "a DoesNotExist"),
    ],
)
def test_a_condition_is_written_as_people_write_it(raw, text):
    assert [condition.text for condition in conditions_of(selector(raw))] == [text]
