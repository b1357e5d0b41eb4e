"""Namespaces that rules about other pods select by labels."""

import msgspec
import pytest
from support.builders import a_pod

from linkwise.cluster.keys import NAMESPACE_NAME
from linkwise.cluster.objects.pod import Pod
from linkwise.cluster.requests.neighbors.namespaces import (
    LABELS_MAX,
    NamespaceObject,
    neighbor_with_namespaces,
    rules_with_namespaces,
    selecting,
)
from linkwise.cluster.requests.neighbors.neighbor import REPELS_MAX, VALUES_MAX, neighbor_of
from linkwise.cluster.requests.neighbors.rules import NO_RULES, neighbor_rules

REQUIRED = "requiredDuringSchedulingIgnoredDuringExecution"
OF_A = {"matchLabels": {"team": "a"}}
SELECT = selecting({"one": {"team": "a"}, "two": {"team": "a"}, "three": {"team": "b"}})
UNKNOWN = selecting(None)


def pod_of(kind="podAffinity", *terms):
    required = [{"topologyKey": "zone", "labelSelector": {}, **term} for term in terms]
    return msgspec.convert(a_pod(affinity={kind: {REQUIRED: required}}), Pod)


def rules_of(*terms, kind="podAffinity"):
    return neighbor_rules(pod_of(kind, *terms), "default")


@pytest.mark.parametrize(
    ("term", "namespaces"),
    [
        ({"namespaceSelector": OF_A}, {"one", "two"}),
        ({"namespaceSelector": OF_A, "namespaces": ["three", "gone"]},
         {"one", "two", "three", "gone"}),
        ({"namespaceSelector": {"matchLabels": {"team": "c"}}}, set()),
        ({"namespaceSelector": {"matchExpressions": [{"key": "team", "operator": "Exists"}]}},
         {"one", "two", "three"}),
    ],
    ids=["selected", "selected and named", "none", "every one with a label"],
)  # fmt: skip
def test_a_term_names_the_namespaces_that_it_selects(term, namespaces):
    rules = rules_with_namespaces(rules_of(term), SELECT)

    (found,) = rules.affinity
    assert found.pods.namespaces == namespaces
    assert (rules.delegated, rules.unresolved) == ((), ())


def test_where_namespaces_are_not_known_only_terms_that_select_by_labels_are_left():
    rules = rules_of({"namespaces": ["x"]}, {"namespaceSelector": OF_A}, kind="podAntiAffinity")

    left = rules_with_namespaces(rules, UNKNOWN)

    assert [term.pods.namespaces for term in left.anti_affinity] == [{"x"}]
    assert left.delegated == ("pod anti-affinity that selects namespaces by labels",)
    assert rules_with_namespaces(NO_RULES, SELECT) is NO_RULES


def test_anti_affinity_of_a_neighbor_keeps_pods_of_the_selected_namespaces_away():
    neighbor = neighbor_of(pod_of("podAntiAffinity", {"namespaceSelector": OF_A}), "default")
    assert neighbor.repels == ()

    named = neighbor_with_namespaces(neighbor, SELECT)

    (term,) = named.repels
    assert term.pods.namespaces == {"one", "two"}
    again = neighbor_with_namespaces(neighbor, SELECT)
    assert again == named
    assert again.repels[0] is term
    assert neighbor_with_namespaces(neighbor, UNKNOWN) == neighbor


def test_few_terms_of_a_neighbor_that_select_namespaces_are_kept():
    def selecting_team(*teams):
        one = {"key": "team", "operator": "In", "values": list(teams)}
        return {"namespaceSelector": {"matchExpressions": [one]}}

    many = [selecting_team(str(i)) for i in range(REPELS_MAX + 2)]
    large = selecting_team(*map(str, range(VALUES_MAX)))

    assert len(neighbor_of(pod_of("podAntiAffinity", *many), "x").unresolved) == REPELS_MAX
    assert neighbor_of(pod_of("podAntiAffinity", large), "x").unresolved == ()


def test_labels_of_a_namespace_have_its_name_and_are_bounded():
    def labels_of(labels):
        metadata = {"name": "one", "labels": labels}
        return msgspec.convert({"metadata": metadata}, NamespaceObject).labels

    assert labels_of({"a": "x"}) == {"a": "x", NAMESPACE_NAME: "one"}
    assert labels_of(None) == {NAMESPACE_NAME: "one"}
    assert labels_of({"a": "x" * LABELS_MAX}) == {NAMESPACE_NAME: "one"}
