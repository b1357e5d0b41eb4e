"""What keeps a pod's share within its limits on the node that it gets: never more than is so."""

from collections.abc import Iterator, Set

from cluster import mps
from cluster.keys import ENV_CGPU_OFF, ENV_MPS_PIPES, NODE_CGPU_OFF
from cluster.mode import Mode
from cluster.node import Node
from cluster.pod import Container, Pod
from cluster.record import Isolation
from cluster.request import Ask, Request

_PIPES = "/tmp/nvidia-mps"  # noqa: S108 - where NVIDIA's control daemon has its pipes by default.
_UNKNOWN = "?"
"""No directory, no limit, and neither on nor off."""


def isolation_of(pod: Pod, request: Request, node: Node) -> Isolation:
    """Return what keeps a pod within what it asks for, in all its containers with GPUs.

    On a cGPU node the node does, unless its label or a container's own variable turns that off.
    On an MPS node a container is limited when its variables say so and a folder of the node, which
    is where the daemon's pipes are, is mounted at their place: without these CUDA runs as if there
    were no daemon, and says nothing. Of variables that stand elsewhere the worst is believed; those
    of the image cannot be known.

    Args:
        pod: As it was admitted.
        request: What it asks for.
        node: Where it goes.

    Source: CUDA documentation, "Multi-Process Service", CUDA_MPS_PIPE_DIRECTORY and the client's
    side of nvidia-cuda-mps-control; gpushare-device-plugin at 45fb8b8, `CGPU_DISABLE`.
    """
    asking = _asking(pod, request)
    if node.mode is Mode.CGPU and node.labels.get(NODE_CGPU_OFF) != "true":
        return Isolation.NONE if any(_may_be_off(one) for one, _ in asking) else Isolation.CGPU
    if node.mode is Mode.MPS:
        nodes_own = {one.name for one in pod.spec.volumes or () if one.host_path is not None}
        if all(_is_client(one, ask, request.gpus, nodes_own) for one, ask in asking):
            return Isolation.MPS
    return Isolation.NONE


def _asking(pod: Pod, request: Request) -> Iterator[tuple[Container, Ask]]:
    for ask in request.asks:
        containers = (pod.spec.init_containers or ()) if ask.init else pod.spec.containers
        yield containers[ask.index], ask


def _may_be_off(container: Container) -> bool:
    """Tell whether a container may have turned cGPU's limits off."""
    return _value(container, ENV_CGPU_OFF, "") not in {"", "false"}


def _is_client(container: Container, ask: Ask, cards: int, nodes_own: Set[str]) -> bool:
    """Tell whether a container is a client of MPS that may have no more than it asks for.

    Args:
        container: The container.
        ask: What it asks for.
        cards: How many cards that is spread over.
        nodes_own: Names of volumes that are folders of the node.
    """
    pipes = _value(container, ENV_MPS_PIPES, _PIPES)
    mounts = container.volume_mounts or ()
    mounted = {one.mount_path.rstrip("/") for one in mounts if one.name in nodes_own}
    return (
        bool(pipes)
        and pipes.rstrip("/") in mounted
        and all(
            mps.is_tighter(name, _value(container, name, ""), most)
            for name, most in mps.limits(ask, cards).items()
        )
    )


def _value(container: Container, name: str, default: str) -> str:
    """Return a variable's value; `_UNKNOWN` where it stands elsewhere, wholly or in part."""
    # Of several with one name the last counts.
    found = next((one for one in reversed(container.env or ()) if one.name == name), None)
    if found is None:
        return _UNKNOWN if container.env_from else default
    return _UNKNOWN if found.value_from is not None or "$(" in found.value else found.value
