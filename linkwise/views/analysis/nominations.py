"""Gangs for which others are evicted, by the status that the leader writes. Pure.

A status has the nodes and GPUs of a nomination, and not the units that are evicted. These are the
units of lower priority that hold the GPUs, or that are ending on the nodes.
"""

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass

from linkwise.cluster.account.node_ledger import Holding, NodeLedger
from linkwise.cluster.allocations.gpus import Counted, Exact, GPUs, GPUShare
from linkwise.cluster.gang import GangKey
from linkwise.cluster.keys import NVIDIA_GPU
from linkwise.planning.gang.crd import Gang
from linkwise.planning.gang.crd_plan import NodeGPUs
from linkwise.planning.gang.owners import Owners
from linkwise.planning.gang.pod_info import PodInfo
from linkwise.planning.gang.victim_choice import Promise
from linkwise.planning.state.reserved_gpus import Place
from linkwise.views.output.printer import named
from linkwise.views.output.words import plural


@dataclass(frozen=True, slots=True)
class Nomination:
    """A gang that waits for GPUs of others, which are evicted for it."""

    key: GangKey
    priority: int
    places: tuple[Place, ...]
    """The GPUs, each by itself: some may be free before the others."""
    evicted: tuple[PodInfo, ...]
    """The pods in its way."""
    reason: str
    """Why the gang waits: the reason of the leader, its nodes, and the units that are evicted."""

    @property
    def promise(self) -> Promise:
        """The GPUs as the search for victims counts them."""
        return Promise(self.key, self.priority, self.places)


def nominations_of(
    gangs: Iterable[Gang], pods: Iterable[PodInfo], owners: Owners, nodes: Mapping[str, NodeLedger]
) -> list[Nomination]:
    """Return the nominations of gangs that wait.

    Args:
        gangs: All Gang objects.
        pods: All pods.
        owners: The owners of the pods.
        nodes: The ledgers, by node.

    Cost: linear in the pods; for each nomination, in the pods of its nodes.
    """
    nominated = {gang.key: gang for gang in gangs if gang.status.nominated_nodes}
    if not nominated:
        return []
    priorities: dict[GangKey, int] = {}
    on_node = defaultdict[str, list[PodInfo]](list)
    for pod in pods:
        if pod.usage and pod.usage.target:
            on_node[pod.usage.target].append(pod)
        elif pod.usage and pod.gang is not None:
            key = owners.key(pod)
            priorities[key] = min(pod.usage.priority, priorities.get(key, pod.usage.priority))
    return [
        _nomination(gang, priorities[key], on_node, owners, nodes)
        for key, gang in nominated.items()
        if key in priorities
    ]


def _nomination(
    gang: Gang,
    priority: int,
    on_node: Mapping[str, list[PodInfo]],
    owners: Owners,
    nodes: Mapping[str, NodeLedger],
) -> Nomination:
    given = gang.status.nominated_nodes
    places = tuple(
        place for each in given if each.node in nodes for place in _places(gang.key, each)
    )
    evicted = tuple(
        pod
        for each in given
        for pod in on_node.get(each.node, ())
        if pod.usage and pod.usage.priority < priority and _is_in_the_way(pod, each)
    )
    words = [_gpus_text(given)]
    units = list(dict.fromkeys(_unit_text(owners.key(pod), pod) for pod in evicted))
    if units:
        words.append(f"{named(units)} {'is' if len(units) == 1 else 'are'} evicted for it")
    reason = "; ".join(filter(None, [gang.status.reason, *words]))
    return Nomination(gang.key, priority, places, evicted, reason)


def _places(key: GangKey, given: NodeGPUs) -> Iterator[Place]:
    name = f"{key.namespace}/{key.name}"
    single: list[GPUs] = [Exact((GPUShare(i),)) for i in given.indices]
    for i, gpus in enumerate([*single, *[Counted(NVIDIA_GPU, 1)] * given.count]):
        yield Place(given.node, Holding(name, f"{name}/{given.node}/{i}", gpus, gang=name))


def _is_in_the_way(pod: PodInfo, given: NodeGPUs) -> bool:
    """Return whether a pod on a node of a nomination is evicted for it, as far as is known."""
    gpus = pod.allocation.gpus if pod.allocation else None
    return pod.is_ending or bool(gpus and {*gpus.indices} & {*given.indices})


def _gpus_text(given: Iterable[NodeGPUs]) -> str:
    """Return the nodes and GPUs of a nomination in words.

    >>> _gpus_text([NodeGPUs("a", (0, 1)), NodeGPUs("b", (), 2)])
    'it is nominated for GPUs 0 1 of a, 2 GPUs of b'
    """
    texts = [
        f"{len(each.gpus)} {plural('GPU', len(each.gpus))} of {each.node}"
        if each.count
        else f"{plural('GPU', len(each.indices))} {' '.join(map(str, each.indices))} of {each.node}"
        for each in given
    ]
    return f"it is nominated for {named(texts)}"


def _unit_text(key: GangKey, pod: PodInfo) -> str:
    return f"{'pod' if pod.gang is None else 'gang'} {key.namespace}/{key.name}"
