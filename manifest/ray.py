"""Expand RayCluster, RayJob and RayService into the pod templates of KubeRay.

Source: ray-project/kuberay `apis/ray/v1` and `controllers/ray` at v1.6.
"""

from dataclasses import replace

from cluster import keys
from cluster.pod import Owner
from manifest.template import Head, Marks, PodTemplate, batch_labels, is_set, number_of, numbered
from manifest.value import Value


def ray_cluster(job: Head) -> tuple[PodTemplate, ...]:
    """Return the head's and the workers' templates of a RayCluster."""
    return _cluster(job, job.spec, job.name, (job.owner,))


def ray_job(job: Head) -> tuple[PodTemplate, ...]:
    """Return the templates of a RayJob: of its RayCluster, and of the pod that submits the job."""
    cluster = job.spec.child("rayClusterSpec")
    made = _made_cluster(job, cluster) if cluster else ()
    submitter = job.spec.child("submitterPodTemplate")
    if submitter is None:
        return made
    marks = Marks(f"{job.name}-xxxxx", batch_labels(job.name))
    template = job.template(submitter, "submitter", 1, lambda _: marks)
    owners = (job.made("Job", "batch/v1", job.name), job.owner)
    return (*made, replace(template, owners=owners))


def ray_service(job: Head) -> tuple[PodTemplate, ...]:
    """Return the templates of the RayCluster of a RayService."""
    return _made_cluster(job, job.spec.need("rayClusterConfig"))


def _made_cluster(job: Head, spec: Value) -> tuple[PodTemplate, ...]:
    name = f"{job.name}-xxxxx"
    made = job.made("RayCluster", job.owner.api_version, name)
    return _cluster(job, spec, name, (made, job.owner))


def _cluster(
    job: Head, spec: Value, name: str, owners: tuple[Owner, ...]
) -> tuple[PodTemplate, ...]:
    def group(value: Value, group: str, node_type: str, stem: str, pods: int) -> PodTemplate:
        labels = {keys.RAY_CLUSTER: name, keys.RAY_NODE_TYPE: node_type, keys.RAY_GROUP: group}
        template = job.template(value.need("template"), group, pods, numbered(stem, labels))
        return replace(template, owners=owners)

    templates = [group(spec.need("headGroupSpec"), "headgroup", "head", f"{name}-head", 1)]
    for workers in spec.listed("workerGroupSpecs"):
        named = workers.need("groupName").text()
        stem = f"{name}-{named}-worker"
        templates.append(group(workers, named, "worker", stem, _workers(workers)))
    return tuple(templates)


def _workers(group: Value) -> int:
    if is_set(group, "suspend"):
        return 0
    replicas = max(number_of(group, "replicas", 0), number_of(group, "minReplicas", 0))
    return replicas * max(number_of(group, "numOfHosts", 1), 1)
