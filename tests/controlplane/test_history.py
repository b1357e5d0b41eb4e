import json

import pytest
from controlplane.history import History, Write

from linkwise.cluster import keys


def a_pod(name, gpus=(), *, on="", asks=1, uid="", phase="Running"):
    """Return a pod of a gang of two, with GPUs of `node`."""
    record = {"node": "node", "gpus": [{"i": index} for index in gpus]}
    limits = {keys.GPU_WHOLE: str(asks)}
    return {
        "metadata": {
            "name": name,
            "namespace": "team",
            "uid": uid or name,
            "labels": {keys.POD_GROUP_NAME: "bert", keys.POD_GROUP_MIN_AVAILABLE: "2"},
            "annotations": {keys.ALLOCATION: json.dumps(record)} if gpus else {},
        },
        "spec": {"nodeName": on, "containers": [{"resources": {"limits": limits}}]},
        "status": {"phase": phase},
    }


def gone(name):
    return {**a_pod(name), "gone": True}


def written(*pods):
    """Return a history of one write a second."""
    writes = [Write(float(at), pod, pod.pop("gone", False)) for at, pod in enumerate(pods)]
    return History(None, writes)


def test_a_gpu_given_while_another_pod_has_it_is_found():
    history = written(a_pod("a", [0, 1], asks=2), a_pod("b", [1]))
    assert history.held_twice() == ["('node', 1) given to team/b, which a has"]


@pytest.mark.parametrize(
    "end",
    [gone("a"), a_pod("a", [0], phase="Succeeded")],
    ids=["deleted", "succeeded"],
)
def test_a_gpu_is_free_once_its_pod_ended(end):
    assert written(a_pod("a", [0]), end, a_pod("b", [0]), a_pod("b", [0])).held_twice() == []


@pytest.mark.parametrize(
    ("gpus", "on", "fine"),
    [
        pytest.param([0], "node", True, id="as recorded"),
        pytest.param([0], "other", False, id="elsewhere"),
        pytest.param([0, 1], "node", False, id="too many"),
        pytest.param([], "node", False, id="none"),
        pytest.param([], "", True, id="not bound yet"),
    ],
)
def test_pods_run_where_their_record_says_with_what_they_asked_for(gpus, on, fine):
    assert (written(a_pod("a", gpus, on=on)).misplaced() == []) is fine


def test_a_gang_is_bound_in_part_from_its_first_member_to_its_last():
    history = written(
        a_pod("a", [0]),
        a_pod("a", [0], on="node"),
        a_pod("b", [1]),
        a_pod("b", [1], on="node"),
        gone("a"),
        a_pod("b", [1], on="node"),
    )
    assert history.partly_bound() == {("team", "bert"): 2.0}


def test_evicted_gang_starts_again():
    history = written(a_pod("a", [0], on="node"), gone("a"), a_pod("a", uid="a2"))
    assert history.partly_bound() == {("team", "bert"): 1.0}


def test_pods_made_again_under_their_name_are_counted():
    history = written(a_pod("a"), gone("a"), a_pod("a", uid="a2"), a_pod("a", uid="a2", on="node"))
    assert history.creations("team") == {"a": 2}


def test_pods_that_ask_for_more_than_a_node_has_are_found_without_any_record():
    history = written(
        a_pod("a", on="node", asks=6), a_pod("b", on="node", asks=2), a_pod("c", on="node")
    )
    assert history.overbooked(8) == ["team/c on node: 9 GPUs"]


def test_gpus_of_pods_that_ended_or_wait_are_not_overbooked():
    ended = a_pod("a", on="node", asks=8, phase="Succeeded")
    waits = a_pod("c", asks=8)
    history = written(a_pod("a", on="node", asks=8), ended, a_pod("b", on="node", asks=8), waits)
    assert history.overbooked(8) == []
