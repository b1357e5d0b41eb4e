import pytest
from hypothesis import given
from hypothesis import strategies as st

from linkwise.admission.decide.messages import admission_warnings, denial_message, denial_status
from linkwise.cluster.finding import Code, Finding, Severity, printable


def a_finding(message="wrong", code=Code.CORE_STEP, severity=Severity.ERROR, field="spec"):
    return Finding(code, severity, field, None, message, "correct it")


def a_warning(message):
    return a_finding(message, Code.MPS_LIMIT, Severity.WARNING)


findings = st.lists(
    st.builds(a_finding, st.text(max_size=200), st.sampled_from(Code), st.sampled_from(Severity)),
    max_size=6,
)


@given(findings=findings)
def test_warnings_have_the_form_that_api_servers_forward(findings):
    warnings = admission_warnings(findings)

    assert len(warnings) <= 3
    assert len(set(warnings)) == len(warnings)
    assert all(warning.isprintable() and 0 < len(warning) <= 120 for warning in warnings)


def test_up_to_three_warnings_are_complete():
    warnings = admission_warnings(
        [a_warning("one"), a_finding(), a_warning("two"), a_warning("two")]
    )

    assert warnings == ("LW114 one", "LW114 two")


def test_last_of_more_than_three_warnings_counts_the_rest():
    warnings = admission_warnings([a_warning(word) for word in ("one", "two", "three", "four")])

    assert warnings[:2] == ("LW114 one", "LW114 two")
    assert warnings[2].startswith("2 more warnings")


def test_long_warning_is_truncated_with_an_ellipsis():
    (warning,) = admission_warnings([a_warning("x" * 200)])

    assert len(warning) == 120
    assert warning.endswith("…")


@given(text=st.text())
def test_unprintable_characters_are_replaced(text):
    assert printable(text).isprintable()
    assert len(printable(text)) == len(text)


def test_denial_of_one_problem_has_field_and_fix():
    assert (
        denial_message([a_finding("22 is odd", field="spec.x")])
        == "spec.x: 22 is odd; correct it [LW101]"
    )


def test_several_problems_are_numbered_on_one_line():
    message = denial_message([a_finding("a\nb", field="x"), a_finding("c", Code.MODEL, field="y")])

    assert message == "2 problems: (1) x: a�b; correct it [LW101] (2) y: c; correct it [LW203]"


@pytest.mark.parametrize(
    ("codes", "answer"),
    [
        ([Code.CORE_STEP], (422, "Invalid")),
        ([Code.CAPACITY], (403, "Forbidden")),
        ([Code.SCHEDULER], (403, "Forbidden")),
        ([Code.CAPACITY, Code.CORE_STEP], (422, "Invalid")),
    ],
)
def test_only_errors_of_the_policy_are_forbidden(codes, answer):
    assert denial_status([a_finding(code=code) for code in codes]) == answer
