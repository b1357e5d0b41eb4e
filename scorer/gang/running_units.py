"""Gather the pods that hold GPUs into the units that may be evicted for another one. Pure."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass

from cluster.account.node_ledger import Holding, NodeLedger
from cluster.gang import GangKey
from scorer.gang.pod_info import PodInfo
from scorer.gang.unit import Owners
from scorer.placement.preemption.victim import Victim, VictimPod


@dataclass(frozen=True, slots=True)
class EvictionRules:
    """The rules that say which units may be evicted now."""

    now: float
    """[s since the epoch]"""
    min_run: float
    """Time since its start for which a pod is not evicted [s]."""
    blocker: Callable[[Sequence[PodInfo]], str | None]
    """Return why the pods of a unit must not be evicted, whatever their age."""
    budgets: Callable[[PodInfo], frozenset[str]]
    """Return the PodDisruptionBudgets that select a pod, as `namespace/name`."""


def running_units(
    pods: Iterable[PodInfo], owners: Owners, nodes: Mapping[str, NodeLedger], rules: EvictionRules
) -> list[Victim]:
    """Return the units that hold GPUs that Linkwise chose.

    Pods that are being deleted are left out: their GPUs become free without an eviction.

    Args:
        pods: All pods.
        owners: The owners of these pods.
        nodes: The ledgers, by node.
        rules: Which units may be evicted.
    """
    units: dict[GangKey, list[PodInfo]] = {}
    for pod in pods:
        usage = pod.usage
        if pod.settled and usage and usage.places and usage.target and not usage.stays:
            units.setdefault(owners.key(pod), []).append(pod)
    return [_unit(key, members, nodes, rules) for key, members in units.items()]


def _unit(
    key: GangKey, members: Sequence[PodInfo], nodes: Mapping[str, NodeLedger], rules: EvictionRules
) -> Victim:
    held = [(pod, _holding(pod, nodes)) for pod in members]
    unknown = next((pod.name for pod, holding in held if holding is None), None)
    reason = f"it is not known which GPUs pod {unknown} has" if unknown else None
    return Victim(
        name=f"{key.namespace}/{key.name}",
        priority=max(pod.usage.priority for pod in members if pod.usage),
        pods=tuple(
            VictimPod(pod.usage.target, holding, _started(pod, rules.now), rules.budgets(pod))
            for pod, holding in held
            if holding and pod.usage
        ),
        protected=reason or rules.blocker(members) or _youth(members, rules),
    )


def _holding(pod: PodInfo, nodes: Mapping[str, NodeLedger]) -> Holding | None:
    """Return the entry of a pod in the ledger of its node; None where its GPUs are unknown."""
    usage = pod.usage
    ledger = nodes.get(usage.target) if usage else None
    holding = ledger.holdings.get(usage.uid) if usage and ledger else None
    return holding if holding and holding.gpus else None


def _started(pod: PodInfo, now: float) -> float:
    return now if pod.started is None else min(pod.started, now)


def _youth(members: Iterable[PodInfo], rules: EvictionRules) -> str | None:
    """Name a pod that has not run for long enough; None: all have."""
    for pod in members:
        if pod.started is not None and rules.now - pod.started < rules.min_run:
            return f"pod {pod.name} started less than {rules.min_run / 60:g} min ago"
    return None
