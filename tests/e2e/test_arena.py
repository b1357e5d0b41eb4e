"""Jobs of arena on a real API server, with pods as its operator creates them."""

import pytest
from controlplane.api import refusal
from controlplane.arena import DEFINITION, launcher_of, submitted, workers_of
from controlplane.gangs import wait_for_phase, wait_until_placed
from controlplane.pods import gates
from controlplane.process import wait_until

from cluster import keys

DEFINITIONS = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
JOB = "pytorch-topo-4-vgg16"
PATIENCE = 120


@pytest.fixture(scope="module")
def plane(plane_of_its_own):
    """Another than that of training-operator, which defines MPIJobs of version v1."""
    plane_of_its_own.api.create(DEFINITIONS, DEFINITION)
    jobs = "/apis/kubeflow.org/v1alpha1/mpijobs"
    wait_until(lambda: refusal(lambda: plane_of_its_own.api.get(jobs)) == "", "MPIJobs are served")
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
