"""The chart beside NVIDIA's DRA driver: the GPUs of an unchanged MPIJob, with no agent."""

import pytest
import yaml
from controlplane.chart import CHART, RELEASE
from controlplane.claims_nodes import RULES, claims_nodes, wait_until_claims_are_made
from controlplane.dra import claiming, claims_of
from controlplane.gangs import jobs_of, wait_for_phase
from controlplane.installation import certs_process, new_folder, run_components
from controlplane.manifests import NAMESPACE, NAMESPACES, names
from controlplane.nodes import add_nodes, read_nodes
from controlplane.pods import Pods
from controlplane.process import wait_for, wait_until
from controlplane.scorer import start_scorer
from controlplane.training import run_training_operator
from controlplane.webhook import PATIENT

from linkwise.cluster import keys

VALUES = "--set=agent.enabled=false,nodeSelector.pool=system"
PATIENCE = 120
JOB = """
apiVersion: kubeflow.org/v1
kind: MPIJob
metadata: {name: resnet}
spec:
  slotsPerWorker: 1
  runPolicy: {cleanPodPolicy: Running}
  mpiReplicaSpecs:
    Launcher:
      replicas: 1
      template:
        spec:
          containers:
          - name: mpi
            image: registry.example/horovod:0.28.1
            command: [mpirun, -np, "4", python, /examples/resnet.py]
            resources: {limits: {cpu: "1", memory: 2Gi}}
    Worker:
      replicas: 4
      template:
        spec:
          containers:
          - name: mpi
            image: registry.example/horovod:0.28.1
            resources: {limits: {nvidia.com/gpu: "1"}}
"""

pytestmark = pytest.mark.versions


@pytest.fixture(scope="module")
def operator(plane_of_its_own):
    """training-operator, which makes the pods of MPIJobs."""
    with run_training_operator(plane_of_its_own):
        yield


@pytest.fixture
def gpus(plane):
    """A node of NVIDIA's driver that is not Linkwise's yet, beside one without GPUs."""
    (system,) = read_nodes([{"name": "system", "labels": {"pool": "system"}, "cpu": 8}])
    add_nodes(plane.api, [system])
    with claims_nodes(plane.api) as nodes:
        nodes.add(1, mode="")
        yield nodes


@pytest.fixture
def linkwise(plane, helm, gpus):
    """The chart without the agent; its processes run under the accounts and rights it creates."""
    del gpus
    ran = helm("install", RELEASE, str(CHART), "--create-namespace", VALUES)
    assert ran.returncode == 0, ran.stderr
    certs = certs_process(plane, new_folder(plane))
    with run_components(plane, certs, seconds=PATIENT) as running:
        home = running.cluster.home("scorer")
        served = {"CERTIFICATE": home / "tls.crt", "KEY": home / "tls.key"}
        settings = {f"LINKWISE_{name}": str(path) for name, path in served.items()}
        scorer = start_scorer(plane, certs.log.parent, "scorer.log", **settings)
        scorer.process.wait_ready(lambda: scorer.leads)
        yield running
        plane.processes.stop(scorer.process)


@pytest.fixture
def pods(plane, linkwise, namespace_of):
    """The pods of a namespace of the test's own."""
    del linkwise
    made = Pods(plane.api, namespace_of(plane.api).split("/")[-2])
    yield made
    plane.api.delete(jobs_of(made.namespace))
    wait_until(lambda: not made.api.get(jobs_of(made.namespace))["items"], "its job is gone")
    made.clear()


def hold(gpus, pods, uuid):
    """Let a pod of others hold one GPU of the node, by a claim of its own."""
    selector = {"cel": {"expression": f"device.attributes['gpu.nvidia.com'].uuid == '{uuid}'"}}
    exactly = {"deviceClassName": keys.DRA_GPU_DRIVER, "selectors": [selector]}
    spec = {"devices": {"requests": [{"name": "gpu", "exactly": exactly}]}}
    pods.api.create(claims_of(pods.namespace), {"metadata": {"name": "notebook"}, "spec": spec})
    pods.create(name="notebook", spec=claiming("notebook"))
    wait_until(lambda: gpus.allocated(pods.namespace) == {"notebook": {uuid}}, "it has its GPU")


@pytest.mark.usefixtures("operator")
def test_workers_of_an_unchanged_mpi_job_share_one_quad_of_nvlink(plane, gpus, pods):
    """One GPU of the other quad is held, so that four of the seven free ones are rarely a quad."""
    ((node, devices),) = gpus.gpus.items()
    hold(gpus, pods, devices[1].uuid)
    labelled = plane.kubectl("label", "node", node, "ack.node.gpu.schedule=topology")
    assert labelled.returncode == 0, labelled.stderr
    wait_until(lambda: bool(plane.api.get(RULES)["items"]), "the node is fenced", PATIENCE)
    wait_until_claims_are_made(pods)

    applied = plane.kubectl("apply", f"--namespace={pods.namespace}", "--filename=-", stdin=JOB)
    assert applied.returncode == 0, applied.stderr

    workers = {f"resnet-worker-{i}" for i in range(4)}

    def running():
        made = pods.all()
        all_run = all(made[name]["status"]["phase"] == "Running" for name in workers)
        return all_run and gpus.allocated(pods.namespace)

    held = wait_for(running, "all workers run", PATIENCE)
    wait_for_phase(pods, "resnet", "Placed", members="4/4")
    assert held.keys() == workers | {"notebook"}
    assert {name: len(held[name]) for name in workers} == dict.fromkeys(workers, 1)
    assert frozenset().union(*(held[name] for name in workers)) == {gpu.uuid for gpu in devices[4:]}
    wait_until(lambda: "resnet-launcher" in pods.bound(), "the launcher is bound", PATIENCE)

    template = yaml.safe_load(JOB)["spec"]["mpiReplicaSpecs"]["Worker"]["template"]
    job = plane.api.get(f"{jobs_of(pods.namespace)}/resnet")
    assert job["spec"]["mpiReplicaSpecs"]["Worker"]["template"] == template

    assert plane.api.get("/apis/apps/v1/daemonsets")["items"] == []
    assert keys.AGENT not in names(plane, NAMESPACES)
    everywhere = plane.api.get("/api/v1/pods")["items"]
    there = [one for one in everywhere if one["spec"].get("nodeName") == node]
    assert {one["metadata"]["namespace"] for one in there} == {pods.namespace}
    linkwise = plane.api.get(f"/api/v1/namespaces/{NAMESPACE}/pods")["items"]
    assert {one["spec"]["nodeName"] for one in linkwise} == {"system"}
