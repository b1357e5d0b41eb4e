"""MPIJobs of arena and of mpi-operator on a real API server, with pods as operators create them."""

import pytest
from controlplane.arena import (
    launcher_job_of,
    launcher_of,
    submitted,
    unmarked,
    worker_of,
    workers_of,
)
from controlplane.definitions import define
from controlplane.gangs import (
    delete_pods,
    held,
    unmarked_job,
    wait_for_phase,
    wait_until_held,
    wait_until_placed,
    wait_until_planned,
)
from controlplane.pods import gates
from controlplane.process import wait_until

from linkwise.cluster import keys

JOB = "pytorch-topo-4-vgg16"
PATIENCE = 120


@pytest.fixture(scope="module")
def plane(plane_of_its_own):
    """Another than that of training-operator, which defines MPIJobs of version v1."""
    define(plane_of_its_own.api, "kubeflow.org", "MPIJob", "v1alpha1", "v2beta1")
    return plane_of_its_own


@pytest.mark.usefixtures("placing")
def test_workers_of_arenas_mpi_job_are_placed_as_one_gang_and_the_launcher_follows(
    pods, namespace, machines
):
    machines(4)

    def create(group, resource, body):
        return pods.api.create(f"/apis/{group}/namespaces/{namespace}/{resource}", body)

    job = create("kubeflow.org/v1alpha1", "mpijobs", submitted())
    create("apps/v1", "statefulsets", workers_of(job))

    members = wait_until_placed(pods, f"mpijob-{JOB}", 4)
    gpus = [gpu for held in members.values() for gpu in held]
    assert members.keys() == {f"{JOB}-worker-{index}" for index in range(4)}
    assert len(set(gpus)) == 4
    assert {index for _, index in gpus} in ({0, 1, 2, 3}, {4, 5, 6, 7})
    assert len({node for node, _ in gpus}) == 1

    gang = wait_for_phase(pods, f"mpijob-{JOB}", "Placed", members="4/4")

    create("batch/v1", "jobs", launcher_of(job))

    def launcher():
        return next((pod for name, pod in pods.all().items() if "launcher" in name), None)

    wait_until(
        lambda: bool(launcher()) and launcher()["spec"].get("nodeName"), "it is bound", PATIENCE
    )
    assert gates(launcher()) == []
    assert keys.ALLOCATION not in launcher()["metadata"].get("annotations", {})
    assert wait_for_phase(pods, f"mpijob-{JOB}", "Placed", members="4/4")["spec"] == gang["spec"]

    # The operator scales the workers to 0 when the launcher has ended.
    path = f"/apis/apps/v1/namespaces/{namespace}/statefulsets/{JOB}-worker"
    pods.api.patch(path, {"spec": {"replicas": 0}})
    path = f"/apis/kubeflow.org/v1alpha1/namespaces/{namespace}/mpijobs/{JOB}"
    pods.api.patch(path, {"status": {"launcherStatus": "Succeeded"}})
    wait_for_phase(pods, f"mpijob-{JOB}", "Finished")


def creator(pods):
    """Return a function that creates an object of a resource."""

    def create(group, resource, body):
        prefix = "/apis" if "/" in group else "/api"
        return pods.api.create(f"{prefix}/{group}/namespaces/{pods.namespace}/{resource}", body)

    return create


def launcher_node(pods):
    names = [name for name in pods.all() if "launcher" in name]
    return pods.all()[names[0]]["spec"].get("nodeName") if names else None


@pytest.mark.usefixtures("placing")
def test_an_unmarked_job_of_mpi_operator_is_placed_as_a_whole_or_not_at_all(pods, machines):
    machines(1)
    create = creator(pods)
    pods.create({keys.GPU_WHOLE: 5}, name="other")
    wait_until_held(pods, "other", 1)
    body = unmarked_job("v2beta1", "train", 4, 1)
    job = create("kubeflow.org/v2beta1", "mpijobs", body)
    create("batch/v1", "jobs", launcher_job_of(job))
    for index in range(3):
        create("v1", "pods", worker_of(job, index))
    wait_for_phase(pods, "train", "Assembling", "3 of 4 members", members="3/4")
    create("v1", "pods", worker_of(job, 3))

    wait_for_phase(pods, "train", "Waiting", "3 of 4 workers fit now", members="4/4")
    wait_until(lambda: launcher_node(pods) == "gpu-0", "the launcher is bound", PATIENCE)
    assert held(pods, "train") == {}

    delete_pods(pods, "other")
    members = wait_until_held(pods, "train-worker", 4)
    before = wait_for_phase(pods, "train", "Placed", members="4/4")
    assert before["spec"]["plan"]["bandwidth"] == 55.2
    assert [owner["kind"] for owner in before["metadata"]["ownerReferences"]] == ["MPIJob"]

    delete_pods(pods, "train-worker-2")
    create("v1", "pods", worker_of(job, 2))
    assert wait_until_held(pods, "train-worker", 4) == members
    after = wait_for_phase(pods, "train", "Placed", members="4/4")
    assert len(after["spec"]["plan"]["members"]) == 4
    assert after["spec"]["plan"]["bandwidth"] == 55.2


def test_a_launcher_that_waits_for_its_workers_gets_the_gpus_that_are_reserved_for_it(
    pods, machines, placing
):
    """The gang fills the node, and another pod waits for the GPUs of the launcher."""
    machines(1)
    create = creator(pods)
    body = unmarked_job("v2beta1", "train", 3, 2)
    roles = body["spec"]["mpiReplicaSpecs"]
    roles["Launcher"] = {**roles["Worker"], "replicas": 1}
    body["spec"] |= {"runLauncherAsWorker": True, "launcherCreationPolicy": "WaitForWorkersReady"}
    job = create("kubeflow.org/v2beta1", "mpijobs", body)
    for index in range(3):
        create("v1", "pods", worker_of(job, index))
    wait_until_held(pods, "train-worker", 3)
    waits = wait_for_phase(pods, "train", "Assembling", "reserved for its launcher", members="3/4")
    (kept,) = waits["status"]["reserved"]
    pods.create({keys.GPU_WHOLE: 1}, name="waiter")

    placing.process.stop()
    placing.process.start()
    create("batch/v1", "jobs", launcher_job_of(job))
    launcher = wait_until_held(pods, "train-launcher", 1)
    whole = wait_for_phase(pods, "train", "Placed", members="4/4")

    assert [*launcher.values()] == [tuple((kept["node"], i) for i in kept["gpus"])]
    assert "reserved" not in whole["status"]
    assert len(whole["spec"]["plan"]["members"]) == 4
    # The pods of Jobs succeed as soon as they run, and then leave their GPUs.
    passed = held(pods, "waiter")
    assert not passed or {pods.all()[name]["status"]["phase"] for name in launcher} == {"Succeeded"}


@pytest.mark.usefixtures("placing")
def test_an_unmarked_job_of_version_v1alpha1_is_a_gang_by_its_stateful_set(pods, machines):
    machines(1)
    create = creator(pods)
    pods.create({keys.GPU_WHOLE: 5}, name="other")
    wait_until_held(pods, "other", 1)
    job = create("kubeflow.org/v1alpha1", "mpijobs", unmarked())
    create("apps/v1", "statefulsets", workers_of(job))

    wait_for_phase(pods, "train", "Waiting", "3 of 4 workers fit now", members="4/4")
    assert held(pods, "train") == {}

    delete_pods(pods, "other")
    members = wait_until_held(pods, "train-worker", 4)
    wait_for_phase(pods, "train", "Placed", members="4/4")
    create("batch/v1", "jobs", launcher_of(job))
    wait_until(lambda: launcher_node(pods) == "gpu-0", "the launcher is bound", PATIENCE)

    uid = pods.all()["train-worker-1"]["metadata"]["uid"]
    delete_pods(pods, "train-worker-1")
    wait_until(
        lambda: pods.all().get("train-worker-1", {}).get("metadata", {}).get("uid", uid) != uid,
        "the StatefulSet makes another",
        PATIENCE,
    )
    assert wait_until_held(pods, "train-worker", 4) == members
    gang = wait_for_phase(pods, "train", "Placed", members="4/4")
    assert len(gang["spec"]["plan"]["members"]) == 4
    assert gang["spec"]["plan"]["bandwidth"] == 55.2


@pytest.mark.usefixtures("placing")
def test_an_unmarked_job_of_mpi_operator_is_scaled_and_restarted(pods, machines):
    machines(1)
    create = creator(pods)
    job = create("kubeflow.org/v2beta1", "mpijobs", unmarked_job("v2beta1", "train", 2, 1))

    def create_workers(*indices):
        for index in indices:
            create("v1", "pods", worker_of(job, index))

    create_workers(0, 1)
    wait_until_held(pods, "train-worker", 2)

    path = f"/apis/kubeflow.org/v2beta1/namespaces/{pods.namespace}/mpijobs/train"
    pods.api.patch(path, {"spec": {"mpiReplicaSpecs": {"Worker": {"replicas": 4}}}})
    create_workers(2, 3)
    wait_until_held(pods, "train-worker", 4)
    has_plan_of(pods, 4)

    delete_pods(pods, *(f"train-worker-{index}" for index in range(4)))
    create_workers(0, 1, 2, 3)
    wait_until_planned(pods, 4)
    wait_until_held(pods, "train-worker", 4)
    has_plan_of(pods, 4)


@pytest.mark.usefixtures("placing")
def test_an_unmarked_job_of_version_v1alpha1_is_scaled_and_restarted(pods, machines):
    machines(1)
    create = creator(pods)
    job = unmarked()
    job["spec"]["replicas"] = 2
    job = create("kubeflow.org/v1alpha1", "mpijobs", job)
    create("apps/v1", "statefulsets", workers_of(job))
    wait_until_held(pods, "train-worker", 2)

    apis = (("kubeflow.org/v1alpha1", "mpijobs/train"), ("apps/v1", "statefulsets/train-worker"))
    for api, name in apis:
        path = f"/apis/{api}/namespaces/{pods.namespace}/{name}"
        pods.api.patch(path, {"spec": {"replicas": 4}})
    wait_until_held(pods, "train-worker", 4)
    has_plan_of(pods, 4)

    delete_pods(pods, *(f"train-worker-{index}" for index in range(4)))
    wait_until_planned(pods, 4)
    wait_until_held(pods, "train-worker", 4)
    has_plan_of(pods, 4)


def has_plan_of(pods, workers):
    gang = wait_for_phase(pods, "train", "Placed", members=f"{workers}/{workers}")
    assert len(gang["spec"]["plan"]["members"]) == workers
    # Members that come one by one take the best GPUs beside the others.
    assert gang["spec"]["plan"]["bandwidth"] > 0


@pytest.mark.usefixtures("placing")
def test_a_job_that_is_taken_out_is_placed_pod_by_pod(pods, machines):
    machines(1)
    pods.create({keys.GPU_WHOLE: 5}, name="other")
    wait_until_held(pods, "other", 1)
    job = unmarked()
    job["spec"]["template"]["metadata"]["labels"][keys.GANG] = "false"
    create = creator(pods)
    create("apps/v1", "statefulsets", workers_of(create("kubeflow.org/v1alpha1", "mpijobs", job)))

    assert len(wait_until_held(pods, "train-worker", 3)) == 3


@pytest.mark.usefixtures("placing")
def test_a_forged_owner_delays_only_its_own_pods(pods, machines):
    machines(1)
    create = creator(pods)
    job = create("kubeflow.org/v2beta1", "mpijobs", unmarked_job("v2beta1", "train", 2, 1))
    forged = {**job, "metadata": {**job["metadata"], "name": "huge"}}
    create("v1", "pods", worker_of(forged, 0))
    # Of another version, which is not served, and of the job's own uid.
    unserved = {**job, "apiVersion": "kubeflow.org/v9"}
    unserved["metadata"] = {**job["metadata"], "uid": "00000000-0000-0000-0000-000000000000"}
    create("v1", "pods", worker_of(unserved, 7))
    for index in range(2):
        create("v1", "pods", worker_of(job, index))

    members = wait_until_held(pods, "train-worker", 2)

    assert members.keys() == {"train-worker-0", "train-worker-1"}
    wait_for_phase(pods, "train", "Placed", members="2/2")
