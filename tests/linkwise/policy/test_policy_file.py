import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from linkwise.policy.policy_file import Kind, read_policy_file
from linkwise.policy.problem import PolicyError

PROFILE = """\
apiVersion: v1
kind: ConfigMap
metadata: {name: acs-profile, namespace: kube-system}
data:
  vpcId: vpc-1
  selectors: |
    [{"name": "a"}]
"""
PLUGIN = """\
apiVersion: v1
kind: ConfigMap
metadata: {name: nvidia-device-plugin-config}
data:
  any: |-
    sharing:
      timeSlicing:
        resources:
        - {name: nvidia.com/gpu, replicas: 4}
  other: |-
    version: v1
"""
POLICY = "apiVersion: linkwise.dev/v1alpha1\nkind: Policy\nstrict: false\n"


def read(text):
    return [(found.kind, found.name, found.at.outer(1)) for found in read_policy_file(text)]


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("", [(Kind.POLICY, "", 1)]),
        ("# a comment\n", [(Kind.POLICY, "", 1)]),
        (POLICY, [(Kind.POLICY, "", 1)]),
        ("strict: false\n", [(Kind.POLICY, "", 1)]),
        ("sharing: {groups: []}\n", [(Kind.POLICY, "", 1)]),
        ('[{"name": "a"}]', [(Kind.PROFILES, "", 1)]),
        ("\ufeff\n [", [(Kind.PROFILES, "", 1)]),
        (PROFILE, [(Kind.PROFILES, "selectors", 7)]),
        (
            json.dumps({"kind": "ConfigMap", "data": {"selectors": "[]"}}),
            [(Kind.PROFILES, "selectors", 1)],
        ),
        ("kind: ConfigMap\ndata:\n  policy.yaml: ''\n", [(Kind.POLICY, "policy.yaml", 3)]),
        (PLUGIN, [(Kind.SHARING, "any", 6), (Kind.SHARING, "other", 11)]),
        ("version: v1\nsharing: {mps: {}}\n", [(Kind.SHARING, "", 1)]),
        ("sharing: {timeSlicing: {}}\n", [(Kind.SHARING, "", 1)]),
        (
            f"{PROFILE}---\n{POLICY}---\n{PLUGIN}",
            [
                (Kind.PROFILES, "selectors", 7),
                (Kind.POLICY, "", 9),
                (Kind.SHARING, "any", 18),
                (Kind.SHARING, "other", 23),
            ],
        ),
    ],
    ids=range(14),
)
def test_file_kind_is_recognized_by_content(text, found):
    assert read(text) == found


def test_each_bare_document_is_found_with_its_own_text():
    first, second = read_policy_file("strict: true\n---\nstrict: false\n")

    assert first.text.startswith("strict: true")
    assert second.text == "strict: false\n"


def test_a_literal_blocks_text_is_found_without_its_indent():
    [found] = read_policy_file(PROFILE)

    assert found.text == '[{"name": "a"}]\n'


@pytest.mark.parametrize(
    ("text", "line", "path", "message", "fix"),
    [
        ("a: [", 2, "", "not YAML", "write it as YAML or JSON"),
        ("- name: a\n", 1, "", "this is no policy", "write a Policy"),
        ("kind: Pod\n", 1, "kind", "a Pod is no policy", "write a Policy"),
        ("kind: {}\n", 1, "kind", "no text as its kind", "write a Policy"),
        ("kind: [Policy]\n", 1, "kind", "no text as its kind", "write a Policy"),
        ("kind: ConfigMap\n", 1, "data", "has no data", "put selectors under"),
        ("kind: ConfigMap\ndata:\n  a: hello\n", 3, "data.a", "holds no policy", "put selectors"),
        (
            "kind: ConfigMap\ndata:\n  selectors:\n  - name: a\n",
            3,
            "data.selectors",
            "values of a ConfigMap are text",
            "put a | after selectors:",
        ),
    ],
    ids=[
        "syntax",
        "list",
        "pod",
        "a map as kind",
        "a list as kind",
        "no data",
        "other data",
        "no text",
    ],
)
def test_text_that_is_not_a_policy_is_an_error_with_its_line(text, line, path, message, fix):
    with pytest.raises(PolicyError) as caught:
        read_policy_file(text)

    [problem] = caught.value.problems
    assert (problem.line, problem.path) == (line, path)
    assert message in problem.message
    assert problem.fix.startswith(fix)


def test_plugin_file_with_a_mistake_is_still_recognised():
    text = "kind: ConfigMap\ndata:\n  a: |\n    sharing: [\n"

    assert read(text) == [(Kind.SHARING, "a", 4)]


@given(st.text() | st.text(alphabet="kind: CofgMap\ndt[]{}|-"))
def test_any_text_is_parsed_or_refused(text):
    try:
        found = read_policy_file(text)
    except PolicyError as error:
        found = error.problems

    assert found
