"""The namespaces that rules select follow their labels, within bounds."""

import msgspec
import pytest
from support.builders import a_held_pod, a_pod

from linkwise.cluster.objects.pod import Pod
from linkwise.planning.gang.pod_info import pod_info
from linkwise.runtime.kube.client import Kube
from scorer.cache.workloads.namespace_informer import (
    NAMESPACE_SELECTORS_MAX,
    SELECTORS_MAX,
    NamespaceInformer,
)

REQUIRED = "requiredDuringSchedulingIgnoredDuringExecution"


class Namespaces:
    """An informer of namespaces, without its watch."""

    def __init__(self):
        self.told = []
        self.labels = {}
        self.informer = NamespaceInformer(Kube("http://localhost"), self.told.append)

    def put(self, **labels):
        """Set the label `team` of some namespaces; None: it is deleted."""
        for name, team in labels.items():
            if team is None:
                del self.labels["", name]
            else:
                self.labels["", name] = {"team": team}
        self.informer._changed(self.labels, {("", name) for name in labels})

    def add(self, pod):
        self.informer.update(pod.key, pod)
        return self.informer.complete(pod)


@pytest.fixture
def namespaces():
    return Namespaces()


def a_term(team):
    selector = {"matchLabels": {"team": team}}
    return {"topologyKey": "zone", "labelSelector": {}, "namespaceSelector": selector}


def a_waiting(name="w", teams="a", namespace="team"):
    affinity = {"podAffinity": {REQUIRED: [a_term(team) for team in teams]}}
    raw = a_held_pod(1, name, affinity=affinity)
    raw["metadata"]["namespace"] = namespace
    return pod_info(msgspec.convert(raw, Pod))


def a_running(name="r", team="a"):
    affinity = {"podAntiAffinity": {REQUIRED: [a_term(team)]}}
    raw = a_pod(affinity=affinity, nodeName="gpu-0", name=name)
    return pod_info(msgspec.convert(raw, Pod))


def selected(pod):
    return [set(term.pods.namespaces) for term in pod.member.rules.affinity]


def test_until_namespaces_are_listed_their_labels_are_left_to_kube_scheduler(namespaces):
    pod = a_waiting()
    assert namespaces.add(pod).member.rules.delegated
    namespaces.put(one="a", two="b")
    assert namespaces.told == [{pod.key}]
    assert selected(namespaces.informer.complete(pod)) == [{"one"}]


def test_pods_are_updated_when_other_namespaces_are_selected(namespaces):
    namespaces.put(one="a", two="b")
    waiting, running, other = a_waiting(), a_running(), a_waiting("other", "c")
    for pod in (waiting, running, other):
        namespaces.add(pod)
    namespaces.put(three="b")
    assert namespaces.told == []
    namespaces.put(two="a")
    assert namespaces.told == [{waiting.key, running.key}]
    assert selected(namespaces.informer.complete(waiting)) == [{"one", "two"}]
    (term,) = namespaces.informer.complete(running).usage.neighbor.repels
    assert term.pods.namespaces == {"one", "two"}
    namespaces.put(one=None)
    assert selected(namespaces.informer.complete(waiting)) == [{"two"}]


def test_selectors_of_pods_that_are_gone_are_not_followed(namespaces):
    namespaces.put(one="a")
    first, second = a_waiting("first"), a_waiting("second")
    namespaces.add(first)
    namespaces.add(second)
    namespaces.informer.update(first.key, None)
    assert namespaces.informer.followed == 1
    namespaces.informer.update(second.key, a_waiting("second", ""))
    assert namespaces.informer.followed == 0


def test_a_namespace_with_many_selectors_does_not_hide_those_of_others(namespaces):
    namespaces.put(one="a")
    many = [a_waiting(f"h{i}", [f"t{i}"], "hostile") for i in range(100)]
    left = [bool(namespaces.add(pod).member.rules.delegated) for pod in many]
    assert left == [False] * NAMESPACE_SELECTORS_MAX + [True] * (100 - NAMESPACE_SELECTORS_MAX)
    assert selected(namespaces.add(a_waiting())) == [{"one"}]


def test_a_limited_number_of_selectors_is_followed(namespaces):
    namespaces.put(one="a")
    for i in range(SELECTORS_MAX + 100):
        namespaces.add(a_waiting(f"h{i}", [f"t{i}"], f"hostile-{i}"))
    assert namespaces.informer.followed == SELECTORS_MAX
