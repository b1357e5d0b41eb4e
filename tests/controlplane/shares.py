"""Shares of cards in numbers: nodes that have them, and pods that ask for them."""

from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor

from controlplane.api import ApiError
from controlplane.history import History
from controlplane.nodes import Line
from controlplane.pods import Pods
from controlplane.process import wait_until

from linkwise.cluster import keys

CARDS, MEMORY = 4, 15
"""Of each node, and of each card [GiB]."""

Limits = Mapping[str, object]


def share_nodes(count: int) -> Line:
    """Return nodes of cards of which pods take memory and compute."""
    line = {"name": "share", "machine": "t4x4", "mode": "core_mem", "gpuMemory": MEMORY}
    return {**line, "count": count, "cpu": 96, "memory": "768Gi"}


def create_all(pods: Pods, wanted: Mapping[str, tuple[Limits, Mapping[str, object]]]) -> None:
    """Create pods by name, given limits and more of the spec."""
    with ThreadPoolExecutor(8) as clients:
        calls = [
            clients.submit(made, pods.create, limits, name=name, spec=spec)
            for name, (limits, spec) in wanted.items()
        ]
    for call in calls:
        call.result()


def made(create: Callable[..., object], *given: object, **named: object) -> None:
    """Create one object, again and again until it is there.

    Where the webhook is too slow, no object is created without its review, and the client is asked
    to retry.
    """

    def is_made() -> bool:
        try:
            create(*given, **named)
        except ApiError as error:
            if error.status != 409:
                raise
        return True

    wait_until(is_made, f"{named or given} is made")


def bound(pods: Pods, history: History) -> dict[str, str]:
    """Return the nodes of the test's own pods that have one, by the pods' names."""
    mine = f"{pods.namespace}/"
    found = {one.key: one.bound for one in history.present() if one.bound}
    return {key.removeprefix(mine): node for key, node in found.items() if key.startswith(mine)}


def share(memory: int, core: int) -> Limits:
    """Return what a pod asks for: memory [GiB] and compute [%]."""
    return {keys.GPU_MEM: memory, keys.GPU_CORE: core}
