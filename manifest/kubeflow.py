"""Expand MPIJob, PyTorchJob and TFJob into the pod templates of Kubeflow's operators.

Sources: training-operator v1.5 `pkg/controller.v1` (kubeflow.org/v1); mpi-operator `pkg/controller`
at v0.6 (v2beta1) and at v0.2.3 (v1alpha1, which arena submits).
"""

from dataclasses import replace

from cluster import keys
from manifest.template import (
    Change,
    Head,
    Marks,
    PodTemplate,
    batch_labels,
    is_set,
    number_of,
    numbered,
    ordinal,
)
from manifest.value import Value


def pytorch_job(job: Head) -> tuple[PodTemplate, ...]:
    """Return the master's and the workers' templates of a PyTorchJob."""
    specs = job.spec.need("pytorchReplicaSpecs")
    labels = {keys.OPERATOR_NAME: "pytorchjob-controller", keys.JOB_NAME: job.name}
    templates = []
    for kind in ("Master", "Worker"):
        replica = specs.child(kind)
        if replica is None:
            continue
        role = kind.lower()
        own = {keys.REPLICA_TYPE: role} | ({keys.JOB_ROLE: role} if role == "master" else {})
        stamp = numbered(f"{job.name}-{role}", labels | own, keys.REPLICA_INDEX)
        replicas = number_of(replica, "replicas", 1)
        templates.append(job.template(replica.need("template"), role, replicas, stamp))
    if not templates:
        raise specs.error("spec.pytorchReplicaSpecs has neither Master nor Worker; add one.")
    return tuple(templates)


def tf_job(job: Head) -> tuple[PodTemplate, ...]:
    """Return the templates of the roles of a TFJob."""
    specs = job.spec.need("tfReplicaSpecs")
    labels = {keys.OPERATOR_NAME: "tfjob-controller", keys.JOB_NAME: job.name}
    templates = []
    for kind in specs.mapping():
        replica, role = specs.need(kind), kind.lower()
        own = labels | {keys.REPLICA_TYPE: role}
        stamp = numbered(f"{job.name}-{role}", own, keys.REPLICA_INDEX)
        replicas = number_of(replica, "replicas", 1)
        templates.append(job.template(replica.need("template"), role, replicas, stamp))
    return tuple(templates)


def mpi_job_v1(job: Head) -> tuple[PodTemplate, ...]:
    """Return the launcher's and the workers' templates: bare pods of training-operator v1."""
    labels = {keys.OPERATOR_NAME: "mpijob-controller", keys.JOB_NAME: job.name}
    template = _launcher_template(job)
    launcher = _launcher(job, template, labels | {keys.REPLICA_TYPE: "launcher"})
    launcher = replace(launcher, change=None if _asks_gpus(template) else _hide_gpus)
    return (launcher, *_workers(job, labels | {keys.REPLICA_TYPE: "worker"}))


def mpi_job_v2(job: Head) -> tuple[PodTemplate, ...]:
    """Return the launcher's and the workers' templates: a Job, and bare pods, of mpi-operator."""
    labels = {keys.OPERATOR_NAME: "mpi-operator", keys.JOB_NAME: job.name}
    works = is_set(job.spec, "runLauncherAsWorker")
    rank = {keys.REPLICA_INDEX: "0"} if works else {}
    own = labels | {keys.JOB_ROLE: "launcher"} | rank
    launcher = _launcher(job, _launcher_template(job), own)
    launcher = _of_batch_job(launcher, job, None if works else _hide_gpus)
    policy = job.spec.child("launcherCreationPolicy")
    waits = policy is not None and policy.text() == "WaitForWorkersReady"
    launcher = replace(launcher, is_late=waits)
    return (launcher, *_workers(job, labels | {keys.JOB_ROLE: "worker"}, int(works)))


def mpi_job_v1alpha1(job: Head) -> tuple[PodTemplate, ...]:
    """Return the one template twice: a launcher's Job without resources, workers' StatefulSet."""
    template = job.spec.need("template")
    labels = {keys.MPI_GROUP_NAME: "kubeflow.org", keys.MPI_JOB_NAME: job.name}
    launcher = _launcher(job, template, labels | {keys.MPI_ROLE_TYPE: "launcher"})
    stem = f"{job.name}-worker"
    stamp = ordinal(stem, labels | {keys.MPI_ROLE_TYPE: "worker"})
    workers = job.template(template, "worker", job.spec.need("replicas").whole(), stamp)
    made = job.made("StatefulSet", "apps/v1", stem)
    return (
        _of_batch_job(launcher, job, _clear_resources),
        replace(workers, owners=(made, job.owner)),
    )


def _launcher_template(job: Head) -> Value:
    return job.spec.need("mpiReplicaSpecs").need("Launcher").need("template")


def _launcher(job: Head, template: Value, labels: dict[str, str]) -> PodTemplate:
    return job.template(template, "launcher", 1, lambda _: Marks(f"{job.name}-launcher", labels))


def _of_batch_job(launcher: PodTemplate, job: Head, change: Change | None) -> PodTemplate:
    """Return a launcher created by a batch Job of its name, with the labels of that Job's pods."""
    name, labels, annotations = launcher.stamp(0)
    marks = Marks(name, {**labels, **batch_labels(name)}, annotations)
    owners = (job.made("Job", "batch/v1", name), job.owner)
    return replace(launcher, stamp=lambda _: marks, owners=owners, change=change)


def _workers(job: Head, labels: dict[str, str], shift: int = 0) -> tuple[PodTemplate, ...]:
    replica = job.spec.need("mpiReplicaSpecs").child("Worker")
    if replica is None:
        return ()
    stamp = numbered(f"{job.name}-worker", labels, keys.REPLICA_INDEX, shift)
    replicas = number_of(replica, "replicas", 0)
    return (job.template(replica.need("template"), "worker", replicas, stamp),)


def _asks_gpus(launcher: Value) -> bool:
    """Return whether training-operator regards this template as a launcher with GPUs."""
    for container in launcher.need("spec").listed("containers"):
        resources = container.child("resources")
        limits = resources.child("limits") if resources else None
        if limits and any(name.endswith(".com/gpu") for name in limits.mapping()):
            return True
    return False


def _clear_resources(container: dict[str, object]) -> dict[str, object]:
    return {key: value for key, value in container.items() if key != "resources"}


def _hide_gpus(container: dict[str, object]) -> dict[str, object]:
    env = container.get("env", [])
    names = (keys.ENV_VISIBLE_DEVICES, keys.ENV_DRIVER_CAPABILITIES)
    hidden = [{"name": name, "value": ""} for name in names]
    return {**container, "env": [*env, *hidden] if isinstance(env, list) else env}
