"""Find GPUs of pods that are unhealthy or not the planned ones, and unprepared pods. Pure."""

from collections.abc import Callable, Iterable

from cluster.account.node_ledger import NodeLedger
from cluster.allocations.gpus import GPUs
from cluster.allocations.record import Allocation
from cluster.nodes.node import Node
from scorer.gang.pod_info import PodInfo

_SHOWN = 3


def unhealthy_gpus(pods: Iterable[PodInfo], node: Callable[[str], Node | None]) -> str:
    """Name the unhealthy GPUs of pods, and the pods; empty where all are healthy.

    Which pod has a GPU that NVIDIA's plugin chose is not known, so these are left out.

    Args:
        pods: The pods; those without GPUs are ignored.
        node: Returns a node by its name.
    """
    found = [
        text
        for pod in sorted(pods, key=lambda pod: pod.name)
        if pod.usage and pod.allocation
        if (text := _of_pod(pod.name, pod.allocation, node(pod.usage.target)))
    ]
    if not found:
        return ""
    more = f" and those of {len(found) - _SHOWN} more pods" if len(found) > _SHOWN else ""
    shown = ", ".join(found[:_SHOWN])
    return f"unhealthy GPUs: {shown}{more}; a pod that is created again gets healthy ones"


def _of_pod(name: str, record: Allocation, node: Node | None) -> str:
    cards = dict(enumerate(node.cards)) if node else {}
    gpus = sorted({share.i for share in record.gpus.shares if share.i in cards})
    unhealthy = " ".join(str(i) for i in gpus if not cards[i].healthy)
    return f"{unhealthy} of {node.name} (pod {name})" if node and unhealthy else ""


def moved_gpus(pods: Iterable[PodInfo], ledger: Callable[[str], NodeLedger | None]) -> str:
    """Name the GPUs that claims of pods hold instead of the planned ones; empty where none do.

    After a reboot the devices of a claim may be other GPUs.

    Args:
        pods: The pods; those without a claim are ignored.
        ledger: Returns the ledger of a node by its name.
    """
    found = [
        text
        for pod in sorted(pods, key=lambda pod: pod.name)
        if pod.usage and pod.usage.claim and pod.allocation
        if (text := _moved(pod, pod.allocation, ledger(pod.usage.target)))
    ]
    if not found:
        return ""
    more = f" and {len(found) - _SHOWN} more pods" if len(found) > _SHOWN else ""
    return f"other GPUs than planned: {', '.join(found[:_SHOWN])}{more}"


def unprepared_pods(pods: Iterable[PodInfo], now: float) -> str:
    """Name the pods whose claims their nodes do not prepare; empty where there are none.

    Args:
        pods: The pods.
        now: Seconds since 1970.
    """
    found = sorted(
        f"{pod.name} (node {pod.usage.node})"
        for pod in pods
        if pod.usage and pod.is_unprepared(now)
    )
    if not found:
        return ""
    more = f" and {len(found) - _SHOWN} more" if len(found) > _SHOWN else ""
    return f"not prepared for more than a minute: {', '.join(found[:_SHOWN])}{more}"


def _moved(pod: PodInfo, record: Allocation, ledger: NodeLedger | None) -> str:
    holding = ledger.holdings.get(pod.uid) if ledger else None
    if holding is None or _uuids(holding.gpus) == _uuids(record.gpus):
        return ""
    held, planned = (" ".join(map(str, gpus.indices)) for gpus in (holding.gpus, record.gpus))
    return f"{held} of {record.node} instead of {planned} (pod {pod.name})"


def _uuids(gpus: GPUs) -> set[str | None]:
    return {share.uuid for share in gpus.shares}
