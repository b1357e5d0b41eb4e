import json

import pytest

from linkwise.policy.document import Policy, parse_plugin_config, parse_policy
from linkwise.policy.lint import lint, lint_policy, lint_profiles
from linkwise.policy.problem import MAX_BYTES, MAX_PROBLEMS, PolicyError
from linkwise.policy.profile import MAX_SELECTORS, parse_profiles
from linkwise.policy.wire import MAX_ENTRIES

MANY = MAX_PROBLEMS + 7


@pytest.mark.parametrize(
    ("found", "text"),
    [
        pytest.param(lint_policy, "\n".join(f"k{i}: 1" for i in range(MANY)), id="policy"),
        pytest.param(lint_profiles, json.dumps([1] * MANY, indent=1), id="profiles"),
        pytest.param(
            lint_profiles,
            json.dumps([{"name": f"a{i}", "effect": {}} for i in range(MANY)], indent=1),
            id="warnings",
        ),
    ],
)
def test_of_many_problems_the_first_are_reported_and_how_many_more_there_are(found, text):
    problems = found(text).problems

    assert len(problems) == MAX_PROBLEMS + 1
    assert [one.line for one in problems] == sorted(one.line for one in problems)
    # A selector without conditions has two warnings more than its empty effect.
    assert problems[-1].message in {f"and {MANY - MAX_PROBLEMS} more", f"and {2 * MANY - 50} more"}


def test_a_problem_is_short_however_long_the_text_is_that_it_speaks_of():
    with pytest.raises(PolicyError) as caught:
        parse_policy(f"'{'x' * 100_000}': 1\n")

    [problem] = caught.value.problems
    assert len(problem.message) + len(problem.path) < 1000


@pytest.mark.parametrize("parse", [parse_policy, parse_profiles, parse_plugin_config])
def test_a_text_that_is_too_long_is_refused_before_it_is_read(parse):
    with pytest.raises(PolicyError, match=f"at most {MAX_BYTES}") as caught:
        parse("{" * (MAX_BYTES + 1))

    assert [one.line for one in caught.value.problems] == [1]


def test_the_longest_text_is_read():
    assert parse_policy("#" * MAX_BYTES) == Policy()


def test_more_selectors_than_a_pod_can_be_tried_on_are_refused():
    with pytest.raises(PolicyError, match=f"more than the {MAX_SELECTORS}"):
        parse_profiles(json.dumps([{"name": "a"}] * (MAX_SELECTORS + 1)))


def test_more_entries_than_can_be_compared_are_refused():
    rule = "{nodeLabels: {a: b}, machine: c}"

    with pytest.raises(PolicyError, match=f"more than the {MAX_ENTRIES}"):
        parse_policy(f"machines: [{', '.join([rule] * (MAX_ENTRIES + 1))}]")


def test_a_file_with_two_large_texts_is_read():
    text = json.dumps({"kind": "ConfigMap", "data": {"policy.yaml": "#" * MAX_BYTES}})

    assert lint(f"{text}\n---\n{text}").problems == ()


@pytest.mark.parametrize(
    "text",
    [
        pytest.param("machines: [{}]", id="machines"),
        pytest.param("{sharing: {groups: [{}]}}", id="groups"),
        pytest.param("{catalogue: {models: {A: {counts: [{}]}}}}", id="counts"),
    ],
)
def test_the_entries_of_a_list_that_is_too_long_are_not_read(text):
    with pytest.raises(PolicyError) as refused:
        parse_policy(text.replace("[{}]", f"[{'{}, ' * (MAX_ENTRIES + 1)}]"))

    (problem,) = refused.value.problems
    assert f"more than the {MAX_ENTRIES}" in problem.message
