"""Nodes on which nobody is evicted for a unit again."""

import json
import subprocess
import sys

import pytest
from support.builders import a_node, a_seen

from linkwise.cluster import keys
from linkwise.planning.gang.exclusion import exclusion_id, lasting_digest
from linkwise.planning.gang.owners import Owners
from linkwise.planning.gang.unit import units_of
from linkwise.planning.state.cluster_state import ClusterState
from scorer.commit.binding.vain_preemptions import PUBLISHED, VainPreemptions

NO_OWNERS = Owners({}, {})
JOB = {"apiVersion": "kubeflow.org/v1", "kind": "PyTorchJob", "name": "bert", "uid": "job"}


def single(name, gpus=1, uid="web", namespace="team"):
    owner = {"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": "web", "uid": uid}
    (unit,) = units_of([a_seen(gpus, name, owner=owner, namespace=namespace)], NO_OWNERS)
    return unit


def gang(gpus=1):
    labels = {keys.POD_GROUP_NAME: "bert", keys.POD_GROUP_MIN_AVAILABLE: "1"}
    (unit,) = units_of([a_seen(gpus, "bert-0", labels=labels, owner=JOB)], NO_OWNERS)
    return unit


def preempted_in_vain(vain, unit, *nodes):
    vain.placed(unit.key, nodes)
    vain.not_bound(unit, frozenset(nodes))


def with_nodes():
    state = ClusterState()
    for name in ("gpu-0", "gpu-1"):
        state.update_node(name, a_node(name))
    return state


@pytest.fixture
def state():
    return with_nodes()


@pytest.fixture
def vain(state):
    return VainPreemptions(state)


def test_nobody_is_evicted_again_where_a_unit_was_not_bound_then(state, vain):
    unit, again = single("a", 8), single("b", 8)
    vain.not_bound(unit, frozenset({"gpu-0"}))
    assert vain.nodes(again) == frozenset()
    vain.placed(unit.key, ["gpu-0"])
    vain.not_bound(unit, frozenset({"gpu-0", "gpu-1"}))
    assert vain.nodes(again) == {"gpu-0"}
    assert vain.nodes(single("b", 4)) == frozenset()
    state.update_node("gpu-0", a_node("gpu-0", labels={"a": "b"}))
    assert vain.nodes(again) == frozenset()


def test_a_unit_that_was_bound_may_preempt_again(vain):
    unit = single("a", 8)
    preempted_in_vain(vain, unit, "gpu-0")
    vain.bound(single("c", 8))
    assert vain.nodes(unit) == frozenset()
    assert vain.published() == {}


def test_few_preemptions_in_vain_are_kept(vain):
    units = [single("a", uid=f"uid-{i}") for i in range(1030)]
    for unit in units:
        preempted_in_vain(vain, unit, "gpu-0")
    assert sum(map(bool, map(vain.nodes, units))) == 1024


def test_of_one_unit_a_limited_number_of_nodes_is_kept(vain):
    unit = single("a")
    preempted_in_vain(vain, unit, *(f"gone-{i}" for i in range(900)))
    preempted_in_vain(vain, unit, *(f"lost-{i}" for i in range(900)))
    assert len(vain.nodes(unit)) == 1024


def test_one_namespace_neither_pushes_out_nor_hides_those_of_others(vain):
    unit, placed = single("a"), single("c", uid="placed")
    preempted_in_vain(vain, unit, "gpu-0")
    vain.placed(placed.key, ["gpu-1"])
    for i in range(1100):
        hostile = single("a", uid=f"uid-{i}", namespace="hostile")
        preempted_in_vain(vain, hostile, "gpu-0")
        vain.placed(single(f"h-{i}", namespace="hostile").key, ["gpu-0"])
    many = single("many", uid="many", namespace="hostile")
    preempted_in_vain(vain, many, *(f"{'n' * 100}-{i}" for i in range(200)))
    assert vain.nodes(unit) == {"gpu-0"}
    published = vain.published()
    assert published[exclusion_id(placed.key)] == {"gpu-1": ""}
    assert any("gpu-0" in nodes for nodes in published.values() if nodes != {"gpu-0": ""})
    assert len(json.dumps(published)) <= PUBLISHED
    following = VainPreemptions(with_nodes())
    following.restore(published)
    assert following.nodes(unit) == {"gpu-0"}


def test_the_next_leader_evicts_nobody_there_either(state, vain):
    preempted_in_vain(vain, single("a", 8), "gpu-0")
    following = VainPreemptions(with_nodes())
    following.restore(vain.published())
    assert following.nodes(single("b", 8)) == {"gpu-0"}
    assert following.published() == vain.published()
    state.update_node("gpu-0", a_node("gpu-0", labels={"a": "b"}))
    meanwhile = VainPreemptions(state)
    meanwhile.restore(vain.published())
    assert meanwhile.nodes(single("b", 8)) == frozenset()


def test_for_the_next_leader_a_gang_that_asks_for_something_else_may_preempt(vain):
    preempted_in_vain(vain, gang(), "gpu-0")
    following = VainPreemptions(with_nodes())
    following.restore(vain.published())
    assert following.nodes(gang()) == {"gpu-0"}
    assert following.nodes(gang(gpus=2)) == frozenset()


def test_a_unit_that_is_not_bound_yet_is_known_to_the_next_leader(vain):
    unit = single("a", 8)
    vain.placed(unit.key, ["gpu-0"])
    following = VainPreemptions(with_nodes())
    following.restore(vain.published())
    assert following.nodes(unit) == frozenset()
    following.not_bound(unit, frozenset({"gpu-0"}))
    assert following.nodes(single("b", 8)) == {"gpu-0"}


def test_a_node_that_is_gone_is_no_reason_once_it_is_back(state, vain):
    state.update_node("gpu-0", None)
    preempted_in_vain(vain, single("a"), "gpu-0")
    assert vain.nodes(single("b")) == {"gpu-0"}
    state.update_node("gpu-0", a_node("gpu-0"))
    assert vain.nodes(single("b")) == frozenset()


DIGEST = """
from support.builders import a_node
from linkwise.planning.gang.exclusion import lasting_digest
labels = {str(i): "x" for i in range(50)}
print(lasting_digest(a_node("gpu-0", labels=labels)))
"""


def test_the_digest_of_a_node_is_the_same_in_another_process():
    labels = {str(i): "x" for i in range(50)}
    command = [sys.executable, "-c", DIGEST]
    paths = {"PYTHONPATH": ":".join(filter(None, sys.path)), "PYTHONHASHSEED": "1"}
    ran = subprocess.run(command, capture_output=True, text=True, check=True, env=paths)  # noqa: S603
    assert ran.stdout.strip() == lasting_digest(a_node("gpu-0", labels=labels))
