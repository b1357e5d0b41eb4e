"""The GPUs that a container may have, by the record of its pod."""

from collections.abc import Iterable

from agent.binding.container_spec import Binding
from agent.binding.errors import BindError
from agent.driver.reading import GPU, DriverReading
from linkwise.cluster.allocations.gpus import GPUShare
from linkwise.cluster.allocations.record import RecordError, divide_gpus, parse_record
from linkwise.cluster.keys import ALLOCATION, GPU_MEM, NVIDIA_GPU_SHARED
from linkwise.cluster.objects.pod import Pod
from linkwise.cluster.requests.request import Family
from linkwise.cluster.requests.request_reader import read_request

_SHARED = frozenset({GPU_MEM, NVIDIA_GPU_SHARED})
"""Resources whose containers may have the same GPU."""
_REMEDY = "delete the pod, so that its replacement is scheduled again"


def container_gpus(
    pod: Pod, container: str, resource: str, node: str, reading: DriverReading
) -> tuple[GPUShare, ...]:
    """Return the GPUs of a container, each with its UUID.

    Args:
        pod: The pod with its record.
        container: Name of the container.
        resource: The resource that the kubelet allocated to it.
        node: Name of this node.
        reading: The GPUs of this node.

    Raises:
        BindError: The record is missing or unreadable, does not fit the pod or the node, or names a
            GPU that cannot be used.
    """
    shares = _recorded(pod, container, resource, node)
    return tuple(_present(share, reading) for share in shares)


def gpu_problem(share: GPUShare, reading: DriverReading) -> str | None:
    """Return why a recorded GPU cannot be used; None if it can."""
    gpu = gpu_of(share, reading)
    if gpu is None:
        now = next((gpu.uuid for gpu in reading.gpus if gpu.i == share.i), None)
        if now is None:
            return f"the node has no GPU {share.i}"
        return f"GPU {share.i} was {share.uuid} when it was allocated, and is {now} now"
    return f"GPU {gpu.i} ({gpu.uuid}) is unusable: {gpu.problem}" if gpu.problem else None


def gpu_of(share: GPUShare, reading: DriverReading) -> GPU | None:
    """Return the GPU of a share, or None.

    It is that of its UUID: indices change when the node starts without one of its GPUs.
    """
    if share.uuid is None:
        return next((gpu for gpu in reading.gpus if gpu.i == share.i), None)
    return next((gpu for gpu in reading.gpus if gpu.uuid == share.uuid), None)


def conflicts(wanted: Binding, others: Iterable[Binding]) -> tuple[Binding, ...]:
    """Return bindings of other pods that have a GPU of a container.

    Shares of one resource may have the same GPU. Containers of one pod have what its record divides
    among them, where only init containers overlap with others.
    """
    gpus = {_identity(gpu) for gpu in wanted.gpus}
    return tuple(
        other
        for other in others
        if other.uid != wanted.uid
        and not (other.resource == wanted.resource and other.resource in _SHARED)
        and not gpus.isdisjoint(map(_identity, other.gpus))
    )


def conflict_text(binding: Binding, rival: Binding) -> str:
    """Return why a container must wait for another one; a tenant sees no other tenant's names."""
    holder = "a container of another namespace"
    if rival.namespace == binding.namespace:
        holder = f"container {rival.container} of pod {rival.namespace}/{rival.pod}"
    return (
        f"GPU {_common(binding, rival)} belongs to {holder}, which has not ended; "
        "the kubelet tries again"
    )


def unreleased_text(binding: Binding, last: Binding, process: str) -> str:
    """Return why a container must wait for a process of a pod that is gone."""
    holder = "a process of a deleted pod of another namespace"
    if last.namespace == binding.namespace:
        holder = f"{process} of the deleted pod {last.namespace}/{last.pod}"
    return (
        f"GPU {_common(binding, last)} may be in use by {holder}, which has not ended; "
        "the kubelet tries again"
    )


def _common(one: Binding, other: Binding) -> str:
    """Return the indices of the GPUs of both."""
    others = set(map(_identity, other.gpus))
    return ", ".join(map(str, sorted({gpu.i for gpu in one.gpus if _identity(gpu) in others})))


def _identity(share: GPUShare) -> str | int:
    """Return what names a GPU: its index may have been another one for an older binding."""
    return share.uuid or share.i


def _recorded(pod: Pod, container: str, resource: str, node: str) -> tuple[GPUShare, ...]:
    try:
        record = parse_record(pod.annotations)
    except RecordError as error:
        raise BindError(
            f"the record of the pod's GPUs is unreadable: {error}; {_REMEDY}"
        ) from error
    if record is None:
        raise BindError(
            f"no GPUs are recorded for the pod: the annotation {ALLOCATION} is missing, so it "
            f"bypassed Linkwise; {_REMEDY}"
        )
    if record.node != node:
        raise BindError(
            f"{ALLOCATION} has GPUs of node {record.node}, and the pod is on {node}; {_REMEDY}"
        )
    request, _ = read_request(pod)
    shares = record.gpus.shares
    if len(shares) != request.gpus:
        raise BindError(
            f"{ALLOCATION} names {len(shares)} GPUs, and the pod asks for {request.gpus}; {_REMEDY}"
        )
    if request.family is not Family.REPLICA and len(set(map(_identity, shares))) < request.gpus:
        raise BindError(f"{ALLOCATION} names a GPU twice; {_REMEDY}")
    for ask, gpus in zip(request.containers, divide_gpus(shares, request), strict=True):
        if ask.container == container and ask.resource == resource:
            return gpus
    raise BindError(f"container {container} does not ask for {resource}; {_REMEDY}")


def _present(share: GPUShare, reading: DriverReading) -> GPUShare:
    gpu, problem = gpu_of(share, reading), gpu_problem(share, reading)
    if gpu is None or problem:
        raise BindError(f"{ALLOCATION}: {problem}; {_REMEDY}")
    return GPUShare(gpu.i, gpu.uuid, share.mem, share.core)
