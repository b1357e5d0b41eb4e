import json

import pytest

from linkwise.cluster import keys
from linkwise.cluster.finding import Code, Severity
from linkwise.policy.lint import lint_profiles

GPU = {"matchLabels": {keys.COMPUTE_CLASS: "gpu"}}


def selecting(name="one", labels=None, annotations=None, **selectors):
    effect = {"labels": labels if labels is not None else {"x": "1"}}
    return {"name": name, **selectors, "effect": {**effect, "annotations": annotations or {}}}


def wanting(key, operator, *values):
    return {"matchExpressions": [{"key": key, "operator": operator, "values": list(values)}]}


def warnings(*selectors):
    problems = lint_profiles(json.dumps(selectors, indent=1)).problems
    assert all(problem.severity is Severity.WARNING and problem.fix for problem in problems)
    return [(problem.code.value, problem.path) for problem in problems]


def test_a_selector_that_requires_what_reaches_the_webhook_is_clean():
    assert warnings(selecting(objectSelector=GPU)) == []


def test_a_selector_without_any_is_risky():
    assert warnings(selecting()) == [("LW503", "[0]")]


@pytest.mark.parametrize(
    ("selectors", "reaches"),
    [
        ({"namespaceSelector": {"matchLabels": {"team": "a"}}}, False),
        ({"objectSelector": {"matchLabels": {"app": "a"}}}, False),
        ({"objectSelector": wanting(keys.COMPUTE_CLASS, "NotIn", "gpu")}, False),
        ({"objectSelector": wanting(keys.COMPUTE_CLASS, "DoesNotExist")}, False),
        ({"objectSelector": wanting("network.alibabacloud.com/x", "Exists")}, False),
        ({"objectSelector": wanting(keys.MODEL_SERIES, "Exists")}, True),
        ({"objectSelector": wanting(keys.POD_GROUP, "Exists")}, True),
        ({"objectSelector": wanting(keys.POD_GROUP_NAME, "In", "g")}, True),
        (
            {"objectSelector": {"matchLabels": {"app": "a", keys.COMPUTE_CLASS: "gpu"}}},
            True,
        ),
    ],
    ids=range(9),
)
def test_selector_that_can_match_skipped_pods_is_reported(selectors, reaches):
    expected = [] if reaches else [("LW505", "[0].objectSelector")]

    assert warnings(selecting(**selectors)) == expected


def chains(first, second):
    found = warnings(
        selecting("first", {"y": "1"}, **first),
        selecting("second", {"z": "1"}, objectSelector=second),
    )
    return [path for code, path in found if code == Code.CHAINED_SELECTOR.value]


def with_gpu(requirement):
    return {**GPU, **requirement}


@pytest.mark.parametrize(
    ("first", "second", "chained"),
    [
        (GPU, wanting("y", "In", "1"), True),
        (GPU, wanting("y", "Exists"), True),
        (GPU, wanting("y", "In", "2"), False),
        (GPU, wanting("y", "NotIn", "2"), False),
        (GPU, wanting("y", "DoesNotExist"), False),
        (wanting("y", "Exists"), wanting("y", "In", "1"), False),
        ({"matchLabels": {keys.COMPUTE_CLASS: "gpu-hpn"}}, with_gpu(wanting("y", "Exists")), False),
        ({"matchLabels": {keys.COMPUTE_CLASS: "gpu"}}, with_gpu(wanting("y", "Exists")), True),
    ],
    ids=[
        "sets the value",
        "sets the label",
        "sets another value",
        "matched before",
        "matched before, not after",
        "adds only where it is there",
        "never the same pod",
        "the same pod",
    ],
)
def test_selector_that_the_effect_of_another_satisfies_is_a_warning(first, second, chained):
    found = chains({"objectSelector": first}, second)

    assert found == (["[1].objectSelector"] if chained else [])


def test_selectors_of_different_namespaces_do_not_chain():
    one, two = ({"namespaceSelector": {"matchLabels": {"team": team}}} for team in "ab")
    second = selecting("second", objectSelector=wanting("y", "Exists"), **two)

    found = warnings(selecting("first", {"y": "1"}, **one), second)

    assert Code.CHAINED_SELECTOR.value not in [code for code, _ in found]


def test_duplicate_selector_names_are_reported():
    found = warnings(
        selecting(objectSelector=GPU), selecting(labels={"y": "1"}, objectSelector=GPU)
    )

    assert found == [("LW501", "[1].name")]


def test_selector_that_can_never_match_is_reported():
    never = with_gpu(wanting(keys.COMPUTE_CLASS, "DoesNotExist"))

    assert warnings(selecting(objectSelector=never)) == [("LW501", "[0]")]
    assert warnings(selecting(objectSelector=GPU, namespaceSelector=never)) == [("LW501", "[0]")]


def test_selector_that_adds_nothing_is_reported():
    assert warnings({"name": "one", "objectSelector": GPU}) == [("LW501", "[0]")]


def test_effect_always_preceded_by_another_selector_is_reported():
    narrow = {"objectSelector": {"matchLabels": {**GPU["matchLabels"], "app": "a"}}}
    wide = {"objectSelector": GPU}

    assert warnings(selecting("a", **wide), selecting("b", {"x": "2", "y": "1"}, **narrow)) == [
        ("LW501", "[1].effect.labels.x")
    ]
    assert warnings(selecting("a", **narrow), selecting("b", **wide)) == []


@pytest.mark.parametrize(
    ("key", "whose"),
    [
        (keys.ALLOCATION, "the record"),
        (f"{keys.VISIBLE_DEVICES_OF}main", "the record"),
        (keys.MEM_IDX, "the record"),
        (keys.COMPUTE_CLASS, "the platform"),
        (keys.HOSTNAME, "Kubernetes"),
        ("app.kubernetes.io/name", None),
        (keys.LINK, None),
        ("kubernetes.io", None),
    ],
)
def test_effect_on_a_key_of_another_owner_is_a_warning(key, whose):
    text = json.dumps([selecting(labels={}, annotations={key: "v"}, objectSelector=GPU)])

    found = lint_profiles(text).problems

    assert [problem.code for problem in found] == ([Code.RISKY_SELECTOR] if whose else [])
    assert all(f"belongs to {whose}" in problem.message for problem in found)


def test_selectors_beyond_the_comparison_limit_are_reported():
    labels = {f"k{i}": "v" for i in range(2000)}
    many = [selecting(name, labels, objectSelector={"matchLabels": labels}) for name in "ab"]

    found = lint_profiles(json.dumps(many)).problems

    assert any("too many selectors on the same labels" in problem.message for problem in found)


def test_a_warning_has_the_line_of_what_it_means():
    text = """[{"name": "a",
        "objectSelector": {"matchLabels": {"app": "a"}},
        "effect": {"labels": {
            "kubernetes.io/x": "1"}}}]"""

    assert [problem.line for problem in lint_profiles(text).problems] == [2, 4]
