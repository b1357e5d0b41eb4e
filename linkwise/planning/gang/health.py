"""Find faults under running pods, GPUs that are not the planned ones, and unprepared pods. Pure."""

from collections.abc import Callable, Iterable, Sequence
from typing import NamedTuple, TypeAlias

from linkwise.cluster.account.node_ledger import NodeLedger
from linkwise.cluster.allocations.gpus import NO_GPUS, GPUs
from linkwise.planning.gang.crd_plan import held_nodes
from linkwise.planning.gang.plan_record import tenths
from linkwise.planning.gang.pod_info import PodInfo
from linkwise.planning.gang.whole_plan import gang_bandwidth
from linkwise.topology.table import Table

LedgerOf: TypeAlias = Callable[[str], NodeLedger | None]
"""Returns the ledger of a node by its name."""

_SHOWN = 3
_NOT_READY, _GONE = "which is not ready", "which was deleted or cannot be read"


class Fault(NamedTuple):
    """A fault of one GPU, or of a whole node."""

    node: str
    gpu: int | None = None
    """Its index; None: the whole node."""


class Links(NamedTuple):
    """What the bandwidth of a gang depends on, beside its GPUs."""

    table: Callable[[str], Table | None]
    """Returns the table of a node's machine by the name of the node."""
    nic_bandwidth: float | None
    """As in `Snapshot`."""


def faults_of(pods: Iterable[PodInfo], ledger: LedgerOf) -> frozenset[Fault]:
    """Return the faults under pods; arguments as for `fault_text`.

    A GPU that is only not offered, as while its agent restarts, is none.
    """
    return frozenset(
        fault
        for pod in pods
        for fault in _faults(pod, ledger)[0]
        if fault.gpu is None
        or ((there := ledger(fault.node)) and there.node.cards[fault.gpu].faulty)
    )


def slower_gpus(pods: Sequence[PodInfo], ledger: LedgerOf, links: Links) -> frozenset[Fault]:
    """Return the GPUs that claims hold instead of the planned ones, if their links are slower.

    Arguments as for `unplanned_gpus`.
    """
    unplanned = [pod for pod in pods if _is_unplanned(pod, ledger)]
    if not unplanned or not _slower(pods, ledger, links):
        return frozenset()
    return frozenset(
        Fault(pod.usage.target, gpu)
        for pod in unplanned
        if pod.usage
        for gpu in {*_held(pod, ledger).indices} - {*_planned(pod).indices}
    )


def unhealthy_gpus(pods: Iterable[PodInfo], ledger: LedgerOf) -> str:
    """Name the unhealthy GPUs of pods, and what to do; empty where all are healthy.

    Arguments as for `fault_text`.
    """
    text = fault_text(pods, ledger)
    return f"{text}; a pod that is created again gets healthy ones" if text else ""


def fault_text(pods: Iterable[PodInfo], ledger: LedgerOf) -> str:
    """Name the unhealthy GPUs of pods, and the pods; empty where all are healthy.

    Which pod has a GPU that NVIDIA's plugin chose is not known, so of these only lost nodes count.

    Args:
        pods: The pods; those without GPUs are ignored.
        ledger: Returns the ledger of a node by its name.
    """
    found = [
        text
        for pod in sorted(pods, key=lambda pod: pod.name)
        if (text := _text(pod.name, *_faults(pod, ledger)))
    ]
    if not found:
        return ""
    more = f" and those of {len(found) - _SHOWN} more pods" if len(found) > _SHOWN else ""
    return f"unhealthy GPUs: {', '.join(found[:_SHOWN])}{more}"


def _faults(pod: PodInfo, ledger: LedgerOf) -> tuple[list[Fault], str]:
    """Return the faults under a pod, and what is wrong with its node."""
    usage = pod.usage
    if usage is None or not usage.target or not (usage.places or usage.nvidia):
        return [], ""
    there = ledger(usage.target)
    if usage.node and (there is None or not there.node.ready):
        return [Fault(usage.target)], _NOT_READY if there else _GONE
    cards = there.node.cards if there else ()
    gpus = {share.i for share in _held(pod, ledger).shares}
    unhealthy = sorted(i for i in gpus if i < len(cards) and not cards[i].healthy)
    return [Fault(usage.target, i) for i in unhealthy], ""


def _text(pod: str, faults: list[Fault], why: str) -> str:
    if not faults:
        return ""
    node = faults[0].node
    if why:
        return f"all of {node}, {why} (pod {pod})"
    return f"{' '.join(str(fault.gpu) for fault in faults)} of {node} (pod {pod})"


def unplanned_gpus(pods: Sequence[PodInfo], ledger: LedgerOf, links: Links) -> str:
    """Name the GPUs that claims of pods hold instead of the planned ones; empty where none do.

    After a reboot the devices of a claim may be other GPUs.

    Args:
        pods: The pods of a gang; those without a claim have the planned ones.
        ledger: Returns the ledger of a node by its name.
        links: Of all nodes.
    """
    found = [
        _unplanned(pod, ledger)
        for pod in sorted(pods, key=lambda pod: pod.name)
        if _is_unplanned(pod, ledger)
    ]
    if not found:
        return ""
    more = f" and {len(found) - _SHOWN} more pods" if len(found) > _SHOWN else ""
    slower = _slower(pods, ledger, links)
    return f"other GPUs than planned: {', '.join(found[:_SHOWN])}{more}{slower}"


def unprepared_pods(
    pods: Iterable[PodInfo], now: float, error: Callable[[PodInfo], str] = lambda _: ""
) -> str:
    """Name the pods whose claims their nodes do not prepare; empty where there are none.

    Args:
        pods: The pods.
        now: Seconds since 1970.
        error: Returns what the kubelet says about a pod; empty: nothing. The first one is quoted.
    """
    unprepared = sorted((pod for pod in pods if pod.is_unprepared(now)), key=lambda pod: pod.name)
    if not unprepared:
        return ""
    found = [f"{pod.name} (node {pod.usage.node if pod.usage else ''})" for pod in unprepared]
    more = f" and {len(found) - _SHOWN} more" if len(found) > _SHOWN else ""
    says = ((pod.name, text) for pod in unprepared if (text := error(pod)))
    reason = next((f'; the kubelet says of {name}: "{text}"' for name, text in says), "")
    return f"not prepared for more than a minute: {', '.join(found[:_SHOWN])}{more}{reason}"


def _slower(pods: Iterable[PodInfo], ledger: LedgerOf, links: Links) -> str:
    """Return how much slower the links of a gang are than planned; empty where they are not.

    Compared is what its present pods hold, so members that it lacks do not count.
    """
    present = [pod for pod in pods if pod.allocation]
    if not all(_has_planned(pod, ledger) for pod in present):
        return ""

    def bandwidth(gpus: Callable[[PodInfo], GPUs]) -> float | None:
        places = ((pod.usage.target, gpus(pod)) for pod in present if pod.usage)
        nodes = held_nodes(places)
        return tenths(gang_bandwidth(nodes, ledger, links.table, links.nic_bandwidth).value)

    held, planned = bandwidth(lambda pod: _held(pod, ledger)), bandwidth(_planned)
    if held is None or planned is None or held >= planned:
        return ""
    return f", with {held:g} instead of {planned:g} GB/s"


def _has_planned(pod: PodInfo, ledger: LedgerOf) -> bool:
    """Return whether the planned GPUs of a pod are still on its node, by the same indices."""
    there = ledger(pod.allocation.node) if pod.allocation else None
    uuids = {i: card.uuid for i, card in enumerate(there.node.cards)} if there else {}
    return all(uuids.get(share.i, "") == share.uuid for share in _planned(pod).shares)


def _is_unplanned(pod: PodInfo, ledger: LedgerOf) -> bool:
    has_claim = pod.usage is not None and bool(pod.usage.claims)
    is_recorded = has_claim and pod.allocation is not None
    return is_recorded and _uuids(_held(pod, ledger)) != _uuids(_planned(pod))


def _unplanned(pod: PodInfo, ledger: LedgerOf) -> str:
    node = pod.usage.target if pod.usage else ""
    held, planned = (
        " ".join(map(str, gpus.indices)) for gpus in (_held(pod, ledger), _planned(pod))
    )
    return f"{held} of {node} instead of {planned} (pod {pod.name})"


def _held(pod: PodInfo, ledger: LedgerOf) -> GPUs:
    """Return the GPUs that a pod has on its node, else those of its record."""
    there = ledger(pod.usage.target) if pod.usage and pod.usage.target else None
    holding = there.holdings.get(pod.uid) if there else None
    return holding.gpus if holding else _planned(pod)


def _planned(pod: PodInfo) -> GPUs:
    return pod.allocation.gpus if pod.allocation else NO_GPUS


def _uuids(gpus: GPUs) -> set[str | None]:
    return {share.uuid for share in gpus.shares}
