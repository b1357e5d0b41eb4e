from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from linkwise.cluster.nodes.node import Taint
from linkwise.cluster.objects.affinity import LabelSelector, Toleration
from linkwise.cluster.objects.pod import PodSpec
from linkwise.cluster.objects.selector import (
    check_label_selector,
    label_key_problem,
    label_value_problem,
    node_matches,
    tolerates,
)

LABELS = {"app": "mpi", "gpus": "8", "empty": ""}


def a_selector(**fields: Any) -> LabelSelector:
    return msgspec.convert(fields, LabelSelector)


def requiring(key: str, operator: str, *values: str) -> dict[str, Any]:
    return {"key": key, "operator": operator, **({"values": list(values)} if values else {})}


def a_spec(*terms: dict[str, Any], selector: dict[str, str] | None = None) -> PodSpec:
    required = {"nodeSelectorTerms": list(terms)}
    affinity = {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": required}}
    return msgspec.convert({"nodeSelector": selector, "affinity": affinity}, PodSpec)


@pytest.mark.parametrize(
    ("requirement", "expected"),
    [
        (requiring("app", "In", "mpi", "tf"), True),
        (requiring("app", "In", "tf"), False),
        (requiring("absent", "In", "mpi"), False),
        (requiring("app", "NotIn", "tf"), True),
        (requiring("app", "NotIn", "mpi"), False),
        (requiring("absent", "NotIn", "mpi"), True),
        (requiring("empty", "Exists"), True),
        (requiring("absent", "Exists"), False),
        (requiring("absent", "DoesNotExist"), True),
        (requiring("empty", "DoesNotExist"), False),
        (requiring("app", "exists"), False),
    ],
    ids=lambda case: " ".join(map(str, case.values())) if isinstance(case, dict) else "",
)
def test_an_expression_holds_as_kubernetes_defines_it(requirement, expected):
    assert node_matches(a_spec({"matchExpressions": [requirement]}), "n1", LABELS) is expected


_words = st.sampled_from(("a", "b", "c"))


@given(st.dictionaries(_words, _words), _words, st.lists(_words, min_size=1))
def test_not_in_is_the_opposite_of_in(labels, key, values):
    inside, outside = (
        a_spec({"matchExpressions": [requiring(key, operator, *values)]})
        for operator in ("In", "NotIn")
    )

    assert node_matches(inside, "n1", labels) != node_matches(outside, "n1", labels)


@pytest.mark.parametrize(
    ("selector", "paths"),
    [
        ({"matchLabels": {"alibabacloud.com/compute-class": "gpu", "a": ""}}, []),
        ({"matchExpressions": [requiring("a", "In", "x"), requiring("b", "DoesNotExist")]}, []),
        ({"matchLabels": {"a b": "x y"}}, ["matchLabels[a b]", "matchLabels[a b]"]),
        ({"matchExpressions": [requiring("a", "In")]}, ["matchExpressions[0].values"]),
        ({"matchExpressions": [requiring("a", "NotIn")]}, ["matchExpressions[0].values"]),
        ({"matchExpressions": [requiring("a", "Exists", "x")]}, ["matchExpressions[0].values"]),
        (
            {"matchExpressions": [requiring("a", "Exists"), requiring("a", "DoesNotExist", "x")]},
            ["matchExpressions[1].values"],
        ),
        ({"matchExpressions": [requiring("a", "Gt", "1")]}, ["matchExpressions[0].operator"]),
        (
            {"matchExpressions": [requiring("-a", "In", "x", "y y")]},
            ["matchExpressions[0].key", "matchExpressions[0].values[1]"],
        ),
    ],
)
def test_each_broken_selector_rule_is_reported_with_its_path(selector, paths):
    problems = check_label_selector(a_selector(**selector))

    assert [problem.path for problem in problems] == paths
    assert all(problem.message and problem.fix for problem in problems)


@pytest.mark.parametrize(
    "key",
    ["a", "A.b_c-9", "x" * 63, "example.org/a", "a.b-c.d/x", f"{'a' * 253}/x", "1/1"],
    ids=lambda key: key[:20],
)
def test_a_valid_label_key_has_no_problem(key):
    assert label_key_problem(key) is None


@pytest.mark.parametrize(
    "key",
    [
        *("", "/a", "a/", "a/b/c", "A.org/x", "a..b/x", "-a/x", f"{'a' * 254}/x"),
        *("x" * 64, "a-", "_a", "a\n", "é", "a~b"),
    ],
    ids=lambda key: repr(key[:20]),
)
def test_invalid_label_key_is_reported(key):
    assert label_key_problem(key)


def test_a_label_value_is_short_and_begins_and_ends_with_a_letter_or_digit():
    assert all(
        label_value_problem(value) is None for value in ("", "535.161.08", "x" * 63, "a_B-c")
    )
    assert all(label_value_problem(value) for value in ("x" * 64, "-a", "a.", "a/b", "a b", "a\n"))


@pytest.mark.parametrize(
    ("term", "expected"),
    [
        ({"matchExpressions": [requiring("gpus", "Gt", "4")]}, True),
        ({"matchExpressions": [requiring("gpus", "Gt", "8")]}, False),
        ({"matchExpressions": [requiring("gpus", "Lt", "+16")]}, True),
        ({"matchExpressions": [requiring("gpus", "Lt", "-1")]}, False),
        ({"matchExpressions": [requiring("app", "Gt", "4")]}, False),
        ({"matchExpressions": [requiring("absent", "Lt", "4")]}, False),
        ({"matchExpressions": [requiring("gpus", "Gt", "4.5")]}, False),
        ({"matchExpressions": [requiring("gpus", "Gt", "1_0")]}, False),
        ({"matchExpressions": [requiring("gpus", "Gt", "4", "5")]}, False),
        ({"matchExpressions": [requiring("gpus", "Lt", str(2**63 - 1))]}, True),
        ({"matchExpressions": [requiring("gpus", "Lt", str(2**63))]}, False),
        ({"matchFields": [requiring("metadata.name", "In", "n1", "n2")]}, True),
        ({"matchFields": [requiring("metadata.name", "In", "n2")]}, False),
        ({"matchFields": [requiring("metadata.name", "NotIn", "n2")]}, True),
        ({"matchFields": [requiring("metadata.name", "Exists")]}, False),
        ({"matchFields": [requiring("metadata.uid", "NotIn", "n2")]}, False),
        (
            {
                "matchExpressions": [requiring("app", "In", "mpi")],
                "matchFields": [requiring("metadata.name", "In", "n2")],
            },
            False,
        ),
        ({}, False),
        ({"matchExpressions": [], "matchFields": []}, False),
    ],
)
def test_a_node_satisfies_a_term_when_all_of_it_holds(term, expected):
    assert node_matches(a_spec(term), "n1", LABELS) is expected


def test_one_satisfied_term_is_enough():
    no, yes = ({"matchExpressions": [requiring("app", "In", app)]} for app in ("tensorflow", "mpi"))

    assert node_matches(a_spec(no, yes), "n1", LABELS)
    assert not node_matches(a_spec(no, no), "n1", LABELS)


def test_a_required_affinity_without_terms_matches_no_node():
    assert not node_matches(a_spec(), "n1", LABELS)


def test_the_node_selector_must_hold_beside_the_affinity():
    term = {"matchExpressions": [requiring("app", "Exists")]}

    assert node_matches(a_spec(term, selector={"gpus": "8"}), "n1", LABELS)
    assert not node_matches(a_spec(term, selector={"gpus": "4"}), "n1", LABELS)


@pytest.mark.parametrize(
    "spec",
    [{}, {"affinity": {}}, {"affinity": {"nodeAffinity": {}}}, {"nodeSelector": {"app": "mpi"}}],
    ids=str,
)
def test_a_pod_without_required_terms_goes_wherever_its_node_selector_lets_it(spec):
    assert node_matches(msgspec.convert(spec, PodSpec), "n1", LABELS)


GPU_TAINT = Taint("nvidia.com/gpu", "present", "NoSchedule")


@pytest.mark.parametrize(
    ("toleration", "expected"),
    [
        ({"key": "nvidia.com/gpu", "operator": "Exists"}, True),
        ({"key": "nvidia.com/gpu", "operator": "Exists", "effect": "NoSchedule"}, True),
        ({"key": "nvidia.com/gpu", "operator": "Exists", "effect": "NoExecute"}, False),
        ({"operator": "Exists"}, True),
        ({"operator": "Exists", "effect": "NoExecute"}, False),
        ({"key": "nvidia.com/gpu", "value": "present"}, True),
        ({"key": "nvidia.com/gpu", "operator": "", "value": "present"}, True),
        ({"key": "nvidia.com/gpu", "value": "absent"}, False),
        ({"key": "other", "value": "present"}, False),
        ({"value": "present"}, False),
        ({"key": "nvidia.com/gpu", "operator": "Like", "value": "present"}, False),
    ],
    ids=str,
)
def test_a_toleration_covers_a_taint_as_kubernetes_defines_it(toleration, expected):
    assert tolerates([msgspec.convert(toleration, Toleration)], GPU_TAINT) is expected


def test_only_no_schedule_and_no_execute_keep_pods_away():
    assert tolerates(None, Taint("a", "", "PreferNoSchedule"))
    assert not tolerates(None, Taint("a", "", "NoSchedule"))
    assert not tolerates((), Taint("a", "", "NoExecute"))
