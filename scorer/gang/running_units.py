"""Gather the pods that hold GPUs into the units that may be evicted for another one. Pure."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime

from cluster.account.node_ledger import Holding, NodeLedger
from cluster.gang import GangKey
from cluster.keys import KUEUE_LABELS
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
    started: Callable[[PodInfo], str | None]
    """Return when a pod started (RFC 3339)."""
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


def is_of_kueue(labels: Mapping[str, str] | None) -> bool:
    """Return whether Kueue admits a pod: its own preemption decides who has quota."""
    return any(label in (labels or {}) for label in KUEUE_LABELS)


def _unit(
    key: GangKey, members: Sequence[PodInfo], nodes: Mapping[str, NodeLedger], rules: EvictionRules
) -> Victim:
    held = [(pod, _holding(pod, nodes)) for pod in members]
    unknown = next((pod.name for pod, holding in held if holding is None), None)
    reason = f"it is not known which GPUs pod {unknown} has" if unknown else None
    now = rules.now
    starts = {pod.key: _seconds(rules.started(pod)) for pod in members}
    return Victim(
        name=f"{key.namespace}/{key.name}",
        priority=max(pod.usage.priority for pod in members if pod.usage),
        pods=tuple(
            VictimPod(pod.usage.target, holding, _at_most(starts[pod.key], now), rules.budgets(pod))
            for pod, holding in held
            if holding and pod.usage
        ),
        protected=reason or rules.blocker(members) or _youth(starts, rules),
    )


def _holding(pod: PodInfo, nodes: Mapping[str, NodeLedger]) -> Holding | None:
    """Return the entry of a pod in the ledger of its node; None where its GPUs are unknown."""
    usage = pod.usage
    ledger = nodes.get(usage.target) if usage else None
    holding = ledger.holdings.get(usage.uid) if usage and ledger else None
    return holding if holding and holding.gpus else None


def _seconds(time: str | None) -> float | None:
    """Return a time [s since the epoch]; None where it is missing or invalid."""
    try:
        return datetime.fromisoformat(time).timestamp() if time else None
    except ValueError:
        return None


def _at_most(started: float | None, now: float) -> float:
    """Return a start that is not in the future; now where it is unknown, so that none is lost."""
    return now if started is None else min(started, now)


def _youth(starts: Mapping[tuple[str, str], float | None], rules: EvictionRules) -> str | None:
    """Name a pod that has not run for long enough; None: all have."""
    for (_, name), started in starts.items():
        if started is not None and rules.now - started < rules.min_run:
            return f"pod {name} started less than {rules.min_run / 60:g} min ago"
    return None
