"""Gangs of the coscheduling plugin, which another scheduler places, beside gangs of Linkwise."""

import pytest
from controlplane.coscheduling import SCHEDULER, make_group, run_coscheduling
from controlplane.gangs import delete_pods, make_gang, wait_for_phase
from controlplane.history import gpus
from controlplane.pods import gates
from controlplane.process import wait_until

from linkwise.cluster import keys

PLAIN = {"name": "plain", "machine": "t4x4", "cpu": 96, "memory": "768Gi"}


@pytest.fixture(scope="module", autouse=True)
def coscheduling(placing, plane, programs_of_others, tmp_path_factory):
    del placing
    folder = tmp_path_factory.mktemp("coscheduling")
    with run_coscheduling(plane, programs_of_others, folder):
        yield


def submit(pods, plane, name, members, limits):
    """Create a PodGroup of so many members, and their pods; return the pods as created."""
    make_group(plane, pods.namespace, name, members)
    return [
        pods.create(
            limits,
            name=f"{name}-{index}",
            labels={keys.POD_GROUP: name},
            spec={"schedulerName": SCHEDULER},
        )
        for index in range(members)
    ]


def bound_to(pods):
    return [pod["spec"].get("nodeName") for pod in pods.all().values()]


def test_gangs_of_another_scheduler_are_left_alone_and_counted(pods, plane, nodes, placing):
    nodes(PLAIN)
    made = submit(pods, plane, "theirs", 2, {keys.NVIDIA_GPU: 2})
    assert [gates(pod) for pod in made] == [[], []]
    assert not any(keys.NODE_MODE in str(pod["spec"].get("affinity")) for pod in made)

    wait_until(lambda: bound_to(pods) == ["plain", "plain"], "coscheduling binds both")
    annotations = [pod["metadata"].get("annotations", {}) for pod in pods.all().values()]
    assert not any(keys.ALLOCATION in each for each in annotations)

    def counted():
        (node,) = placing.look("/v1/nodes?name=plain")["nodes"]
        return {one["pod"]: one["gpus"] for one in node["counted"]}

    expected = {f"{pods.namespace}/theirs-{index}": 2 for index in range(2)}
    wait_until(lambda: counted() == expected, "their GPUs are counted")
    assert placing.metrics["linkwise_unaccounted_nodes"] == 0


def test_a_gang_by_count_waits_for_gpus_that_another_scheduler_gave_out(pods, plane, nodes):
    nodes(PLAIN)
    submit(pods, plane, "theirs", 2, {keys.NVIDIA_GPU: 1})
    wait_until(lambda: bound_to(pods) == ["plain", "plain"], "coscheduling binds both")

    ours = make_gang(pods, "ours", 2, 2, resource=keys.NVIDIA_GPU)
    wait_for_phase(pods, "ours", "Waiting", "1 of 2 workers fit now")
    assert [pods.all()[name]["spec"].get("nodeName") for name in ours] == [None, None]

    delete_pods(pods, "theirs-0", "theirs-1")
    wait_for_phase(pods, "ours", "Placed", members="2/2")
    assert bound_to(pods) == ["plain", "plain"]


def test_gangs_of_another_scheduler_get_the_gpus_that_linkwise_chose(pods, plane, machines):
    machines(2)
    made = submit(pods, plane, "both", 4, {keys.GPU_WHOLE: 2})
    assert [gates(pod) for pod in made] == [[keys.GANG]] * 4

    wait_until(lambda: all(bound_to(pods)), "coscheduling binds all")
    wait_for_phase(pods, "both", "Placed", members="4/4")
    held = [(pod["spec"]["nodeName"], gpu) for pod in pods.all().values() for gpu in gpus(pod)]
    assert len({gpu for _, gpu in held}) == 8
    assert {node for node, _ in held} == {"gpu-0"}
    assert all(node == gpu_node for node, (gpu_node, _) in held)
