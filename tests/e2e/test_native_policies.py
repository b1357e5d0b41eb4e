"""The output of `linkwise policy export` in a real API server, which must decide as the webhook."""

import json

import pytest
from controlplane.api import refusal
from controlplane.pods import a_pod
from controlplane.process import wait_until

from linkwise.admission.decide.native_policy import Target, native_policies
from linkwise.cluster.keys import MODEL_SERIES
from linkwise.cluster.objects.selector import REQUIRED_PATH
from linkwise.policy.document import parse_policy
from linkwise.policy.profile import parse_profiles
from linkwise.policy.snapshot import PolicySnapshot

POLICY = "profilesAll: true\ncatalogue: {replace: true, models: {X1: {aliases: [X1A]}}}\n"
TEAM = {"key": "team", "operator": "In", "values": ["a", "b"]}
NOTE = 'say "hi" \\ \u00e9 \U0001f600\n'
SELECTORS = [
    {
        "name": "first",
        "namespaceSelector": {"matchExpressions": [TEAM]},
        "objectSelector": {
            "matchExpressions": [
                {"key": "x", "operator": "DoesNotExist"},
                {"key": "app", "operator": "NotIn", "values": ["no"]},
            ]
        },
        "effect": {
            "labels": {"example.com/queue": "q", "both": "a"},
            "annotations": {"note": NOTE},
        },
    },
    {
        "name": "second",
        "objectSelector": {"matchLabels": {"app": "train"}},
        "effect": {"labels": {"both": "b", "x": "early"}},
    },
    {
        "name": "third",
        "objectSelector": {"matchExpressions": [{"key": "x", "operator": "Exists"}]},
        "effect": {"labels": {"both": "c", "late": ""}},
    },
]
PODS = {
    "without labels": {},
    "by the second, which does not trigger the third": {"app": "train"},
    "excluded": {"app": "no"},
    "by the third": {"x": "1", "app": "no"},
    "by both": {"x": "1", "app": "train"},
    "with a value of its own": {"app": "train", "both": "own"},
}
PROFILES = parse_profiles(json.dumps(SELECTORS))


@pytest.fixture(scope="module")
def exported(plane):
    policy = PolicySnapshot(parse_policy(POLICY), PROFILES)
    items = native_policies(policy, frozenset(Target))
    text = json.dumps({"apiVersion": "v1", "kind": "List", "items": items})
    applied = plane.kubectl("apply", "-f", "-", stdin=text)
    assert applied.returncode == 0, applied.stderr
    yield
    plane.kubectl("delete", "-f", "-", stdin=text)


@pytest.fixture
def create(plane, namespace, exported):
    del exported

    def send(body):
        return plane.api.create(f"/api/v1/namespaces/{namespace}/pods", body, dryRun="All")

    def both_hold():
        changed = send(a_pod("probe", labels={"app": "train"}))["metadata"]["labels"]
        return "both" in changed and "LW203" in refusal(lambda: send(of_model("unknown")))

    wait_until(both_hold, "both policies are in force")
    return send


@pytest.mark.usefixtures("bare")
@pytest.mark.parametrize("team", [None, "a", "c"])
def test_profiles_add_what_the_webhook_adds(plane, namespace, create, team):
    of_namespace = {"team": team} if team else {}
    plane.api.patch(f"/api/v1/namespaces/{namespace}", {"metadata": {"labels": of_namespace}})

    def added(labels, annotations):
        metadata = create(a_pod("p", labels=labels, annotations=annotations))["metadata"]
        return metadata.get("labels", {}), metadata.get("annotations", {})

    def expected(labels, annotations):
        result = PROFILES.apply(labels, annotations, of_namespace)
        return result.labels, result.annotations

    # The API server reads namespaces from a cache.
    wait_until(lambda: added({}, {}) == expected({}, {}), "the label of the namespace is known")
    for annotations in ({}, {"note": "own"}):
        for name, labels in PODS.items():
            assert added(labels, annotations) == expected(labels, annotations), name


def of_model(*names, by="labels"):
    if by == "labels":
        return a_pod("p", labels={MODEL_SERIES: names[0]})
    if by == "nodeSelector":
        return a_pod("p", nodeSelector={MODEL_SERIES: names[0]})
    requirement = {"key": MODEL_SERIES, "operator": "In", "values": list(names)}
    terms = [{"matchExpressions": [requirement]}]
    field = REQUIRED_PATH.rpartition(".")[2]
    return a_pod("p", affinity={"nodeAffinity": {field: {"nodeSelectorTerms": terms}}})


@pytest.mark.usefixtures("bare")
@pytest.mark.parametrize("by", ["labels", "nodeSelector", "affinity"])
def test_only_models_of_the_catalogue_are_accepted(create, by):
    assert create(a_pod("p"))
    assert create(of_model("X1", by=by))
    assert create(of_model("X1A", by=by))
    assert "LW203" in refusal(lambda: create(of_model("x1", by=by)))
    assert by != "affinity" or "LW203" in refusal(lambda: create(of_model("X1", "other", by=by)))
