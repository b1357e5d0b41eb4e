"""The running units of a cluster, and the rules for their eviction. Pure."""

from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence, Set
from functools import partial

from cli.analysis.workload_owners import workloads_in
from cli.files.cluster_file import Cluster
from cluster.objects.disruption_budget import DisruptionBudget
from cluster.objects.pod import Pod
from manifest.lines import without_nulls
from manifest.typed import read_as
from manifest.value import Value
from policy.condition import conditions_of, first_unmet
from policy.document import Preemption
from scorer.commit.pending_binding import eviction_blocker
from scorer.gang.pod_info import PodInfo, pod_info
from scorer.gang.running_units import EvictionRules, is_of_kueue, running_units
from scorer.gang.unit import Owners
from scorer.placement.preemption.victim import Disruptions
from scorer.whatif.preemption import RunningUnits


def units_that_run(
    cluster: Cluster,
    objects: Sequence[Value],
    owners: Owners,
    preemption: Preemption,
    *,
    highest: int,
    now: float,
) -> RunningUnits | None:
    """Return the units that hold GPUs; None where none may be evicted.

    Args:
        cluster: Its nodes and pods.
        objects: Its other objects: PodDisruptionBudgets and Jobs count here.
        owners: The owners of the pods.
        preemption: Says whether and when units are evicted.
        highest: The highest priority of the units that wait.
        now: The time [s since the epoch].
    """
    pods = cluster.pods
    if preemption.mode == "never" or all(_priority(pod) >= highest for pod in pods):
        return None
    budgets = list(_budgets(objects))
    labels = _Labels(pods, budgets)
    starts = {_key(pod): pod.status.start_time or pod.metadata.creation_timestamp for pod in pods}
    fragile = {
        workload.metadata.uid
        for _, workload in workloads_in(objects)
        if workload.fails_when_evicted
    }
    rules = EvictionRules(
        now=now,
        min_run=preemption.min_run_minutes * 60,
        blocker=partial(labels.blocker, fragile=fragile),
        started=lambda pod: starts.get(pod.key),
        budgets=labels.budgets,
    )
    units = running_units(map(pod_info, pods), owners, cluster.ledger.nodes, rules)
    allowed = {budget.name: budget.status.disruptions_allowed for budget in budgets}
    return RunningUnits(units, Disruptions(now, allowed))


def highest_priority(pods: Iterable[Pod]) -> int:
    """Return the highest priority of pods; the lowest that there is without any."""
    return max(map(_priority, pods), default=-(1 << 31))


def _key(pod: Pod) -> tuple[str, str]:
    return pod.metadata.namespace or "default", pod.metadata.name


def _priority(pod: Pod) -> int:
    return pod.spec.priority or 0


def _budgets(objects: Iterable[Value]) -> Iterator[DisruptionBudget]:
    for value in objects:
        if value.need("kind").plain == "PodDisruptionBudget":
            yield read_as(DisruptionBudget, without_nulls(value.mapping()), value)


class _Labels:
    """The labels of pods, and what follows from them for an eviction."""

    def __init__(self, pods: Iterable[Pod], budgets: Iterable[DisruptionBudget]) -> None:
        self._labels = {_key(pod): pod.labels for pod in pods}
        self._budgets = defaultdict[str, list[DisruptionBudget]](list)
        for budget in budgets:
            if budget.spec.selector is not None:
                self._budgets[budget.metadata.namespace or "default"].append(budget)

    def budgets(self, pod: PodInfo) -> frozenset[str]:
        """Return the names of the budgets that select a pod."""
        labels = self._labels.get(pod.key, {})
        return frozenset(
            budget.name
            for budget in self._budgets.get(pod.namespace, ())
            if first_unmet(conditions_of(budget.spec.selector), labels) is None
        )

    def blocker(self, pods: Sequence[PodInfo], fragile: Set[str]) -> str | None:
        """Return why the pods of a unit must not be evicted; None: they may be."""
        if any(is_of_kueue(self._labels.get(pod.key)) for pod in pods):
            return "Kueue decides about its preemption"
        return eviction_blocker(pods, fragile)
