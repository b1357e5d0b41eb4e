"""Find faults under running pods, GPUs that are not the planned ones, and unprepared pods. Pure."""

from collections.abc import Callable, Iterable
from typing import NamedTuple

from cluster.account.node_ledger import NodeLedger
from cluster.allocations.gpus import GPUs
from cluster.allocations.record import Allocation
from cluster.nodes.node import Node
from scorer.gang.pod_info import PodInfo

_SHOWN = 3
_NOT_READY, _GONE = "which is not ready", "which was deleted or cannot be read"


class Fault(NamedTuple):
    """A fault of one GPU, or of a whole node."""

    node: str
    gpu: int | None = None
    """Its index; None: the whole node."""


def faults_of(pods: Iterable[PodInfo], node: Callable[[str], Node | None]) -> frozenset[Fault]:
    """Return the faults under pods; arguments as for `fault_text`.

    A GPU that is only not offered, as while its agent restarts, is none.
    """
    return frozenset(
        fault
        for pod in pods
        for fault in _faults(pod, node)[0]
        if fault.gpu is None or ((there := node(fault.node)) and there.cards[fault.gpu].faulty)
    )


def unhealthy_gpus(pods: Iterable[PodInfo], node: Callable[[str], Node | None]) -> str:
    """Name the unhealthy GPUs of pods, and what to do; empty where all are healthy.

    Arguments as for `fault_text`.
    """
    text = fault_text(pods, node)
    return f"{text}; a pod that is created again gets healthy ones" if text else ""


def fault_text(pods: Iterable[PodInfo], node: Callable[[str], Node | None]) -> str:
    """Name the unhealthy GPUs of pods, and the pods; empty where all are healthy.

    Which pod has a GPU that NVIDIA's plugin chose is not known, so of these only lost nodes count.

    Args:
        pods: The pods; those without GPUs are ignored.
        node: Returns a node by its name.
    """
    found = [
        text
        for pod in sorted(pods, key=lambda pod: pod.name)
        if (text := _text(pod.name, *_faults(pod, node)))
    ]
    if not found:
        return ""
    more = f" and those of {len(found) - _SHOWN} more pods" if len(found) > _SHOWN else ""
    return f"unhealthy GPUs: {', '.join(found[:_SHOWN])}{more}"


def _faults(pod: PodInfo, node: Callable[[str], Node | None]) -> tuple[list[Fault], str]:
    """Return the faults under a pod, and what is wrong with its node."""
    usage = pod.usage
    if usage is None or not usage.target or not (usage.places or usage.nvidia):
        return [], ""
    there = node(usage.target)
    if usage.node and (there is None or not there.ready):
        return [Fault(usage.target)], _NOT_READY if there else _GONE
    cards = there.cards if there else ()
    gpus = {share.i for share in pod.allocation.gpus.shares} if pod.allocation else set()
    unhealthy = sorted(i for i in gpus if i < len(cards) and not cards[i].healthy)
    return [Fault(usage.target, i) for i in unhealthy], ""


def _text(pod: str, faults: list[Fault], why: str) -> str:
    if not faults:
        return ""
    node = faults[0].node
    if why:
        return f"all of {node}, {why} (pod {pod})"
    return f"{' '.join(str(fault.gpu) for fault in faults)} of {node} (pod {pod})"


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
        if pod.usage and pod.usage.claims and pod.allocation
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
