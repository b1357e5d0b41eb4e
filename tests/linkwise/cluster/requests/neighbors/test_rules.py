"""The rules of a pod about other pods are read as kube-scheduler reads them."""

import msgspec
import pytest
from support.builders import a_pod

from linkwise.cluster.keys import NAMESPACE_NAME
from linkwise.cluster.objects.pod import Pod
from linkwise.cluster.requests.neighbors.neighbor import neighbor_of
from linkwise.cluster.requests.neighbors.rules import (
    MAX_TERMS,
    MAX_VALUES,
    NO_RULES,
    neighbor_rules,
)

REQUIRED = "requiredDuringSchedulingIgnoredDuringExecution"


def rules_of(labels=None, **spec):
    return neighbor_rules(msgspec.convert(a_pod(labels=labels, **spec), Pod), "default")


def near(**term):
    return {"affinity": {"podAffinity": {REQUIRED: [{"topologyKey": "zone", **term}]}}}


def selected(namespace, of, **pod):
    (term,) = rules_of(**pod).affinity
    return term.pods.matches(namespace, of)


def test_pod_without_rules_costs_nothing():
    assert rules_of() is NO_RULES
    assert not NO_RULES


def test_equal_rules_are_one_object():
    first, second = (rules_of(**near(labelSelector={"matchLabels": {"a": "x"}})) for _ in "ab")

    assert first is second
    assert hash(first) == hash(second)


@pytest.mark.parametrize(
    ("term", "namespaces"),
    [
        ({}, {"default"}),
        ({"namespaces": ["other"]}, {"other"}),
        ({"namespaceSelector": {}}, {"default", "other", "third"}),
        ({"namespaces": ["third"], "namespaceSelector": {"matchLabels": {NAMESPACE_NAME: "other"}}},
         {"other", "third"}),
    ],
    ids=["own", "named", "all", "named and selected"],
)  # fmt: skip
def test_namespaces_of_a_term(term, namespaces):
    pod = near(labelSelector={}, **term)

    assert {n for n in ("default", "other", "third") if selected(n, {}, **pod)} == namespaces


def test_term_that_selects_namespaces_by_labels_is_left_to_kube_scheduler():
    rules = rules_of(**near(labelSelector={}, namespaceSelector={"matchLabels": {"team": "a"}}))

    assert not rules.affinity
    assert rules.delegated == ("pod affinity that selects namespaces by labels",)


def test_missing_selector_selects_no_pod_and_an_empty_one_every_pod():
    assert not selected("default", {"a": "x"}, **near())
    assert selected("default", {"a": "x"}, **near(labelSelector={}))


def test_selector_with_an_unknown_operator_selects_no_pod():
    wrong = {"matchExpressions": [{"key": "a", "operator": "Near", "values": ["x"]}]}

    assert not selected("default", {"a": "x"}, **near(labelSelector=wrong))


def test_label_keys_select_pods_with_the_values_of_the_pod():
    keys = {"matchLabelKeys": ["hash"], "mismatchLabelKeys": ["group"]}
    pod = {**near(labelSelector={}, **keys), "labels": {"hash": "1", "group": "a"}}

    assert selected("default", {"hash": "1", "group": "b"}, **pod)
    assert not selected("default", {"hash": "2", "group": "b"}, **pod)
    assert not selected("default", {"hash": "1", "group": "a"}, **pod)


@pytest.mark.parametrize(
    "pod",
    [
        {"affinity": {"podAntiAffinity": {REQUIRED: [{"topologyKey": "zone"}] * (MAX_TERMS + 1)}}},
        near(namespaces=[f"n{i}" for i in range(MAX_VALUES + 1)]),
        {"topologySpreadConstraints": [{"matchLabelKeys": ["k"] * (MAX_VALUES + 1)}]},
        near(
            labelSelector={
                "matchExpressions": [
                    {"key": "a", "operator": "In", "values": ["v"] * (MAX_VALUES + 1)}
                ]
            }
        ),
    ],
    ids=["terms", "namespaces", "keys", "values"],
)
def test_too_many_terms_and_values_are_not_kept(pod):
    rules = rules_of(**pod)

    assert not rules
    assert "are planned: give the pods that are meant a label in common" in rules.oversize


def test_pods_with_equal_labels_share_what_others_see_of_them():
    pods = [msgspec.convert(a_pod(name=name, labels={"app": "a"}), Pod) for name in "ab"]

    assert neighbor_of(pods[0], "default") is neighbor_of(pods[1], "default")
    assert neighbor_of(pods[0], "default") != neighbor_of(pods[0], "other")
