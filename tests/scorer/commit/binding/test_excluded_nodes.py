"""Nodes that are not used for a unit for a while."""

import json

import pytest
from support.builders import a_node, a_seen
from support.servers.leader_harness import NOW, Clock

from linkwise.cluster import keys
from linkwise.cluster.gang import GangKey
from linkwise.planning.gang.exclusion import exclusion_id, exclusion_key
from linkwise.planning.gang.owners import Owners
from linkwise.planning.gang.unit import units_of
from linkwise.planning.state.cluster_state import ClusterState
from scorer.commit.binding.excluded_nodes import PUBLISHED, ExcludedNodes
from scorer.commit.binding.node_cause import cause_at

KEY = GangKey("team", "bert", "job")
JOB = {"apiVersion": "kubeflow.org/v1", "kind": "PyTorchJob", "name": "bert", "uid": "job"}
MARK = {keys.POD_GROUP_NAME: "bert", keys.POD_GROUP_MIN_AVAILABLE: "1"}
NO_OWNERS = Owners({}, {})


class Nodes:
    """Two nodes, a pod of others on the first, and exclusions."""

    def __init__(self):
        self.state, self.clock = ClusterState(), Clock()
        for name in ("gpu-0", "gpu-1"):
            self.state.update_node(name, a_node(name))
        self.pod("other")
        self.excluded = ExcludedNodes(self.state, self.clock)

    def pod(self, name, **pod):
        seen = a_seen(0, name, gates=(), nodeName="gpu-0", phase="Running", **pod)
        self.state.update_pod(seen.key, seen)

    def delete(self, name):
        self.state.update_pod(("team", name), None)

    @property
    def now(self):
        self.excluded.update()
        return self.excluded.of(bert())


def bert(gpus=1, name="bert"):
    labels = {**MARK, keys.POD_GROUP_NAME: name}
    (unit,) = units_of([a_seen(gpus, f"{name}-0", labels=labels, owner=JOB)], NO_OWNERS)
    return unit


@pytest.fixture
def nodes():
    return Nodes()


def test_a_node_is_excluded_for_three_minutes_with_the_reason(nodes):
    nodes.excluded.exclude(KEY, frozenset({"gpu-0"}), "Too many pods")
    assert {name: (each.until, each.why) for name, each in nodes.now.items()} == {
        "gpu-0": (NOW + 180, "Too many pods")
    }
    assert nodes.excluded.of(bert(name="other")) == {}
    nodes.clock.now += 180
    assert nodes.now == {}
    assert nodes.excluded.ends() == []


@pytest.mark.parametrize(
    "change",
    [
        pytest.param(lambda nodes: nodes.delete("other"), id="a pod has ended"),
        pytest.param(
            lambda nodes: nodes.state.update_node("gpu-0", a_node("gpu-0", labels={"a": "b"})),
            id="a label",
        ),
        pytest.param(lambda nodes: nodes.state.update_node("gpu-0", None), id="deleted"),
    ],
)
def test_it_ends_once_the_cause_may_be_gone(nodes, change):
    nodes.excluded.exclude(KEY, frozenset({"gpu-0"}), "")
    assert nodes.now
    change(nodes)
    assert not nodes.now


@pytest.mark.parametrize(
    "change",
    [
        pytest.param(lambda nodes: nodes.delete("bert-0"), id="a pod of the unit has ended"),
        pytest.param(lambda nodes: nodes.pod("new"), id="a pod has come"),
        pytest.param(
            lambda nodes: nodes.state.update_node("gpu-1", a_node("gpu-1", labels={"a": "b"})),
            id="another node",
        ),
    ],
)
def test_it_does_not_end_for_anything_else(nodes, change):
    nodes.pod("bert-0")
    causes = {"gpu-0": cause_at(nodes.state, "gpu-0", frozenset({"bert-0"}))}
    nodes.excluded.exclude(KEY, frozenset({"gpu-0"}), "", causes=causes)
    change(nodes)
    assert nodes.now


def test_what_changed_before_the_exclusion_ends_it_too(nodes):
    causes = {"gpu-0": cause_at(nodes.state, "gpu-0")}
    nodes.delete("other")
    nodes.excluded.exclude(KEY, frozenset({"gpu-0"}), "", causes=causes)
    assert not nodes.now


def test_it_does_not_hold_for_a_unit_that_asks_for_something_else(nodes):
    asked = frozenset(member.signature for member in bert().members)
    nodes.excluded.exclude(KEY, frozenset({"gpu-0"}), "", asked=asked)
    assert nodes.excluded.of(bert(1)).keys() == {"gpu-0"}
    assert nodes.excluded.of(bert(2)) == {}


def test_where_it_is_refused_again_it_ends_later_and_later(nodes):
    lasted = []
    for i in range(7):
        nodes.excluded.exclude(KEY, frozenset({"gpu-0"}), "")
        began, name = nodes.clock.now, f"passing-{i}"
        nodes.pod("other" if i % 2 else name)
        nodes.delete("other" if i % 2 == 0 else f"passing-{i - 1}")
        while nodes.now:
            nodes.clock.now += 1
        lasted.append(nodes.clock.now - began)
    assert lasted == [0, 10, 20, 40, 80, 160, 180]


def test_few_exclusions_are_kept_the_latest_ones(nodes):
    for i in range(1030):
        nodes.excluded.exclude(GangKey("team", f"g{i}", ""), frozenset({"gpu-0"}), "")
    nodes.excluded.exclude(KEY, frozenset(f"gpu-{i}" for i in range(2000)), "")
    assert len(nodes.now) == 1024
    assert not nodes.excluded.is_said_elsewhere(GangKey("team", "g1029", ""), "", frozenset())


def test_one_namespace_neither_pushes_out_nor_hides_the_exclusions_of_others(nodes):
    nodes.excluded.exclude(KEY, frozenset({"gpu-0"}), "")
    for i in range(1100):
        nodes.excluded.exclude(GangKey("hostile", str(i), ""), frozenset({"gpu-0"}), "")
    many = frozenset(f"{'n' * 100}-{i}" for i in range(200))
    nodes.excluded.exclude(GangKey("hostile", "many", ""), many, "")

    assert nodes.now
    nodes.excluded.exclude(KEY, frozenset({"gpu-0"}), "")
    nodes.excluded.exclude(GangKey("hostile", "many", ""), many, "")
    assert exclusion_id(KEY) in nodes.excluded.published()


def test_little_is_written_into_the_lease_the_latest_exclusions(nodes):
    for i in range(1000):
        nodes.excluded.exclude(GangKey("team", f"g{i}", ""), frozenset({f"gpu-{'x' * 200}"}), "")
    nodes.excluded.exclude(KEY, frozenset({"gpu-0"}), "")
    published = nodes.excluded.published()
    assert published[exclusion_id(KEY)] == {"gpu-0": NOW + 180}
    assert 0.8 * PUBLISHED < len(json.dumps(published)) < PUBLISHED
    nodes.clock.now += 180
    assert nodes.excluded.published() == {}


def single(name, gpus=1, kind="ReplicaSet", uid="web"):
    owner = {"apiVersion": "apps/v1", "kind": kind, "name": "web", "uid": uid}
    (unit,) = units_of([a_seen(gpus, name, owner=owner)], NO_OWNERS)
    return unit


@pytest.mark.parametrize(
    ("one", "other", "same"),
    [
        pytest.param(single("a"), single("b"), True, id="a replacement"),
        pytest.param(single("a"), single("b", gpus=2), False, id="another shape"),
        pytest.param(single("a"), single("a", uid="new"), False, id="another owner"),
        pytest.param(
            single("web-0", kind="StatefulSet"),
            single("web-1", kind="StatefulSet"),
            False,
            id="another ordinal",
        ),
    ],
)
def test_exclusions_of_single_pods_are_those_of_their_owner_and_shape(one, other, same):
    assert (exclusion_key(one) == exclusion_key(other)) is same


def test_the_next_leader_excludes_the_same_nodes(nodes):
    nodes.excluded.exclude(KEY, frozenset({"gpu-0", "gpu-1"}), "Too many pods")
    following = Nodes()
    following.clock.now += 60
    following.excluded.restore(nodes.excluded.published())
    assert {name: each.until for name, each in following.now.items()} == {
        "gpu-0": NOW + 180,
        "gpu-1": NOW + 180,
    }
    # It does not know how often they were refused: for a while, no change ends them.
    following.delete("other")
    assert following.now.keys() == {"gpu-0", "gpu-1"}
    following.clock.now += 10
    assert following.now.keys() == {"gpu-1"}
    following.clock.now += 110
    assert following.now == {}


def test_exclusions_that_ended_meanwhile_are_not_restored(nodes):
    nodes.excluded.exclude(KEY, frozenset({"gpu-0"}), "")
    published = nodes.excluded.published()
    nodes.clock.now += 180
    nodes.excluded.restore(published)
    assert nodes.now == {}
    assert nodes.excluded.ends() == []


@pytest.mark.parametrize(
    ("until", "lasts"),
    [
        pytest.param(1e300, True, id="far in the future"),
        pytest.param(-1e300, False, id="long ago"),
        pytest.param(NOW, False, id="now"),
    ],
)
def test_no_restored_exclusion_lasts_longer_than_others(nodes, until, lasts):
    nodes.excluded.restore({exclusion_id(KEY): {"gpu-0": until}})
    assert bool(nodes.now) is lasts
    nodes.clock.now += 180
    assert nodes.now == {}


def test_of_very_many_restored_exclusions_few_are_kept(nodes):
    many = {f"{i:020x}": {"gpu-0": NOW + 100} for i in range(5000)}
    nodes.excluded.restore({exclusion_id(KEY): {"gpu-0": NOW + 100}, **many})
    assert nodes.now
    assert len(nodes.excluded.ends()) <= 2 * 1024
