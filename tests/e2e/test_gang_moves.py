"""Gangs that cannot be bound where they were planned: who is moved, and who is never killed.

A disk that a pod names without a claim is left to kube-scheduler: the planner does not see it.
"""

import pytest
from controlplane.gangs import (
    delete_pods,
    events,
    gang_labels,
    jobs_of,
    make_gang,
    mpi_job,
    wait_for_phase,
    wait_until_placed,
    where,
)
from controlplane.history import gpus
from controlplane.nodes import NODES
from controlplane.pods import container, with_disk, write_disk
from controlplane.process import wait_until

from linkwise.cluster import keys

PATIENCE = 120
HOST = "kubernetes.io/hostname"
DISK = "disk"
HOSTS = ("gpu-0", "gpu-1", "gpu-2")
NEIGHBOURS = {f"on-{node}" for node in HOSTS}
IGNORE = {
    "rules": [
        {
            "action": "Ignore",
            "onPodConditions": [{"type": "DisruptionTarget", "status": "True"}],
        }
    ]
}


@pytest.fixture(autouse=True)
def impatient(placing, policy):
    """Gangs have five seconds until all their members are bound."""
    del placing
    policy("apiVersion: linkwise.dev/v1alpha1\nkind: Policy\ngangs: {commitDeadlineSeconds: 5}\n")


@pytest.fixture
def hosts(plane, machines):
    def add(count):
        for node in machines(count):
            labels = {"metadata": {"labels": {HOST: node.name}}}
            plane.api.patch(f"{NODES}/{node.name}", labels)

    return add


def neighbour(pods, *nodes):
    write_disk(pods, DISK, *nodes)


def first_node(history, pods, name):
    """Return where a pod was planned to go at first, once it was."""

    def planned():
        return [write.holds[0][0] for write in history.writes if write.key == key and write.holds]

    key = f"{pods.namespace}/{name}"
    wait_until(lambda: bool(planned()), f"{key} has its GPUs", PATIENCE)
    return planned()[0]


def never_beside():
    return with_disk(DISK, reads=True)


def a_job(name, workers, each, pod, **given):
    """Return a Job whose pods are a gang."""
    spec = {"containers": [container({keys.GPU_WHOLE: each})], "restartPolicy": "Never", **pod}
    template = {"metadata": {"labels": gang_labels(name, workers)}, "spec": spec}
    counts = {"parallelism": workers, "completions": workers, "completionMode": "Indexed"}
    return {"metadata": {"name": name}, "spec": {**counts, "template": template, **given}}


def batch_jobs(pods):
    return f"/apis/batch/v1/namespaces/{pods.namespace}/jobs"


def is_complete(pods, job):
    status = pods.api.get(f"{batch_jobs(pods)}/{job}")["status"]
    assert not status.get("failed")
    return status.get("succeeded") == 2


@pytest.mark.usefixtures("training_operator")
def test_an_mpi_job_of_which_one_worker_cannot_be_bound_is_moved_as_a_whole(pods, hosts, history):
    hosts(3)
    neighbour(pods, *HOSTS)
    pods.api.create(jobs_of(pods.namespace), mpi_job("moved", 2, 8, **never_beside()))
    failed = first_node(history, pods, "moved-worker-0")
    others = {*HOSTS} - {failed}
    delete_pods(pods, *(f"on-{node}" for node in others))

    # If the neighbours go too late, the second choice fails, too, and its nodes are excluded for 3
    # minutes.
    wait_until(lambda: homes(pods, "mpijob-moved") == others, "it is bound elsewhere", 240)

    # The one that was bound went with the one that could not be.
    history.catch_up()
    made = history.creations(pods.namespace)
    assert min(made["moved-worker-0"], made["moved-worker-1"]) > 1
    assert made["moved-launcher"] == 1
    wait_for_phase(pods, "mpijob-moved", "Placed")
    wait_until(lambda: bool(events(pods, "GangEvicted", of="MPIJob")), "an event says so")
    (event, *_) = events(pods, "GangEvicted", of="MPIJob")
    assert event.startswith("All 2 members of gang mpijob-moved were evicted")
    assert "was not bound to gpu-" in event


@pytest.mark.usefixtures("training_operator")
def test_no_gang_is_moved_while_the_scheduler_is_away(plane, pods, hosts, history):
    hosts(2)
    with plane.paused("kube-scheduler"):
        pods.api.create(jobs_of(pods.namespace), mpi_job("away", 4, 2))
        wait_for_phase(
            pods, "mpijob-away", "Committing", "no scheduler has looked at pod away-worker-"
        )
    wait_until_placed(pods, "mpijob-away", 4)
    history.catch_up()
    made = history.creations(pods.namespace)
    assert [made[f"away-worker-{index}"] for index in range(4)] == [1] * 4


def homes(pods, gang):
    return {held[0][0] for held in where(pods, gang).values()}


@pytest.mark.usefixtures("training_operator")
def test_an_mpi_job_whose_node_is_deleted_before_it_is_bound_goes_to_another(
    plane, pods, hosts, history
):
    hosts(2)

    def planned():
        found = [gpus(pod)[0][0] for pod in pods.all().values() if gpus(pod)]
        return set(found) if len(found) == 4 else set()

    with plane.paused("kube-scheduler"):
        pods.api.create(jobs_of(pods.namespace), mpi_job("homeless", 4, 1))
        node = first_node(history, pods, "homeless-worker-0")
        plane.api.delete(f"{NODES}/{node}")
        wait_until(lambda: planned() == {*HOSTS[:2]} - {node}, "it has others", PATIENCE)
    wait_until_placed(pods, "mpijob-homeless", 4)


def test_a_job_that_ignores_disruptions_is_moved(pods, hosts, history):
    hosts(2)
    neighbour(pods, *HOSTS[:2])
    job = a_job("ready", 2, 4, never_beside(), podFailurePolicy=IGNORE)
    pods.api.create(batch_jobs(pods), job)
    wait_until(lambda: bool(pods.all().keys() - NEIGHBOURS), "its pods are there", PATIENCE)
    (name, *_) = pods.all().keys() - NEIGHBOURS
    failed = first_node(history, pods, name)
    delete_pods(pods, *(f"on-{node}" for node in HOSTS[:2] if node != failed))

    # The Job's pods succeed as soon as they run. Nodes of a second failed choice are excluded for 3
    # minutes.
    wait_until(lambda: is_complete(pods, "ready"), "it is complete", 240)
    history.catch_up()
    assert {one.bound for one in history.writes if one.gang == (pods.namespace, "ready")} == {
        "",
        *HOSTS[:2],
    } - {failed}


def test_a_job_that_counts_evictions_as_failures_waits_with_the_reason(pods, hosts, history):
    hosts(2)
    neighbour(pods, *HOSTS[:2])
    pods.api.create(batch_jobs(pods), a_job("fragile", 2, 4, never_beside()))

    gang = wait_for_phase(
        pods, "fragile", "Committing", "Job fragile would count an evicted pod as a failure"
    )
    assert gang["status"]["members"] == "0/2"
    delete_pods(pods, *(f"on-{node}" for node in HOSTS[:2]))
    wait_until(lambda: is_complete(pods, "fragile"), "it is complete", PATIENCE)
    # Two workers, and the two that they wait for.
    assert sum(history.creations(pods.namespace).values()) == 4


def test_pods_without_a_controller_are_not_evicted_and_wait_with_the_reason(pods, hosts, history):
    hosts(2)
    neighbour(pods, *HOSTS[:2])
    make_gang(pods, "bare", 2, 8, [0])
    make_gang(pods, "bare", 2, 8, [1], spec=never_beside())

    wait_for_phase(pods, "bare", "Committing", "no controller that would create it again", "1/2")
    assert set(where(pods, "bare")) == {"bare-0"}
    delete_pods(pods, *(f"on-{node}" for node in HOSTS[:2]))
    assert len(wait_until_placed(pods, "bare", 2)) == 2
    assert sum(history.creations(pods.namespace).values()) == 4
    wait_for_phase(pods, "bare", "Placed")
