"""Reserve what kube-scheduler has nominated pods for, so that the planner gives it to no others.

kube-scheduler evicts pods of one node for another pod, and writes the node into its
`status.nominatedNodeName`. Until that pod is bound, kube-scheduler itself keeps what it needs there
from pods of no higher priority; pods behind our gate it does not see.

Source: kubernetes v1.36, `addGeneralNominatedPods` in pkg/scheduler/framework/runtime/framework.go.
"""

from collections.abc import Callable, Iterable, Set
from typing import NamedTuple

from linkwise.cluster.account.node_ledger import NodeLedger
from linkwise.cluster.allocations.gpus import NO_GPUS, Counted, Exact, GPUs
from linkwise.cluster.gang import GangKey
from linkwise.cluster.requests.request import Family
from linkwise.planning.gang.pod_info import PodInfo
from linkwise.planning.placement.filtering.shares import cards_for, whole_gpus
from linkwise.planning.state.reserved_gpus import Place, Purpose, ReservedGPUs, single_places
from linkwise.topology.choice import ChoiceMode, ChoiceRequest, choose
from linkwise.topology.machine import gpus_of
from linkwise.topology.table import Table

PODS_MAX = 64
"""Nominated pods for which something is reserved, those of the highest priorities first."""


class Cluster(NamedTuple):
    """What a choice of GPUs depends on."""

    ledger: Callable[[str], NodeLedger | None]
    """Returns the ledger of a node; None: there is none."""
    table: Callable[[str], Table | None]
    """Returns the table of a node; None: it is not known."""
    mode: ChoiceMode
    """The objective of a choice of whole GPUs."""


def is_nominated(pod: PodInfo) -> bool:
    """Return whether kube-scheduler has nominated a pod: one behind our gate only we nominate."""
    return bool(pod.nominated) and pod.waiting is None and pod.usage is not None


def reserve_for_scheduler(
    reserved: ReservedGPUs,
    pods: Iterable[PodInfo],
    cluster: Cluster,
    leaving: Set[str],
) -> None:
    """Reserve what nominated pods will have on their nodes, and nothing for others.

    Args:
        reserved: The reservations.
        pods: All nominated pods.
        cluster: The nodes.
        leaving: Uids of the pods that are ending: what they have is free for the nominated pods.

    Cost: a choice of GPUs for each of `PODS_MAX` pods.
    """
    counted = sorted(pods, key=lambda pod: (-_priority(pod), pod.created, pod.key))[:PODS_MAX]
    keys = {GangKey(*pod.key, pod.uid): pod for pod in counted}
    for key, _, _ in reserved.by_scheduler:
        if key not in keys:
            reserved.set(key, 0, (), Purpose.SCHEDULER)
    for key, pod in keys.items():
        node = cluster.ledger(pod.nominated)
        for place in reserved.of(key, Purpose.SCHEDULER):
            node = node and node.without(place.holding)
        for uid in leaving & node.holdings.keys() if node else ():
            node = node and node.release(uid)
        places = _places(node, cluster, pod) if node else ()
        reserved.set(key, _priority(pod), places, Purpose.SCHEDULER)


def _places(node: NodeLedger, cluster: Cluster, pod: PodInfo) -> tuple[Place, ...]:
    """Return what a nominated pod will have on its node."""
    gpus = _gpus(node, cluster.table(pod.nominated), pod, cluster.mode)
    return single_places(pod.nominated, pod.usage.holding(gpus)) if pod.usage else ()


def _priority(pod: PodInfo) -> int:
    return pod.usage.priority if pod.usage else 0


def _gpus(node: NodeLedger, table: Table | None, pod: PodInfo, mode: ChoiceMode) -> GPUs:
    """Return the GPUs that the pod would get then; fewer, if it lacks some."""
    usage, request = pod.usage, pod.ungated.request if pod.ungated else None
    if node.is_counted:
        asked = usage.nvidia if usage else None
        free = node.counted_free(asked.resource) if asked else 0
        return Counted(asked.resource, min(asked.number, free)) if asked and free > 0 else NO_GPUS
    if request is None or not request.places:
        return NO_GPUS
    if request.family is not Family.WHOLE:
        return Exact(cards_for(node, request))
    mask, number = node.free_mask, request.gpus
    chosen = choose(table, ChoiceRequest(mask, number, mode=mode)) if table else None
    return whole_gpus(node.node, gpus_of(mask if chosen is None else chosen)[:number])
