"""The MPIJob of `arena submit mpi --gang --gputopology`, and the objects that operators create.

Sources: the operators of MPIJob v1alpha1 (mpi-operator v0.2.3) and v2beta1 (v0.8.2), seen on a real
API server.
"""

import copy

import yaml
from controlplane.api import Object
from support.documents import ARENA

from linkwise.cluster import keys
from linkwise.workloads import operator_keys


def submitted() -> Object:
    """Return the MPIJob that arena makes: 4 workers with one GPU each."""
    job: Object = yaml.safe_load(ARENA)
    return job


def workers_of(job: Object) -> Object:
    """Return the StatefulSet that the operator makes of an MPIJob at once."""
    template = _template(job, "worker")
    [container] = template["spec"]["containers"]
    container["command"] = ["sleep", "365d"]
    # The operator writes an amount of NVIDIA's GPUs, whatever else the template asks for.
    container["resources"]["limits"][keys.NVIDIA_GPU] = "0"
    name = f"{job['metadata']['name']}-worker"
    spec = {
        "podManagementPolicy": "Parallel",
        "replicas": job["spec"]["replicas"],
        "selector": {"matchLabels": _marks(job, "worker")},
        "serviceName": name,
        "template": template,
    }
    return _owned(job, "apps/v1", "StatefulSet", name, spec)


def launcher_of(job: Object) -> Object:
    """Return the Job that the operator makes once all workers are ready: the same template."""
    template = _template(job, "launcher")
    template["spec"]["restartPolicy"] = "OnFailure"
    for container in template["spec"]["containers"]:
        container["resources"] = {}
    name = f"{job['metadata']['name']}-launcher"
    return _owned(job, "batch/v1", "Job", name, {"template": template})


def unmarked() -> Object:
    """Return the same MPIJob as a person writes it: nothing marks a gang."""
    job = submitted()
    job["metadata"] = {"name": "train"}
    job["spec"]["template"]["metadata"] = {"labels": {"app": "train"}}
    return job


def worker_of(job: Object, index: int) -> Object:
    """Return a worker of an MPIJob v2beta1: a bare pod."""
    template = copy.deepcopy(job["spec"]["mpiReplicaSpecs"]["Worker"]["template"])
    own = {operator_keys.REPLICA_INDEX: str(index), **_marks_v2(job, "worker")}
    made = _owned(job, "v1", "Pod", f"{job['metadata']['name']}-worker-{index}", template["spec"])
    made["metadata"]["labels"] = own
    return made


def launcher_job_of(job: Object) -> Object:
    """Return the Job of the launcher of an MPIJob v2beta1: made at once, or when all workers are
    ready."""
    template = copy.deepcopy(job["spec"]["mpiReplicaSpecs"]["Launcher"]["template"])
    template["metadata"] = {"labels": _marks_v2(job, "launcher")}
    template["spec"]["restartPolicy"] = "Never"
    name = f"{job['metadata']['name']}-launcher"
    return _owned(job, "batch/v1", "Job", name, {"template": template})


def _marks_v2(job: Object, role: str) -> dict[str, str]:
    return {
        operator_keys.OPERATOR_NAME: "mpi-operator",
        operator_keys.JOB_NAME: job["metadata"]["name"],
        operator_keys.JOB_ROLE: role,
    }


def _template(job: Object, role: str) -> Object:
    template: Object = copy.deepcopy(job["spec"]["template"])
    template["metadata"]["labels"] |= _marks(job, role)
    return template


def _marks(job: Object, role: str) -> dict[str, str]:
    return {
        "group_name": "kubeflow.org",
        "mpi_job_name": job["metadata"]["name"],
        "mpi_role_type": role,
    }


def _owned(job: Object, version: str, kind: str, name: str, spec: Object) -> Object:
    metadata: Object = {"name": name}
    if uid := job["metadata"].get("uid"):
        owner = {key: job[key] for key in ("apiVersion", "kind")}
        owner |= {"name": job["metadata"]["name"], "uid": uid, "controller": True}
        metadata["ownerReferences"] = [owner]
    return {"apiVersion": version, "kind": kind, "metadata": metadata, "spec": spec}
