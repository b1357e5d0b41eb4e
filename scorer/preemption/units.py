"""The units that have GPUs, by the cache, and what preempting them depends on."""

from collections.abc import Iterator

from cluster.account.node_ledger import Holding
from runtime.process.clock import rfc3339
from scorer.cache.cluster_state import ClusterState
from scorer.cache.informers import Informers
from scorer.cache.reserved_gpus import Place
from scorer.gang.placed_units import EvictionRules, PlacedUnit, ends_soon, placed_units
from scorer.gang.pod_info import PodInfo


def placed_in(informers: Informers, now: float) -> list[PlacedUnit]:
    """Return all units that have GPUs.

    Args:
        informers: The policy, pods, owners and disruption budgets.
        now: [s since 1970]

    Cost: linear in the pods with GPUs, and those of gangs.
    """
    state, rules = informers.state, rules_of(informers, now)
    return placed_units(_pods(state), informers.owners, state.snapshot().ledger.nodes, rules)


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


def ending_soon(state: ClusterState, now: float) -> list[Place]:
    """Return the GPUs of pods that are being deleted, unless their time to end has passed."""
    pods = ((place, _pod(state, place.holding)) for place in state.ending())
    return [place for place, pod in pods if pod and ends_soon(pod, now)]


def _pods(state: ClusterState) -> Iterator[PodInfo]:
    """Yield the pods that have GPUs, and those that wait."""
    for node in state.snapshot().nodes:
        for holding in node.holdings.values():
            pod = _pod(state, holding) if holding.gpus else None
            if pod is not None:
                yield pod
    for group in state.groups:
        yield from (pod for pod in state.group(group) if not pod.settled)


def _pod(state: ClusterState, holding: Holding) -> PodInfo | None:
    namespace, _, name = holding.pod.partition("/")
    pod = state.pod((namespace, name))
    return pod if pod and pod.uid == holding.uid else None
