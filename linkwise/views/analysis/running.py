"""The running units of a cluster, and the rules for their eviction. Pure."""

from collections.abc import Iterable, Sequence

from linkwise.cluster.objects.disruption_budget import DisruptionBudget
from linkwise.cluster.objects.pod import Pod
from linkwise.manifest.lines import without_nulls
from linkwise.manifest.typed import read_as
from linkwise.manifest.value import Value
from linkwise.planning.gang.budgets import Budget, selecting
from linkwise.planning.gang.owners import Owners
from linkwise.planning.gang.placed_units import EvictionRules, ends_soon, placed_units
from linkwise.planning.gang.victim_choice import RunningUnits, places_held
from linkwise.planning.placement.preemption.victim import Disruptions
from linkwise.policy.gangs_section import Preemption
from linkwise.views.analysis.nominations import Nomination
from linkwise.views.analysis.workload_owners import workloads_in
from linkwise.views.files.cluster_file import Cluster


def units_that_run(  # noqa: PLR0913 - one for each fact about the cluster.
    cluster: Cluster,
    objects: Sequence[Value],
    owners: Owners,
    preemption: Preemption,
    *,
    highest: int,
    now: float,
    nominations: Sequence[Nomination] = (),
) -> RunningUnits | None:
    """Return the units that hold GPUs; None where none may be evicted.

    Args:
        cluster: Its nodes and pods.
        objects: Its other objects: PodDisruptionBudgets and Jobs count here.
        owners: The owners of the pods.
        preemption: Says whether and when units are evicted.
        highest: The highest priority of the units that wait.
        now: The time [s since the epoch].
        nominations: The gangs for which units are being evicted, as far as is known.
    """
    pods = cluster.pods
    if preemption.mode == "never" or all(_priority(pod) >= highest for pod in pods):
        return None
    budgets = _budgets(objects)
    fragile = {
        workload.metadata.uid
        for _, workload in workloads_in(objects)
        if workload.fails_when_evicted
    }
    rules = EvictionRules(
        now=now,
        policy=preemption,
        fragile=fragile,
        # Files need not say when a pod started.
        started=lambda pod: (pod.life.started if pod.life else "") or pod.created,
        budgets=lambda namespace, labels: selecting(budgets.get(namespace, ()), labels),
    )
    infos, nodes = cluster.pod_infos, cluster.ledger.nodes
    evicted = [pod for each in nominations for pod in each.evicted]
    evicting = set(map(owners.key, evicted))
    allowed = {budget.name: budget.allowed for each in budgets.values() for budget in each}
    return RunningUnits(
        [
            unit.victim
            for unit in placed_units(infos, owners, nodes, rules)
            if unit.key not in evicting
        ],
        Disruptions(now, allowed),
        places_held([*(pod for pod in infos if ends_soon(pod, now)), *evicted], nodes.get),
        [each.promise for each in nominations],
    )


def highest_priority(pods: Iterable[Pod]) -> int:
    """Return the highest priority of pods; the lowest that there is without any."""
    return max(map(_priority, pods), default=-(1 << 31))


def _priority(pod: Pod) -> int:
    return pod.spec.priority or 0


def _budgets(objects: Iterable[Value]) -> dict[str, list[Budget]]:
    """Return the PodDisruptionBudgets by namespace."""
    budgets: dict[str, list[Budget]] = {}
    for value in objects:
        if value.need("kind").plain == "PodDisruptionBudget":
            read = read_as(DisruptionBudget, without_nulls(value.mapping()), value)
            namespace = read.metadata.namespace or "default"
            budgets.setdefault(namespace, []).append(Budget.of(read))
    return budgets
