"""Determine the isolation that is in effect for the share of a pod on its node."""

from collections.abc import Iterator, Set

from linkwise.cluster.allocations.record import Isolation
from linkwise.cluster.container_variables import ENV_CGPU_OFF, ENV_MPS_PIPES
from linkwise.cluster.keys import NODE_CGPU_OFF
from linkwise.cluster.mode import NodeMode
from linkwise.cluster.nodes.node import Node
from linkwise.cluster.objects.container import Container
from linkwise.cluster.objects.pod import Pod
from linkwise.cluster.requests import mps
from linkwise.cluster.requests.request import ContainerRequest, Request

_UNKNOWN = "?"
"""Placeholder for a value that is unknown."""


def isolation_of(pod: Pod, request: Request, node: Node) -> Isolation:
    """Return the isolation that is in effect in all GPU containers of a pod.

    cGPU nodes isolate unless their label or a variable of a container disables it. On an MPS node
    with an agent, the agent sets the limits of every container, and reports whether a client was
    seen to be limited. Without an agent a container is limited if it has the limits as variables,
    and mounts a hostPath at the directory of the daemon's pipes: otherwise CUDA silently runs
    without the daemon. Variables from other objects count as the worst case; those of the image are
    unknown.

    Args:
        pod: The admitted pod.
        request: Its request.
        node: Its node.

    Source: CUDA documentation, "Multi-Process Service", CUDA_MPS_PIPE_DIRECTORY and the client's
    side of nvidia-cuda-mps-control; gpushare-device-plugin at 45fb8b8, `CGPU_DISABLE`.
    """
    asking = _asking(pod, request)
    if node.mode is NodeMode.CGPU and node.labels.get(NODE_CGPU_OFF) != "true":
        return Isolation.NONE if any(_may_be_off(one) for one, _ in asking) else Isolation.CGPU
    if node.mode is NodeMode.MPS and node.isolation is not None:
        return node.isolation
    if node.mode is NodeMode.MPS:
        host_paths = {one.name for one in pod.spec.volumes or () if one.host_path is not None}
        if all(_is_client(one, requested, request.gpus, host_paths) for one, requested in asking):
            return Isolation.MPS
    return Isolation.NONE


def _asking(pod: Pod, request: Request) -> Iterator[tuple[Container, ContainerRequest]]:
    for requested in request.containers:
        containers = (pod.spec.init_containers or ()) if requested.init else pod.spec.containers
        yield containers[requested.index], requested


def _may_be_off(container: Container) -> bool:
    """Return whether a container may have disabled cGPU."""
    return _value(container, ENV_CGPU_OFF, "") not in {"", "false"}


def _is_client(
    container: Container, requested: ContainerRequest, cards: int, host_paths: Set[str]
) -> bool:
    """Return whether a container is an MPS client within its limits.

    Args:
        container: The container.
        requested: Its request.
        cards: Number of cards of the share.
        host_paths: Names of hostPath volumes.
    """
    pipes = _value(container, ENV_MPS_PIPES, mps.PIPES)
    mounts = container.volume_mounts or ()
    mounted = {one.mount_path.rstrip("/") for one in mounts if one.name in host_paths}
    return (
        bool(pipes)
        and pipes.rstrip("/") in mounted
        and all(
            mps.is_tighter(name, _value(container, name, ""), most)
            for name, most in mps.limits(requested, cards).items()
        )
    )


def _value(container: Container, name: str, default: str) -> str:
    """Return the value of a variable; `_UNKNOWN` if any part of it is from elsewhere."""
    # The last one of a name takes effect.
    found = next((one for one in reversed(container.env or ()) if one.name == name), None)
    if found is None:
        return _UNKNOWN if container.env_from else default
    return _UNKNOWN if found.value_from is not None or "$(" in found.value else found.value
