import json

import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st
from support.documents import PROFILE, TIME_SLICING
from support.strategies import profiles

from linkwise.cluster.finding import Code, Severity
from linkwise.policy.lint import lint, lint_plugin_config, lint_policy, lint_profiles

EXAMPLES = f"{PROFILE}---\n{TIME_SLICING}"


def test_protocol_examples_are_clean_and_printed_in_full():
    found = lint(EXAMPLES)

    assert found.problems == ()
    assert [(change.line, change.what, change.when) for change in found.changes] == [
        (6, "gpu-hpn-driver", "the pod meets alibabacloud.com/compute-class=gpu-hpn"),
        (17, "sharing.timeSlicing.renameByDefault", ""),
        (18, "sharing.timeSlicing.failRequestsGreaterThanOne", ""),
        (19, "sharing.timeSlicing.resources", ""),
    ]
    assert found.changes[0].sets == {
        "metadata.labels[alibabacloud.com/gpu-driver-version]": "1.5.0"
    }


@pytest.mark.parametrize(
    ("old", "new", "line", "path", "code"),
    [
        ("replicas: 4", "replicas: 1", 20, "resources[0].replicas", Code.POLICY),
        ('"1.5.0"', '"1.5.0,"', 8, "labels[alibabacloud.com/gpu-driver-version]", Code.PROFILE),
        ('"name"', "name", 6, "", Code.PROFILE),
        ("data:\n  any", "dota:\n  any", 10, "data", Code.POLICY),
        ("kind: ConfigMap", "kind ConfigMap", 3, "", Code.POLICY),
        (EXAMPLES, "\ngangs: {ageing: 1}", 2, "gangs.ageing", Code.POLICY),
    ],
    ids=["plugin", "profile", "profile syntax", "no data", "yaml", "policy"],
)
def test_an_error_has_the_line_of_the_file(old, new, line, path, code):
    [problem] = lint(EXAMPLES.replace(old, new)).problems

    assert (problem.line, problem.code, problem.severity) == (line, code, Severity.ERROR)
    assert problem.path.endswith(path)


def test_with_an_error_the_other_texts_of_a_file_are_still_judged():
    found = lint(EXAMPLES.replace("replicas: 4", "replicas: 1"))

    assert [change.what for change in found.changes] == ["gpu-hpn-driver"]


def test_a_policys_changes_are_what_differs_from_the_defaults():
    text = "strict: true\ncapacity: deny\ngangs:\n  domains: [rack]\n  ageingMinutes: 10\n"

    found = lint(text)

    assert [(change.line, change.sets) for change in found.changes] == [
        (2, {"capacity": "deny"}),
        (4, {"gangs.domains": ["rack"]}),
    ]


@pytest.mark.parametrize(
    ("judge", "text"),
    [(lint, ""), (lint_policy, ""), (lint_profiles, " "), (lint_plugin_config, "")],
)
def test_of_a_blank_text_there_is_nothing_to_say(judge, text):
    assert (judge(text).problems, judge(text).changes) == ((), ())


@given(profiles())
def test_each_selector_is_printed_with_all_its_additions(raw):
    changes = lint_profiles(json.dumps(raw)).changes

    assert [change.what for change in changes] == [one["name"] for one in raw]
    for change, one in zip(changes, raw, strict=True):
        effect = one.get("effect", {})
        count = len(effect.get("labels", {})) + len(effect.get("annotations", {}))
        assert len(change.sets) == count


@given(st.text())
def test_any_text_can_be_judged(text):
    found = lint(text)

    assert all(problem.line >= 1 for problem in found.problems)


KEYS = st.sampled_from(("kind", "apiVersion", "data", "sharing", "version", "machines")) | (
    st.sampled_from(("name", "selectors", "policy.yaml", "objectSelector", "effect", "labels", "~"))
)
ANY = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats()
    | st.sampled_from(("ConfigMap", "Policy", "[]", "[{}]", "a: {}", "off"))
    | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(KEYS, inner, max_size=4),
    max_leaves=15,
)


@settings(max_examples=300)
@given(ANY)
def test_any_value_is_read_or_refused_with_problems(value):
    text = yaml.safe_dump(value)
    for found in (lint(text), lint_policy(text), lint_plugin_config(text), lint_profiles(text)):
        assert all(problem.message for problem in found.problems)


@given(ANY)
def test_any_json_is_read_or_refused_with_problems(value):
    text = json.dumps(value)
    for found in (lint(text), lint_policy(text), lint_plugin_config(text), lint_profiles(text)):
        assert all(problem.message for problem in found.problems)
