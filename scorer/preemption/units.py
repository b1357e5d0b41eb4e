"""The units that have GPUs, as possible victims of a preemption."""

from collections.abc import Iterable, Iterator
from datetime import datetime
from typing import NamedTuple

from cluster.account.node_ledger import Holding
from cluster.gang import GangKey
from cluster.keys import KUEUE_LABELS
from cluster.objects.kube_object import Labels
from scorer.cache.cluster_state import ClusterState
from scorer.cache.informers import Informers
from scorer.cache.reserved_gpus import Place
from scorer.commit.pending_binding import eviction_blocker
from scorer.gang.pod_info import PodInfo
from scorer.placement.preemption.victim import Victim, VictimPod

_END = 30.0
"""Time after the grace period in which a pod should have ended [s]."""


class _Held(NamedTuple):
    """A pod and its entry in the ledger of its node."""

    pod: PodInfo
    node: str
    holding: Holding

    @property
    def priority(self) -> int:
        """The priority of the pod."""
        return self.pod.usage.priority if self.pod.usage else 0


class PlacedUnit(NamedTuple):
    """A unit that has GPUs."""

    key: GangKey
    victim: Victim
    pods: tuple[PodInfo, ...]
    """All of them that stay, with GPUs."""


def lowest_priority(state: ClusterState) -> int | None:
    """Return the lowest priority of a pod that Linkwise has placed; None: there is none."""
    nodes = state.snapshot().nodes
    usages = (usage for node in nodes for usage in state.usages(node.node.name))
    return min((usage.priority for usage in usages if usage.allocation), default=None)


def placed_units(informers: Informers, now: float, min_run: float) -> list[PlacedUnit]:
    """Return all units that Linkwise has placed.

    Args:
        informers: The pods, owners and disruption budgets.
        now: [s since 1970]
        min_run: The time for which a started pod stays [s].

    Cost: linear in the pods with GPUs.
    """
    members: dict[GangKey, list[_Held]] = {}
    for held in _held(informers.state):
        if held.pod.settled and held.pod.allocation:
            members.setdefault(informers.owners.key(held.pod), []).append(held)
    first = (pods[0].pod for pods in members.values())
    priorities = _priorities(first, informers)
    return [
        _placed_unit(key, held, priorities.get(key, held[0].priority), informers, now, min_run)
        for key, held in members.items()
    ]


def ending_soon(state: ClusterState, now: float) -> list[Place]:
    """Return the GPUs of pods that are being deleted, unless their time to end has passed."""
    places = []
    for place in state.ending():
        pod = _pod(state, place.holding)
        ends = _time(pod.life.ends) if pod and pod.life else None
        if ends is not None and now < ends + _END:
            places.append(place)
    return places


def places_held(state: ClusterState, pods: Iterable[PodInfo]) -> list[Place]:
    """Return what pods with GPUs have on their nodes."""
    ledgers = ((pod.uid, state.ledger(pod.usage.target)) for pod in pods if pod.usage)
    return [
        Place(ledger.node.name, ledger.holdings[uid])
        for uid, ledger in ledgers
        if ledger and uid in ledger.holdings
    ]


def is_of_kueue(labels: Labels | None) -> bool:
    """Return whether Kueue admits a pod: its own preemption decides who has quota."""
    return labels is not None and any(label in labels for label in KUEUE_LABELS)


def _held(state: ClusterState) -> Iterator[_Held]:
    for node in state.snapshot().nodes:
        for holding in node.holdings.values():
            pod = _pod(state, holding) if holding.gpus else None
            if pod is not None:
                yield _Held(pod, node.node.name, holding)


def _pod(state: ClusterState, holding: Holding) -> PodInfo | None:
    namespace, _, name = holding.pod.partition("/")
    pod = state.pod((namespace, name))
    return pod if pod and pod.uid == holding.uid else None


def _placed_unit(
    key: GangKey,
    held: list[_Held],
    priority: int,
    informers: Informers,
    now: float,
    min_run: float,
) -> PlacedUnit:
    pods = tuple(each.pod for each in held)
    gang = pods[0].gang
    budgets = [_budgets(pod, informers) for pod in pods]
    victim = Victim(
        name=f"{key.namespace}/{gang or key.name}",
        priority=priority,
        pods=tuple(
            VictimPod(each.node, each.holding, _started(each.pod, now), selecting or frozenset())
            for each, selecting in zip(held, budgets, strict=True)
        ),
        protected=_blocker(pods, informers, now, min_run)
        or ("its namespace has too many PodDisruptionBudgets" if None in budgets else None),
    )
    return PlacedUnit(key, victim, pods)


def _priorities(pods: Iterable[PodInfo], informers: Informers) -> dict[GangKey, int]:
    """Return the highest priority of all pods of each gang, those that wait among them.

    Each group is read once: it may have any number of gangs of one name.
    """
    priorities: dict[GangKey, int] = {}
    for group in {(pod.namespace, pod.gang) for pod in pods if pod.gang is not None}:
        for pod in informers.state.group(group):
            if pod.usage is not None:
                key = informers.owners.key(pod)
                priorities[key] = max(priorities.get(key, pod.usage.priority), pod.usage.priority)
    return priorities


def _budgets(pod: PodInfo, informers: Informers) -> frozenset[str] | None:
    return informers.budgets.selecting(pod.namespace, pod.life.labels if pod.life else {})


def _blocker(
    pods: Iterable[PodInfo], informers: Informers, now: float, min_run: float
) -> str | None:
    """Return why a unit must not be evicted; None: it may be."""
    for pod in pods:
        if not pod.bound:
            return "it is not bound yet"
        if is_of_kueue(pod.life.labels if pod.life else None):
            return "Kueue decides about its preemption"
        if now - _started(pod, now) < min_run:
            return f"pod {pod.name} has run for less than {min_run:g} s"
    return eviction_blocker(pods, informers.workloads.fails_on_eviction)


def _started(pod: PodInfo, now: float) -> float:
    """Return since when a pod runs [s since 1970]; of one that no kubelet has started: now."""
    started = _time(pod.life.started) if pod.life else None
    return now if started is None else min(started, now)


def _time(text: str) -> float | None:
    try:
        return datetime.fromisoformat(text).timestamp()
    except ValueError:
        return None
