"""Submit gangs, and read their Gang objects, pods and Events."""

from collections.abc import Mapping, Sequence

from controlplane.api import ApiError, Object
from controlplane.history import Gpu, gpus
from controlplane.pods import Pods, container
from controlplane.process import wait_for, wait_until

from linkwise.cluster import keys
from linkwise.planning.gang.crd import gangs_of

_PATIENCE = 120
"""How long to wait; a busy machine may be slow [s]."""


def gang_labels(gang: str, size: int) -> dict[str, str]:
    """Return the labels that name a gang and its size, as arena sets them."""
    return {keys.POD_GROUP_NAME: gang, keys.POD_GROUP_MIN_AVAILABLE: str(size)}


def make_gang(
    pods: Pods,
    gang: str,
    size: int,
    each: int,
    members: Sequence[int] | None = None,
    resource: str = keys.GPU_WHOLE,
    **given: Mapping[str, object],
) -> list[str]:
    """Create pods of a gang without an owner; return their names.

    Args:
        pods: The namespace.
        gang: The gang's name.
        size: The number of members in the labels.
        each: GPUs of each pod.
        members: The indices to create; all of them by default.
        resource: The resource that counts the GPUs.
        given: Other arguments of `Pods.create`.
    """
    names = [f"{gang}-{index}" for index in (range(size) if members is None else members)]
    for name in names:
        pods.create({resource: each}, name=name, labels=gang_labels(gang, size), **given)
    return names


def mpi_job(name: str, workers: int, each: int, **given: object) -> Object:
    """Return an MPIJob with arena's labels; its launcher requests no GPU.

    Args:
        name: The job's name.
        workers: The number of workers.
        each: GPUs of each worker.
        given: Other fields of the workers' pod spec.
    """
    labels = {
        **gang_labels(f"mpijob-{name}", workers),
        "gpu-topology": name,
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


def make_stateful_gang(pods: Pods, name: str, size: int, spec: Object) -> str:
    """Create a StatefulSet whose pods are a gang; return its path.

    Its controller makes pods again that are evicted, all at once.

    Args:
        pods: The namespace.
        name: The name of the StatefulSet and of the gang.
        size: The number of pods.
        spec: Of each pod.
    """
    labels = {"app": name}
    template = {"metadata": {"labels": {**gang_labels(name, size), **labels}}, "spec": spec}
    body = {
        "metadata": {"name": name},
        "spec": {
            "replicas": size,
            "serviceName": name,
            "podManagementPolicy": "Parallel",
            "selector": {"matchLabels": labels},
            "template": template,
        },
    }
    path = f"/apis/apps/v1/namespaces/{pods.namespace}/statefulsets"
    pods.api.create(path, body)
    return f"{path}/{name}"


def unmarked_job(version: str, name: str, workers: int, each: int) -> Object:
    """Return an MPIJob of v1 or v2beta1 without any mark; its launcher requests no GPU."""
    job = {**mpi_job(name, workers, each), "apiVersion": f"kubeflow.org/{version}"}
    for role in job["spec"]["mpiReplicaSpecs"].values():
        del role["template"]["metadata"]
    return job


def held(pods: Pods, prefix: str) -> dict[str, tuple[Gpu, ...]]:
    """Return the GPUs of each bound pod whose name begins so, by its name."""
    return {
        name: gpus(pod)
        for name, pod in pods.all().items()
        if name.startswith(prefix) and pod["spec"].get("nodeName") and gpus(pod)
    }


def wait_until_held(pods: Pods, prefix: str, count: int) -> dict[str, tuple[Gpu, ...]]:
    """Wait until so many pods whose names begin so are bound; return their GPUs by name."""
    wait_until(lambda: len(held(pods, prefix)) == count, f"{count} {prefix}* are bound", _PATIENCE)
    return held(pods, prefix)


def jobs_of(namespace: str) -> str:
    """Return the path of a namespace's MPIJobs."""
    return f"/apis/kubeflow.org/v1/namespaces/{namespace}/mpijobs"


def delete_pods(pods: Pods, *names: str) -> None:
    """Delete pods without a grace period."""
    for name in names:
        pods.api.delete(f"{pods.path}/{name}", gracePeriodSeconds="0")


def where(pods: Pods, gang: str) -> dict[str, tuple[Gpu, ...]]:
    """Return the GPUs of each bound member of a gang, by pod name."""
    return {
        name: gpus(pod)
        for name, pod in pods.all().items()
        if pod["metadata"].get("labels", {}).get(keys.POD_GROUP_NAME) == gang
        if pod["spec"].get("nodeName") and gpus(pod)
    }


def wait_until_placed(pods: Pods, gang: str, size: int) -> dict[str, tuple[Gpu, ...]]:
    """Wait until all members of a gang are bound; return their GPUs by pod name."""
    wait_until(
        lambda: len(where(pods, gang)) == size, f"{size} members of {gang} are bound", _PATIENCE
    )
    return where(pods, gang)


def wait_for_phase(
    pods: Pods, gang: str, phase: str, reason: str = "", members: str = ""
) -> Object:
    """Wait until a Gang object has this status; return it.

    Args:
        pods: The namespace.
        gang: The gang's name.
        phase: Its phase.
        reason: A part of its reason.
        members: Its members, such as `2/4`; any when empty.
    """

    def found() -> list[Object]:
        return [
            one
            for one in pods.api.get(gangs_of(pods.namespace))["items"]
            if one["spec"]["gang"] == gang and one.get("status", {}).get("phase") == phase
            if reason in one["status"].get("reason", "")
            if members in {"", one["status"].get("members")}
        ]

    return wait_for(found, f"Gang {gang} is {phase}: {reason}", _PATIENCE)[0]


def events(pods: Pods, reason: str, *, of: str = "") -> list[str]:
    """Return the messages of the Events with a reason; `of` selects the kind of their object."""
    found = pods.api.get(f"/api/v1/namespaces/{pods.namespace}/events")["items"]
    return [
        one["message"]
        for one in found
        if one["reason"] == reason and of in ("", one["involvedObject"]["kind"])
    ]


def wait_for_event(pods: Pods, reason: str, text: str, *, of: str = "") -> None:
    """Wait until a message of the Events with a reason has a text; `of` as in `events`."""
    what = f"an Event {reason} says {text}"
    wait_until(lambda: any(text in message for message in events(pods, reason, of=of)), what)


def is_gone(pods: Pods, path: str) -> bool:
    """Return whether no object exists at a path."""
    try:
        pods.api.get(path)
    except ApiError as error:
        return error.status == 404
    return False


def wait_until_planned(pods: Pods, count: int, *, of: str = "worker") -> None:
    """Wait until the plan of the only gang has the uids of so many present pods of that name."""

    def is_planned() -> bool:
        (gang,) = pods.api.get(gangs_of(pods.namespace))["items"]
        members = {member["uid"] for member in gang["spec"].get("plan", {}).get("members", [])}
        workers = {one["metadata"]["uid"] for name, one in pods.all().items() if of in name}
        return len(workers) == count and members == workers

    wait_until(is_planned, f"the plan is that of {count} present pods", _PATIENCE)
