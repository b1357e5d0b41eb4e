"""Gangs and single pods down to their containers: each sees exactly the GPUs of its record."""

import subprocess
import sys
from pathlib import Path

import pytest
from controlplane.gangs import (
    events,
    gang_labels,
    jobs_of,
    make_stateful_gang,
    wait_for_event,
    wait_for_phase,
    wait_until_placed,
)
from controlplane.node.chain import container
from controlplane.process import wait_until
from controlplane.training import run_training_operator

from linkwise.cluster import keys

BEST_FOURS = ({0, 1, 2, 3}, {4, 5, 6, 7})
WHOLE = {keys.GPU_WHOLE: 1}
LINKWISE = Path(sys.executable).with_name("linkwise")
POLICY = (
    "apiVersion: linkwise.dev/v1alpha1\nkind: Policy\ngangs: {{onFault: {}, onFaultSeconds: 1}}\n"
)
ELSEWHERE = {"name": "elsewhere", "machine": "dgx1-v100", "mode": "topology"}


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


@pytest.fixture
def train(chain):
    """A gang of two that has all GPUs of the node, and is made again by its controller."""
    spec = {
        "containers": [container({keys.GPU_WHOLE: 4})],
        "terminationGracePeriodSeconds": 1,
    }
    path = make_stateful_gang(chain.pods, "train", 2, spec)
    wait_for_phase(chain.pods, "train", "Placed", members="2/2")
    yield {name: chain.has(name) for name in ("train-0", "train-1")}
    chain.pods.api.delete(path)


def uids(chain):
    return {pod["metadata"]["uid"] for pod in chain.pods.all().values()}


def test_a_gang_on_a_lost_gpu_is_reported_and_moves_as_a_whole_once_the_policy_says_so(
    chain, plane, lose, nodes, policy, train
):
    policy(POLICY.format("report"))
    # kwok is the kubelet of this one.
    nodes({**ELSEWHERE, "cpu": 96, "memory": "768Gi", "labels": {"type": "kwok"}})
    before, gpu = uids(chain), min(train["train-1"])
    fault = f"unhealthy GPUs: {gpu} of {chain.node.name} (pod train-1)"

    lose(gpu)

    wait_for_event(chain.pods, "GangGPUUnhealthy", fault, of="StatefulSet")
    gang = wait_for_phase(chain.pods, "train", "Placed", members="2/2")
    (condition,) = (one for one in gang["status"]["conditions"] if one["type"] == "GPUsHealthy")
    assert (condition["status"], fault in condition["message"]) == ("False", True)
    wait_until(lambda: chain.scorer.metrics["linkwise_faulty_gangs"] == 1, "a gang has a fault")
    argv = [LINKWISE, "explain", "gang", f"{chain.pods.namespace}/train"]
    ran = subprocess.run(
        [*argv, "--kubeconfig", plane.kubeconfig], capture_output=True, text=True, check=True
    )
    assert fault in ran.stdout
    assert "no pod is evicted because of that (policy gangs.onFault: report)" in ran.stdout
    assert f"`kubectl delete pod -n {chain.pods.namespace} train-0 train-1`" in ran.stdout
    assert uids(chain) == before
    assert not events(chain.pods, "GangEvicted")

    policy(POLICY.format("evict"))

    wait_until(lambda: not uids(chain) & before, "all members are gone", 120)
    placed = wait_until_placed(chain.pods, "train", 2)
    assert {node for held in placed.values() for node, _ in held} == {"elsewhere"}
    wait_for_phase(chain.pods, "train", "Placed", members="2/2")
    wait_until(lambda: chain.bindings() == [], "the node gave their GPUs back")
    wait_until(lambda: not chain.scorer.metrics["linkwise_faulty_gangs"], "no gang has a fault")
