"""Gangs and single pods down to their containers: each sees exactly the GPUs of its record."""

import pytest
from controlplane.gangs import gang_labels, jobs_of
from controlplane.node.chain import container
from controlplane.process import wait_until
from controlplane.training import run_training_operator

from cluster import keys

BEST_FOURS = ({0, 1, 2, 3}, {4, 5, 6, 7})
WHOLE = {keys.GPU_WHOLE: 1}


@pytest.fixture(scope="module", autouse=True)
def offered(running):
    wait_until(lambda: running.allocatable(keys.GPU_WHOLE) == 8, "the node offers its GPUs")
    wait_until(lambda: running.scorer.look("/v1/nodes")["nodes"], "the scorer knows the node")


@pytest.fixture(scope="module")
def operator(plane):
    with run_training_operator(plane):
        yield


def mpi_job(name, workers):
    """Return an MPIJob with arena's labels, whose launcher forges its variables."""
    labels = gang_labels(name, workers)
    forged = [{"name": "NVIDIA_VISIBLE_DEVICES", "value": "all"}]

    def role(replicas, container):
        spec = {"containers": [container], "terminationGracePeriodSeconds": 1}
        return {"replicas": replicas, "template": {"metadata": {"labels": labels}, "spec": spec}}

    roles = {"Launcher": role(1, container(env=forged)), "Worker": role(workers, container(WHOLE))}
    return {
        "apiVersion": "kubeflow.org/v1",
        "kind": "MPIJob",
        "metadata": {"name": name},
        "spec": {"mpiReplicaSpecs": roles},
    }


@pytest.mark.usefixtures("operator")
def test_workers_of_an_mpi_job_see_one_best_set_and_the_launcher_sees_nothing(chain):
    chain.pods.api.create(jobs_of(chain.pods.namespace), mpi_job("train", 4))
    workers = [f"train-worker-{index}" for index in range(4)]
    wait_until(lambda: chain.pods.all().keys() >= {*workers, "train-launcher"}, "it has all pods")

    seen = {name: chain.has(name) for name in workers}

    assert [len(held) for held in seen.values()] == [1, 1, 1, 1]
    assert set().union(*seen.values()) in BEST_FOURS
    assert chain.has("train-launcher") == set()
    # The operator adds an empty one of its own.
    assert chain.seen("train-launcher").variables["NVIDIA_VISIBLE_DEVICES"] in {"", "void"}
    assert chain.wait_until_books_agree() == seen


def test_a_pod_that_forges_its_variables_sees_only_its_own_gpu(chain):
    forged = [{"name": "NVIDIA_VISIBLE_DEVICES", "value": "all"}]
    chain.create("honest", container(WHOLE))
    chain.create("forger", container(WHOLE, env=forged))

    assert chain.has("honest") == chain.recorded("honest")
    assert chain.has("forger") == chain.recorded("forger")
    assert chain.recorded("honest").isdisjoint(chain.recorded("forger"))
    assert chain.seen("forger").variables["NVIDIA_VISIBLE_DEVICES"] == "void"
    chain.wait_until_books_agree()
