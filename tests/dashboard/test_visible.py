"""Nothing of a hidden namespace appears in any document of the page."""

import json
from dataclasses import replace

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.dashboard import CLUSTER, JOB

from dashboard.visible import ALL, ANOTHER, Visible, namespaces_of, seen_by
from linkwise.dashboard.feed import Feed
from linkwise.dashboard.moment import Moment
from linkwise.dashboard.queries import Views
from linkwise.dashboard.trial import Trial
from linkwise.manifest.objects import objects_in
from linkwise.views.files.cluster_file import collect_objects
from linkwise.views.files.current_cluster import current_cluster

KEY = b"k" * 32
TEAMS = ("red", "green", "blue")
VIEWS = (Views.node, Views.waiting, Views.unit, Views.namespaces, Views.past, Views.sets)
POD = """
---
apiVersion: v1
kind: Pod
metadata:
  name: {team}-pod-{i}
  uid: {team}-uid-{i}
  namespace: {team}
  labels: {{app: {team}-label}}
  annotations: {annotations}
spec:
  {where}
  containers:
  - name: {team}-container
    resources: {{limits: {{aliyun.com/gpu: 1}}}}
"""
NAMESPACE = """
---
apiVersion: v1
kind: Namespace
metadata: {name: TEAM, labels: {owner: TEAM-owner}}
---
apiVersion: batch/v1
kind: Job
metadata: {name: TEAM-job, namespace: TEAM, uid: TEAM-job}
spec: {completions: 2, parallelism: 2}
"""
GATED = "schedulingGates: [{name: linkwise.dev/gang}]"


def a_pod(i, team, gpu, kind):
    """Return a pod that is bound, waits, or has a record that cannot be read."""
    gang = f"linkwise.dev/gang: {team}-gang, linkwise.dev/gang-size: '1'"
    record = json.dumps({"v": 1, "node": "dgx-0", "gpus": [{"i": gpu}]})
    allocation = f"{team}-text" if kind in {"wrong", "conflict"} else record
    annotations = f"{{{gang}, linkwise.dev/allocation: {json.dumps(allocation)}}}"
    if kind == "waits":
        annotations = f"{{{gang}}}"
    where = {"waits": GATED, "conflict": ""}.get(kind, "nodeName: dgx-0")
    return POD.format(i=i, team=team, annotations=annotations, where=where)


def a_cluster(*pods):
    text = CLUSTER + "".join(NAMESPACE.replace("TEAM", team) for team in TEAMS) + "".join(pods)
    objects = collect_objects(objects_in(text, "cluster.yaml"), "cluster.yaml")
    current = current_cluster(objects, "default", "cluster.yaml")
    gangs = tuple(
        {
            "metadata": {"name": f"{team}-gang", "namespace": team},
            "spec": {"gang": f"{team}-gang"},
            "status": {"reason": f"{team}-reason"},
        }
        for team in TEAMS
    )
    return replace(current, gangs=gangs)


def documents(current):
    """Return all that a viewer can get of a cluster, and what it is computed from, as text."""
    moment = Moment(current, 0.0)
    feed = Feed(lambda: 0.0, live=True)
    try:
        feed.history.add(moment)
        feed._moment = moment
        queries = [
            {"name": node, "at": "1", "kind": kind, "namespace": team}
            for node in ("dgx-0", "dgx-1", *(f"{team}-gang" for team in TEAMS))
            for kind in ("gang", "pod")
            for team in TEAMS
        ]
        shown = [view(Views(feed), query)() for view in VIEWS for query in queries]
        shown += [list(moment.rows.values()), feed._facts()]
        shown.append(Trial(JOB.replace("GPUS", "2"), lambda: False).on(moment))
    finally:
        feed.close()
    kept = [value.plain for value in current.objects], current.gangs, current.cluster.pods
    return msgspec.json.encode([shown, kept, current.cluster.ledger.conflicts]).decode()


@st.composite
def clusters(draw):
    """Draw pods of several teams; two of them may claim one GPU."""
    kinds = st.sampled_from(["bound", "waits", "wrong", "conflict"])
    drawn = draw(st.lists(st.tuples(st.sampled_from(TEAMS), st.integers(0, 7), kinds), max_size=8))
    return a_cluster(*(a_pod(i, *each) for i, each in enumerate(drawn)))


@settings(max_examples=40)
@given(clusters(), st.sets(st.sampled_from(TEAMS)))
def test_no_document_names_anything_of_a_hidden_namespace(current, seen):
    text = documents(seen_by(current, Visible(frozenset(seen)), KEY))

    for team in set(TEAMS) - seen:
        assert team not in text.replace("colour", "")


@settings(max_examples=40)
@given(clusters(), st.sets(st.sampled_from(TEAMS)))
def test_every_viewer_sees_the_same_free_gpus(current, seen):
    whole, reduced = (
        Moment(current, 0.0),
        Moment(seen_by(current, Visible(frozenset(seen)), KEY), 0.0),
    )

    assert [row.states for row in reduced.rows.values()] == [
        row.states for row in whole.rows.values()
    ]
    assert [group.sets for group in reduced.slots] == [group.sets for group in whole.slots]


def test_the_own_pods_keep_their_names_and_others_share_one_namespace():
    current = a_cluster(a_pod(0, "red", 0, "bound"), a_pod(1, "blue", 1, "bound"))

    row = Moment(seen_by(current, Visible(frozenset({"red"})), KEY), 0.0).rows["dgx-0"]

    assert {(holder.pod.partition("/")[0], holder.gang) for holder in row.holders} == {
        ("red", "red/red-gang"),
        (ANOTHER, ""),
    }


def test_a_hidden_pod_keeps_its_pseudonym_which_depends_on_the_key():
    current, hidden = a_cluster(a_pod(0, "red", 0, "bound")), Visible(frozenset())

    def names(key):
        return [
            holding.pod
            for ledger in seen_by(current, hidden, key).cluster.ledger.nodes.values()
            for holding in ledger.holdings.values()
            if holding.pod.startswith(ANOTHER)
        ]

    assert names(KEY) == names(KEY)
    assert names(KEY) != names(b"other")


def test_of_the_only_namespace_manifests_are_that_name_none():
    current = a_cluster()

    assert seen_by(current, Visible(frozenset({"red"})), KEY).namespace == "red"
    assert seen_by(current, Visible(frozenset({"red", "blue"})), KEY).namespace == "default"


def test_the_reason_of_an_agent_is_hidden_since_it_may_name_pods():
    current = a_cluster()
    node = current.cluster.ledger.nodes["dgx-0"]
    ledger = replace(node, unaccounted="its agent reports: GPU 3 is used by blue/blue-pod")
    nodes = {**current.cluster.ledger.nodes, "dgx-0": ledger}
    cluster = replace(current.cluster, ledger=replace(current.cluster.ledger, nodes=nodes))
    current = replace(current, cluster=cluster)

    assert "blue-pod" in documents(current)
    assert "blue-pod" not in documents(seen_by(current, Visible(frozenset({"red"})), KEY))


def test_who_sees_all_sees_the_cluster_itself():
    current = a_cluster(a_pod(0, "red", 0, "bound"))

    assert seen_by(current, ALL, KEY) is current


@pytest.mark.parametrize("kind", ["bound", "waits"])
def test_namespaces_with_pods_on_gpus_come_first(kind):
    current = a_cluster(a_pod(0, "red", 0, kind), a_pod(1, "green", 1, "bound"))

    names = list(namespaces_of(current))

    assert names[0] == "green"
    assert set(TEAMS) <= set(names)
    assert len(names) == len(set(names))
