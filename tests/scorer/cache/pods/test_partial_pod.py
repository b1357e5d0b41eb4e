"""Pods that cannot be read: GPUs that they may hold are not allocated to others."""

import json

import pytest
from structlog.testing import capture_logs
from support.builders import a_held_pod
from support.servers.leader_harness import Cluster, leading
from support.waiting import until

from linkwise.cluster import keys
from scorer.cache.pods.partial_pod import read_pod

PODS = "/api/v1/namespaces/team/pods"
BAD_VARIABLES = {"env": "no list"}
"""A field that no API server stores so, and that a container is read with."""


def raw(pod):
    return json.dumps(pod).encode()


def running(gpus=2, **broken):
    """Return a pod with GPUs on a node, of which parts of the only container are replaced."""
    pod = a_held_pod(gpus, "runs", gates=(), nodeName="gpu-0", phase="Running")
    pod["spec"]["containers"][0] |= broken
    return pod


def test_a_pod_with_one_invalid_field_still_uses_its_node():
    with capture_logs() as logs:
        found = read_pod(raw(running(**BAD_VARIABLES)))

    usage = found.usage
    assert (usage.uid, usage.node, usage.places) == ("runs", "gpu-0", True)
    assert (
        "its object cannot be read: Expected `array | null`, got `str`" in usage.unreadable.reason
    )
    assert found.settled
    assert [one["pod"] for one in logs] == ["team/runs"]


@pytest.mark.parametrize(
    ("broken", "places"),
    [
        pytest.param({"resources": "all"}, True, id="resources-unreadable"),
        pytest.param({"resources": {"limits": {keys.GPU_WHOLE: []}}}, True, id="amount-unreadable"),
        pytest.param({**BAD_VARIABLES, "resources": {"limits": {"cpu": "1"}}}, False, id="no-gpus"),
        pytest.param({**BAD_VARIABLES, "resources": None}, False, id="no-resources"),
    ],
)
def test_a_pod_with_unreadable_resources_counts_as_one_with_gpus(broken, places):
    assert read_pod(raw(running(**broken))).usage.places is places


def test_a_pod_without_a_list_of_containers_may_have_gpus():
    pod = running()
    pod["spec"]["containers"] = "none"

    assert read_pod(raw(pod)).usage.unreadable


def test_a_finished_unreadable_pod_uses_nothing():
    pod = running(**BAD_VARIABLES)
    pod["status"]["phase"] = "Succeeded"

    assert read_pod(raw(pod)).usage is None


def test_a_waiting_unreadable_pod_is_not_planned_with_a_reason():
    pod = a_held_pod(1, "waits")
    pod["spec"]["tolerations"] = "all"

    found = read_pod(raw(pod))

    assert found.waiting is not None
    assert found.unplannable.startswith("its object cannot be read: Expected `array | null`")


def test_an_unbound_unreadable_pod_keeps_the_gpus_of_its_record():
    record = {"v": 1, "node": "gpu-0", "gpus": [{"i": 3}]}
    pod = a_held_pod(1, "goes", gates=(), annotations={keys.ALLOCATION: json.dumps(record)})
    pod["spec"]["tolerations"] = "all"

    usage = read_pod(raw(pod)).usage

    assert (usage.target, list(usage.record.gpus.indices)) == ("gpu-0", [3])


@pytest.mark.parametrize("levels", [*range(890, 1000, 2), 9980])
def test_a_deeply_nested_pod_is_read(levels):
    deep = '{"f:a":' * levels + "{}" + "}" * levels
    pod = raw(running()).replace(b'"metadata": {', f'"metadata": {{"managed": {deep}, '.encode(), 1)

    assert read_pod(pod) == read_pod(raw(running()))


@pytest.mark.parametrize("before", ["new", "readable"])
async def test_nothing_is_placed_on_the_node_of_an_unreadable_pod_until_it_can_be_read(before):
    async with Cluster() as cluster:
        cluster.node()
        if before == "readable":
            cluster.put(f"{PODS}/runs", running(0))
        async with leading(cluster) as leader:
            cluster.put(f"{PODS}/runs", running(0, resources="all"))
            snapshot = leader.context.informers.state.snapshot
            await until(lambda: snapshot().ledger.nodes["gpu-0"].unaccounted)
            cluster.pod("next")
            await until(lambda: any("next" in u.key.name for u, _ in waiting(leader)))
            assert "team/runs: its object cannot be read" in (
                snapshot().ledger.nodes["gpu-0"].unaccounted
            )
            assert not cluster.allocated("next")

            cluster.put(f"{PODS}/runs", running(0))
            await until(lambda: cluster.allocated("next"))


def waiting(leader):
    return leader.context.planner.waiting()
