"""What keeps a pod's share within its limits on the node that it gets: never more than is so."""

from collections.abc import Iterator

from cluster import mps
from cluster.keys import ENV_CGPU_OFF, ENV_MPS_PIPES, NODE_CGPU_OFF
from cluster.mode import Mode
from cluster.node import Node
from cluster.pod import Container, Env, Pod
from cluster.record import Isolation
from cluster.request import Ask, Request

_PIPES = "/tmp/nvidia-mps"  # noqa: S108 - where NVIDIA's control daemon has its pipes by default.


def isolation_of(pod: Pod, request: Request, node: Node) -> Isolation:
    """Return what keeps a pod within what it asks for, in all its containers with GPUs.

    On a cGPU node the node does, unless its label or a container's own variable turns that off.
    On an MPS node a container is limited when its variables say so and the daemon's pipes are
    mounted in it: without these CUDA runs as if there were no daemon, and says nothing.

    Args:
        pod: As it was admitted.
        request: What it asks for.
        node: Where it goes.

    Source: CUDA documentation, "Multi-Process Service", CUDA_MPS_PIPE_DIRECTORY and the client's
    side of nvidia-cuda-mps-control; gpushare-device-plugin at 45fb8b8, `CGPU_DISABLE`.
    """
    asking = _asking(pod, request)
    match node.mode:
        case Mode.CGPU if node.labels.get(NODE_CGPU_OFF) != "true":
            return Isolation.NONE if any(_is_off(one) for one, _ in asking) else Isolation.CGPU
        case Mode.MPS if all(_is_client(one, ask, request.gpus) for one, ask in asking):
            return Isolation.MPS
    return Isolation.NONE


def _asking(pod: Pod, request: Request) -> Iterator[tuple[Container, Ask]]:
    for ask in request.asks:
        containers = (pod.spec.init_containers or ()) if ask.init else pod.spec.containers
        yield containers[ask.index], ask


def _is_off(container: Container) -> bool:
    """Tell whether a container may have turned cGPU's limits off."""
    env = _variables(container).get(ENV_CGPU_OFF)
    return env is not None and (env.value_from is not None or env.value == "true")


def _is_client(container: Container, ask: Ask, cards: int) -> bool:
    """Tell whether a container is a client of MPS that may have no more than it asks for."""
    # A value that stands elsewhere reads as empty, which is neither a directory nor a limit.
    values = {name: env.value for name, env in _variables(container).items()}
    pipes = values.get(ENV_MPS_PIPES, _PIPES)
    mounted = {mount.mount_path.rstrip("/") for mount in container.volume_mounts or ()}
    return (
        pipes != ""
        and pipes.rstrip("/") in mounted
        and all(
            mps.is_tighter(name, values.get(name, ""), most)
            for name, most in mps.limits(ask, cards).items()
        )
    )


def _variables(container: Container) -> dict[str, Env]:
    """Return a container's variables; of several with one name the last counts."""
    return {env.name: env for env in container.env or ()}
