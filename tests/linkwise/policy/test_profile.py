import json
from itertools import product

import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.strategies import profile_labels, profiles

from linkwise.cluster import keys
from linkwise.cluster.finding import Code, Severity
from linkwise.manifest.lines import Embedded
from linkwise.policy.lint import lint_profiles
from linkwise.policy.profile import PolicyError, parse_profiles

DRIVER = """\
[{"name": "gpu-hpn-driver",
  "objectSelector": {"matchLabels": {"alibabacloud.com/compute-class": "gpu-hpn"}},
  "effect": {"labels": {"alibabacloud.com/gpu-driver-version": "1.5.0"}}}]
"""


def parsed(*selectors):
    return parse_profiles(json.dumps(selectors))


def problems(text):
    with pytest.raises(PolicyError) as caught:
        parse_profiles(text)
    return caught.value.problems


def adding(name, labels=None, **selectors):
    return {"name": name, **selectors, "effect": {"labels": labels or {}}}


APP_A = {"matchLabels": {"app": "a"}}


def test_the_example_of_acs_adds_its_driver_version():
    result = parse_profiles(DRIVER).apply({keys.COMPUTE_CLASS: "gpu-hpn"}, {}, {})

    assert result.added_labels == {keys.DRIVER_VERSION: "1.5.0"}
    assert result.labels == {keys.COMPUTE_CLASS: "gpu-hpn", keys.DRIVER_VERSION: "1.5.0"}
    [trace] = result.trace
    assert (trace.name, trace.matched) == ("gpu-hpn-driver", True)
    assert trace.reason == f"the pod meets {keys.COMPUTE_CLASS}=gpu-hpn"
    assert trace.added == {f"metadata.labels[{keys.DRIVER_VERSION}]": "1.5.0"}


def test_a_pods_own_value_stands():
    own = {keys.COMPUTE_CLASS: "gpu-hpn", keys.DRIVER_VERSION: "2.0.0"}

    result = parse_profiles(DRIVER).apply(own, {}, {})

    assert result.labels == own
    assert result.added_labels == {}
    assert result.trace[0].kept == (f"metadata.labels[{keys.DRIVER_VERSION}]",)


def test_all_that_match_apply_and_the_first_wins():
    profiles = parsed(
        adding("one", {"x": "1", "y": "1"}),
        adding("two", {"x": "2"}, objectSelector={"matchLabels": {"app": "b"}}),
        adding("three", {"y": "3", "z": "3"}, objectSelector=APP_A),
    )

    result = profiles.apply({"app": "a"}, {}, {})

    assert result.added_labels == {"x": "1", "y": "1", "z": "3"}
    assert [trace.matched for trace in result.trace] == [True, False, True]
    assert result.trace[2].kept == ("metadata.labels[y]",)


def test_effects_make_no_other_selector_match():
    profiles = parsed(adding("one", {"app": "a"}), adding("two", {"x": "2"}, objectSelector=APP_A))

    assert profiles.apply({}, {}, {}).added_labels == {"app": "a"}


def test_annotations_are_added_beside_labels():
    profiles = parsed({"name": "one", "effect": {"annotations": {"n": "{}"}, "labels": {"n": "l"}}})

    result = profiles.apply({}, {"own": "1"}, {})

    assert result.annotations == {"own": "1", "n": "{}"}
    assert result.added_annotations == {"n": "{}"}
    assert result.trace[0].added == {"metadata.labels[n]": "l", "metadata.annotations[n]": "{}"}


@pytest.mark.parametrize(
    ("labels", "namespace", "reason"),
    [
        ({}, {"team": "t"}, "objectSelector wants app=a; the pod has no such label"),
        ({"app": "b"}, {"team": "t"}, "objectSelector wants app=a; the pod has app=b"),
        (
            {"app": "a"},
            {},
            "namespaceSelector wants team In (t, u); the namespace has no such label",
        ),
        (
            {"app": "a"},
            {"team": "v"},
            "namespaceSelector wants team In (t, u); the namespace has team=v",
        ),
        (
            {"app": "a"},
            None,
            "namespaceSelector cannot be judged: the namespace's labels are not known",
        ),
    ],
    ids=["absent", "other", "namespace absent", "namespace other", "namespace unknown"],
)
def test_a_selector_that_does_not_match_says_why(labels, namespace, reason):
    both = {
        "namespaceSelector": {
            "matchExpressions": [{"key": "team", "operator": "In", "values": ["t", "u"]}]
        },
        "objectSelector": APP_A,
    }

    result = parsed(adding("both", {"x": "1"}, **both)).apply(labels, {}, namespace)

    assert result.trace[0].reason == reason
    assert (result.trace[0].matched, result.labels) == (False, labels)


def test_both_selectors_must_match():
    both = {"namespaceSelector": {"matchLabels": {"team": "t"}}, "objectSelector": APP_A}

    result = parsed(adding("both", {"x": "1"}, **both)).apply({"app": "a"}, {}, {"team": "t"})

    assert result.trace[0].reason == "the namespace meets team=t and the pod meets app=a"


@pytest.mark.parametrize(
    "selectors", [{}, {"objectSelector": {}, "namespaceSelector": None}], ids=["none", "empty"]
)
def test_without_a_requirement_every_pod_matches(selectors):
    result = parsed(adding("all", {"x": "1"}, **selectors)).apply({}, {}, None)

    assert result.trace[0].reason == "it selects every pod"
    assert result.labels == {"x": "1"}


@pytest.mark.parametrize("text", ["", " \n", "[]"])
def test_a_blank_text_has_no_selectors(text):
    assert parse_profiles(text).selectors == ()


def test_equal_selectors_have_equal_canonical_texts():
    assert parse_profiles(DRIVER).text == parse_profiles(DRIVER.replace(" ", "  ")).text


BAD = """\
[{"name": " ",
  "priority": 1,
  "objectselector": {}},
 {"namespaceSelector": {"matchLabels": {"a b": "x",
                                        "c": "-"}},
  "objectSelector": {"matchExpressions": [{"key": "a", "operator": "In"},
   {"key": "a", "operator": "Near", "values": ["x"]},
   {"key": "a", "operator": "Exists", "values": ["x",
     "?"]}]},
  "effect": {"labels": {"d": "e f"},
   "annotations": {"G/h": "any text", "i j": "k"}}},
 {"name": "three", "objectSelector": {"matchLabel": {}},
  "effect": {"labels": {"x": 1}, "annotation": {}}},
 "four"]
"""


def test_all_problems_come_at_once_with_line_path_and_fix():
    found = problems(BAD)

    assert [(problem.line, problem.path) for problem in found] == [
        (1, "[0].name"),
        (2, "[0].priority"),
        (3, "[0].objectselector"),
        (4, "[1].name"),
        (4, "[1].namespaceSelector.matchLabels[a b]"),
        (5, "[1].namespaceSelector.matchLabels.c"),
        (6, "[1].objectSelector.matchExpressions[0].values"),
        (7, "[1].objectSelector.matchExpressions[1].operator"),
        (8, "[1].objectSelector.matchExpressions[2].values"),
        (9, "[1].objectSelector.matchExpressions[2].values[1]"),
        (10, "[1].effect.labels.d"),
        (11, "[1].effect.annotations[i j]"),
        (12, "[2].objectSelector.matchLabel"),
        (13, "[2].effect.annotation"),
        (13, "[2].effect.labels.x"),
        (14, "[3]"),
    ]
    assert {(problem.code, problem.severity) for problem in found} == {
        (Code.PROFILE, Severity.ERROR)
    }
    assert all(problem.message and problem.fix for problem in found)


def test_an_unknown_key_comes_with_the_nearest_known_one():
    [problem] = problems('[{"name": "a", "objectselector": {}}]')

    assert (problem.message, problem.fix) == (
        "unknown key 'objectselector'",
        "write objectSelector",
    )


def test_an_unknown_key_like_none_comes_with_the_list():
    [problem] = problems('[{"name": "a", "weight": 1}]')

    assert problem.fix == "known keys here: effect, name, namespaceSelector, objectSelector"


@pytest.mark.parametrize(
    ("text", "line", "message", "fix"),
    [
        ("{}", 1, "must be a valid array", "write a list"),
        ("null", 1, "must be a valid array", "write a list"),
        ("[\n# all pods\n]", 2, "not JSON", "delete the comment"),
        ("[\n{]", 2, "not JSON", "write a JSON array"),
        ('[{"name": "a",\n"name": "b"}]', 2, "stands already on line 1", "write a JSON array"),
        ('[{"name": NaN}]', 1, "NaN is no number", "write a JSON array"),
        ('[{"name": "a", "objectSelector": []}]', 1, "must be an object", "write a mapping"),
    ],
    ids=["object", "null", "comment", "syntax", "key twice", "NaN", "list for selector"],
)
def test_text_that_is_not_an_array_of_selectors_is_refused(text, line, message, fix):
    [problem] = problems(text)

    assert problem.line == line
    assert message in problem.message
    assert problem.fix.startswith(fix)


def test_lines_of_a_text_in_a_file_are_lines_of_the_file():
    with pytest.raises(PolicyError, match=r"line 11: \[0\]: must be an object") as caught:
        parse_profiles("[\n1]", at=Embedded(10))

    assert [problem.line for problem in caught.value.problems] == [11]


JSONISH = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=3),
    lambda inner: (
        st.lists(inner, max_size=2)
        | st.dictionaries(
            st.sampled_from(
                ("name", "objectSelector", "matchLabels", "matchExpressions", "effect", "labels")
            ),
            inner,
            max_size=3,
        )
    ),
)


@given(st.text() | st.lists(JSONISH, max_size=2).map(json.dumps) | JSONISH.map(json.dumps))
def test_any_text_gives_profiles_or_problems(text):
    try:
        found = parse_profiles(text).selectors
    except PolicyError as error:
        found = error.problems

    assert found or text.strip() in {"", "[]"}


@given(profiles(), profile_labels(), profile_labels(), profile_labels() | st.none())
def test_profiles_only_add(raw, labels, annotations, namespace):
    result = parsed(*raw).apply(labels, annotations, namespace)

    assert result.labels == {**result.added_labels, **labels}
    assert result.annotations == {**result.added_annotations, **annotations}
    assert result.labels.keys() - labels.keys() == result.added_labels.keys()


@given(profiles(), profile_labels(), profile_labels() | st.none())
def test_each_added_label_is_that_of_the_first_match_that_has_it(raw, labels, namespace):
    result = parsed(*raw).apply(labels, {}, namespace)

    effects = [
        one.get("effect", {}).get("labels", {})
        for one, trace in zip(raw, result.trace, strict=True)
        if trace.matched
    ]
    for key in {key for effect in effects for key in effect} - labels.keys():
        first = next(effect[key] for effect in effects if key in effect)
        assert result.labels[key] == first


WANTED = (
    {},
    *(
        {"matchExpressions": [{"key": key, "operator": operator}]}
        for key in ("app", "team")
        for operator in ("Exists", "DoesNotExist")
    ),
    {"matchLabels": {"app": "a"}},
    {"matchLabels": {"app": "a", "team": "a"}},
)
EFFECTS = ({"app": "a"}, {"team": "a"}, {"app": "b", "team": "a"})
PODS = ({}, {"app": "a"}, {"team": "a"}, {"app": "b"}, {"app": "a", "team": "a"})


def test_a_second_time_nothing_is_added_unless_lint_warned_of_a_chain():
    selectors = [(wanted, effect) for wanted in WANTED for effect in EFFECTS]
    chains = 0
    for pair in product(selectors, repeat=2):
        raw = [adding("s", effect, objectSelector=wanted) for wanted, effect in pair]
        profiles = parsed(*raw)

        once = [profiles.apply(pod, {}, {}) for pod in PODS]
        twice = [profiles.apply(result.labels, {}, {}) for result in once]

        if any(result.added_labels for result in twice):
            chains += 1
            found = lint_profiles(json.dumps(raw)).problems
            assert Code.CHAINED_SELECTOR in {problem.code for problem in found}
    assert chains
