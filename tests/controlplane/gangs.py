"""Gangs as people submit them, and what can be read of how they stand."""

from collections.abc import Mapping, Sequence

from controlplane.api import ApiError, Object
from controlplane.history import Gpu, gpus
from controlplane.pods import Pods, container
from controlplane.process import wait_until

from cluster import keys
from scorer.gang.crd import gangs_of

_PATIENCE = 120
"""For what a busy machine does at last [s]."""


def mark(gang: str, size: int) -> dict[str, str]:
    """Return the labels by which arena and others tell a gang."""
    return {keys.POD_GROUP_NAME: gang, keys.POD_GROUP_MIN_AVAILABLE: str(size)}


def make_gang(
    pods: Pods,
    gang: str,
    size: int,
    each: int,
    members: Sequence[int] | None = None,
    **given: Mapping[str, object],
) -> list[str]:
    """Create pods of a gang that nobody owns; return their names.

    Args:
        pods: Where.
        gang: Its name.
        size: How many members it says it has.
        each: GPUs of each.
        members: Which of them; all where nothing is given.
        given: What else a pod is created with.
    """
    names = [f"{gang}-{index}" for index in (range(size) if members is None else members)]
    for name in names:
        pods.create({keys.GPU_WHOLE: each}, name=name, labels=mark(gang, size), **given)
    return names


def mpi_job(name: str, workers: int, each: int, **given: object) -> Object:
    """Return an MPIJob with arena's labels; its launcher asks for no GPU.

    Args:
        name: Its name.
        workers: How many.
        each: GPUs of each.
        given: What else stands in the workers' spec.
    """
    labels = {
        **mark(f"mpijob-{name}", workers),
        keys.GPU_TOPOLOGY: name,
        keys.GPU_TOPOLOGY_REPLICA: str(workers),
    }

    def role(replicas: int, limits: Mapping[str, object], **more: object) -> Object:
        spec = {"containers": [container(limits)], **more}
        return {"replicas": replicas, "template": {"metadata": {"labels": labels}, "spec": spec}}

    ask = {keys.GPU_WHOLE: each, "cpu": 4 * each, "memory": f"{32 * each}Gi"}
    roles = {"Launcher": role(1, {}), "Worker": role(workers, ask, **given)}
    return {
        "apiVersion": "kubeflow.org/v1",
        "kind": "MPIJob",
        "metadata": {"name": name},
        "spec": {"mpiReplicaSpecs": roles},
    }


def jobs_of(namespace: str) -> str:
    """Return the collection of a namespace's MPIJobs."""
    return f"/apis/kubeflow.org/v1/namespaces/{namespace}/mpijobs"


def remove(pods: Pods, *names: str) -> None:
    """Delete pods at once."""
    for name in names:
        pods.api.delete(f"{pods.path}/{name}", gracePeriodSeconds="0")


def where(pods: Pods, gang: str) -> dict[str, tuple[Gpu, ...]]:
    """Return what each bound member of a gang has, by its pod's name."""
    return {
        name: gpus(pod)
        for name, pod in pods.all().items()
        if pod["metadata"].get("labels", {}).get(keys.POD_GROUP_NAME) == gang
        if pod["spec"].get("nodeName") and gpus(pod)
    }


def placed(pods: Pods, gang: str, size: int) -> dict[str, tuple[Gpu, ...]]:
    """Return what each member of a gang has, once all are bound."""
    wait_until(
        lambda: len(where(pods, gang)) == size, f"{size} members of {gang} are bound", _PATIENCE
    )
    return where(pods, gang)


def told(pods: Pods, gang: str, phase: str, reason: str = "", members: str = "") -> Object:
    """Return a Gang once it is said to be in a phase, for a reason that contains some text.

    Args:
        pods: Of its namespace.
        gang: Its name.
        phase: As the object says it.
        reason: What it says, too, somewhere.
        members: How many it is said to have; any when empty.
    """
    found: list[Object] = []

    def is_so() -> bool:
        found[:] = [
            one
            for one in pods.api.get(gangs_of(pods.namespace))["items"]
            if one["spec"]["gang"] == gang and one.get("status", {}).get("phase") == phase
            if reason in one["status"].get("reason", "")
            if members in {"", one["status"].get("members")}
        ]
        return bool(found)

    wait_until(is_so, f"{gang} is said to be {phase}: {reason}", _PATIENCE)
    return found[0]


def events(pods: Pods, reason: str, *, of: str = "") -> list[str]:
    """Return the messages of the events of a reason, of one kind of object where it is given."""
    found = pods.api.get(f"/api/v1/namespaces/{pods.namespace}/events")["items"]
    return [
        one["message"]
        for one in found
        if one["reason"] == reason and of in ("", one["involvedObject"]["kind"])
    ]


def is_gone(pods: Pods, path: str) -> bool:
    """Say whether nothing is at a path."""
    try:
        pods.api.get(path)
    except ApiError as error:
        return error.status == 404
    return False
