"""Kueue decides when a job may start, and Linkwise where its pods run."""

import pytest
from controlplane.gangs import (
    events,
    gang_labels,
    make_stateful_gang,
    wait_for_event,
    wait_for_phase,
    wait_until_placed,
    where,
)
from controlplane.kueue import ADMISSION_GATE, QUEUE_LABEL, make_queue, run_kueue, set_stop_policy
from controlplane.pods import container, gates
from controlplane.process import wait_until
from controlplane.temporary import priority_class

from linkwise.cluster import keys

GROUP_LABEL = "kueue.x-k8s.io/pod-group-name"
GROUP_SIZE = "kueue.x-k8s.io/pod-group-total-count"
WORKERS = 4


@pytest.fixture(scope="module", autouse=True)
def kueue(webhook, plane, programs_of_others, tmp_path_factory):
    del webhook  # Its registration precedes Kueue's, as in a cluster where Kueue comes later.
    with run_kueue(plane, programs_of_others, tmp_path_factory.mktemp("kueue")):
        yield


@pytest.fixture
def queue(plane, pods, machines):
    """The name of a queue for the 8 GPUs of the only node."""
    machines(1)
    make_queue(plane, pods.namespace, pods.namespace, {keys.GPU_WHOLE: 8})
    return pods.namespace


def jobs_of(pods):
    return f"/apis/batch/v1/namespaces/{pods.namespace}/jobs"


def submit(pods, name, each, queue, of_class="", **annotations):
    """Submit a Job whose 4 workers are a gang; the annotations are Kueue's."""
    pod = {"restartPolicy": "Never", "containers": [container({keys.GPU_WHOLE: each})]}
    template = {
        "metadata": {"labels": gang_labels(name, WORKERS)},
        "spec": {**pod, "priorityClassName": of_class},
    }
    ignored = {"action": "Ignore", "onPodConditions": [{"type": "DisruptionTarget"}]}
    spec = {
        "parallelism": WORKERS,
        "completions": WORKERS,
        "completionMode": "Indexed",
        "podFailurePolicy": {"rules": [ignored]},
        "template": template,
    }
    metadata = {"name": name, "labels": {QUEUE_LABEL: queue}}
    metadata["annotations"] = {
        f"kueue.x-k8s.io/{key.replace('_', '-')}": value for key, value in annotations.items()
    }
    pods.api.create(jobs_of(pods), {"metadata": metadata, "spec": spec})


def is_suspended(pods, name):
    return pods.api.get(f"{jobs_of(pods)}/{name}")["spec"].get("suspend", False)


def submit_group(pods, name, queue):
    """Create 2 pods with 4 GPUs each, which are a group for Kueue and a gang for Linkwise."""
    labels = {**gang_labels(name, 2), QUEUE_LABEL: queue, GROUP_LABEL: name}
    for index in range(2):
        pods.create(
            {keys.GPU_WHOLE: 4},
            name=f"{name}-{index}",
            labels=labels,
            annotations={GROUP_SIZE: "2"},
        )


def end_containers(pods, *names):
    """Report that containers have ended, as a kubelet does; kwok leaves pods with finalizers."""
    for name in names:
        pods.api.patch(f"{pods.path}/{name}/status", {"status": {"phase": "Failed"}})


def test_a_gang_is_placed_when_its_queue_admits_it(pods, queue):
    submit(pods, "first", 2, queue)
    wait_until_placed(pods, "first", WORKERS)

    submit(pods, "second", 2, queue)
    wait_until(lambda: is_suspended(pods, "second"), "the second job waits in its queue")
    assert where(pods, "second") == {}
    assert len(pods.all()) == WORKERS

    pods.api.delete(f"{jobs_of(pods)}/first", propagationPolicy="Background")
    placed = wait_until_placed(pods, "second", WORKERS)
    assert len({gpu for gpus in placed.values() for gpu in gpus}) == 8


def test_pods_behind_kueues_gate_hold_no_gpus(pods, plane, queue):
    set_stop_policy(plane, queue, "Hold")
    submit_group(pods, "group", queue)
    held = wait_for_phase(pods, "group", "Assembling", ADMISSION_GATE)
    assert {ADMISSION_GATE, keys.GANG} <= set(gates(pods.all()["group-0"]))
    assert "bandwidth" not in held["status"]
    wait_for_event(pods, "GangWaiting", ADMISSION_GATE, of="Pod")

    # What does not wait in a queue takes the GPUs.
    pods.create({keys.GPU_WHOLE: 8}, name="single")
    wait_until(lambda: bool(pods.all()["single"]["spec"].get("nodeName")), "it is bound")

    set_stop_policy(plane, queue, "None")
    wait_for_phase(pods, "group", "Waiting", "needs 8 GPUs")
    assert gates(pods.all()["group-0"]) == [keys.GANG]
    assert where(pods, "group") == {}

    pods.api.delete(f"{pods.path}/single", gracePeriodSeconds="0")
    wait_until_placed(pods, "group", 2)


def test_a_job_that_kueue_evicts_frees_its_gpus_and_is_placed_again(pods, plane, queue):
    submit(pods, "evicted", 2, queue)
    wait_until_placed(pods, "evicted", WORKERS)

    set_stop_policy(plane, queue, "HoldAndDrain")
    wait_for_phase(pods, "evicted", "Suspended")
    wait_until(lambda: pods.all() == {}, "its pods are gone")
    pods.create({keys.GPU_WHOLE: 8}, name="single")
    wait_until(lambda: bool(pods.all()["single"]["spec"].get("nodeName")), "it has the GPUs")

    pods.api.delete(f"{pods.path}/single", gracePeriodSeconds="0")
    set_stop_policy(plane, queue, "None")
    wait_until_placed(pods, "evicted", WORKERS)
    wait_for_phase(pods, "evicted", "Placed", members="4/4")


def test_an_evicted_pod_holds_its_gpus_until_its_containers_have_ended(pods, plane, queue):
    submit_group(pods, "group", queue)
    wait_until_placed(pods, "group", 2)
    set_stop_policy(plane, queue, "HoldAndDrain")
    wait_until(
        lambda: all("deletionTimestamp" in pod["metadata"] for pod in pods.all().values()),
        "Kueue deletes the pods, and its finalizer keeps them",
    )

    pods.create({keys.GPU_WHOLE: 8}, name="next")
    wait_until(lambda: bool(events(pods, "WaitingForGPUs")), "the next pod waits")
    end_containers(pods, "group-0", "group-1")
    wait_until(lambda: bool(pods.all()["next"]["spec"].get("nodeName")), "the next is bound")


def test_an_admitted_gang_that_does_not_fit_waits_as_a_whole_with_a_reason(pods, queue):
    # Its GPU is not in the quota, because its pod has no queue.
    pods.create({keys.GPU_WHOLE: 1}, name="outsider")
    wait_until(lambda: bool(pods.all()["outsider"]["spec"].get("nodeName")), "it is bound")

    submit(pods, "large", 2, queue)
    found = wait_for_phase(pods, "large", "Waiting", "3 of 4 workers fit now")

    assert not is_suspended(pods, "large")
    assert found["status"]["members"] == "4/4"
    assert where(pods, "large") == {}
    wait_for_event(pods, "GangWaiting", "3 of 4 workers fit now", of="Job")


def test_a_job_that_kueue_admits_with_fewer_workers_is_a_smaller_gang(pods, queue):
    fewer = {"job_min_parallelism": "2", "job_completions_equal_parallelism": "true"}
    submit(pods, "partial", 3, queue, **fewer)

    placed = wait_until_placed(pods, "partial", 2)
    wait_for_phase(pods, "partial", "Placed", members="2/2")
    assert sorted(len(gpus) for gpus in placed.values()) == [3, 3]


@pytest.fixture
def urgent(pods, policy):
    """The name of a priority class whose pods may preempt others at once."""
    policy(
        "apiVersion: linkwise.dev/v1alpha1\nkind: Policy\ngangs: {preemption: {minRunMinutes: 0}}"
    )
    with priority_class(pods, "urgent", 1000):
        yield "urgent"


def uids(pods, prefix):
    return {pod["metadata"]["uid"] for name, pod in pods.all().items() if name.startswith(prefix)}


def test_gangs_of_kueue_neither_preempt_nor_are_preempted(plane, pods, machines, urgent):
    machines(2)
    make_queue(plane, pods.namespace, pods.namespace, {keys.GPU_WHOLE: 16})
    submit(pods, "queued", 2, pods.namespace)
    wait_until_placed(pods, "queued", WORKERS)
    four = {"containers": [container({keys.GPU_WHOLE: 4})]}
    plain_set = make_stateful_gang(pods, "plain", 2, four)
    wait_until_placed(pods, "plain", 2)
    queued, plain = uids(pods, "queued"), uids(pods, "plain")

    submit(pods, "high", 2, pods.namespace, urgent)
    wait_for_phase(pods, "high", "Waiting")
    assert (uids(pods, "queued"), uids(pods, "plain")) == (queued, plain)

    spec = {"priorityClassName": urgent, "terminationGracePeriodSeconds": 1}
    free_set = make_stateful_gang(pods, "free", 2, {**four, **spec})
    wait_until_placed(pods, "free", 2)
    assert uids(pods, "queued") == queued
    assert not uids(pods, "plain") & plain
    assert not events(pods, "Preempting", of="Job")
    for path in (plain_set, free_set):
        pods.api.delete(path)
