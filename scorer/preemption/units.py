"""The units that have GPUs, by the cache, and what preempting them depends on."""

from collections.abc import Callable, Iterator
from dataclasses import replace

from linkwise.cluster.account.node_ledger import Holding
from linkwise.cluster.gang import GangKey
from linkwise.cluster.objects.time import seconds_of
from linkwise.planning.gang.placed_units import EvictionRules, PlacedUnit, ends_soon, placed_units
from linkwise.planning.gang.pod_info import PodInfo
from linkwise.planning.state.cluster_state import ClusterState
from linkwise.planning.state.reserved_gpus import Place
from linkwise.runtime.process.clock import rfc3339
from scorer.cache.informers import Informers


def placed_in(
    informers: Informers, now: float, protection: Callable[[GangKey], str | None]
) -> list[PlacedUnit]:
    """Return all units that have GPUs.

    Args:
        informers: The policy, pods, owners and disruption budgets.
        now: [s since 1970]
        protection: Returns why the API server lets a unit not be evicted; None: it may.

    Cost: linear in the pods with GPUs, and those of gangs.
    """
    state, rules = informers.state, rules_of(informers, now)
    units = placed_units(_pods(state), informers.owners, state.snapshot().ledger.nodes, rules)
    return [_protected(unit, protection(unit.key)) for unit in units]


def _protected(unit: PlacedUnit, why: str | None) -> PlacedUnit:
    return unit._replace(victim=replace(unit.victim, protected=why)) if why else unit


def rules_of(informers: Informers, now: float) -> EvictionRules:
    """Return the rules for evictions at this moment, which another thread may use.

    Cost: linear in the disruption budgets, and in the Jobs that count evictions as failures.
    """
    # A pod that no kubelet has started is as young as can be.
    today = rfc3339(now)
    return EvictionRules(
        now=now,
        policy=informers.policy.policy.gangs.preemption,
        fragile=frozenset(informers.workloads.fails_on_eviction),
        started=lambda pod: (pod.life.started if pod.life else "") or today,
        budgets=informers.budgets.at_present(),
        has_kueue=informers.kueue.is_served,
    )


def ending_soon(informers: Informers, now: float) -> list[Place]:
    """Return the GPUs of pods that are being deleted, and that others can soon have.

    Not those of a pod whose time to end has passed, or is longer than a unit waits for it; nor
    those of pods that go back to their places.
    """
    state, longest = informers.state, informers.policy.policy.gangs.preemption.max_wait_seconds
    returns, key_of = informers.replacements.is_returning, informers.owners.key
    pods = ((place, _pod(state, place.holding)) for place in state.ending())
    return [
        place
        for place, pod in pods
        if pod and ends_soon(pod, now) and _end(pod, now) <= now + longest
        if not returns(key_of(pod))
    ]


def _end(pod: PodInfo, now: float) -> float:
    """Return when the time of a pod to end has passed [s since 1970]."""
    ends = seconds_of(pod.life.ends) if pod.life else None
    return now if ends is None else ends


def _pods(state: ClusterState) -> Iterator[PodInfo]:
    """Yield the pods that have GPUs, and those that wait."""
    for node in state.snapshot().nodes:
        for holding in node.holdings.values():
            pod = _pod(state, holding) if holding.gpus else None
            if pod is not None:
                yield pod
    for group in state.groups:
        yield from (pod for pod in state.groups.of(group) if not pod.settled)


def _pod(state: ClusterState, holding: Holding) -> PodInfo | None:
    namespace, _, name = holding.pod.partition("/")
    pod = state.pod((namespace, name))
    return pod if pod and pod.uid == holding.uid else None
