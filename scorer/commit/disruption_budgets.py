"""Ask whether the disruption budgets of a namespace let all pods of a gang be evicted.

The Eviction API judges one pod after the other, so that it would stop in the middle of a gang.
"""

import asyncio
from collections.abc import Collection, Iterable, Mapping

from cluster.objects.affinity import LabelSelector
from cluster.objects.kube_object import KubeObject, Labels
from cluster.objects.selector import labels_match
from runtime.kube.client import Kube
from scorer.gang.pod_info import PodInfo

_MOST, _MAX_BYTES = 500, 16 * 2**20
"""Budgets of a namespace that are read, and the bytes of their list."""


class Metadata(KubeObject, frozen=True):
    """The metadata of a pod or a budget that is read."""

    name: str = ""
    labels: Labels | None = None


class BudgetSpec(KubeObject, frozen=True):
    """The pods of a budget."""

    selector: LabelSelector | None = None


class BudgetStatus(KubeObject, frozen=True):
    """What a budget allows."""

    disruptions_allowed: int = 0


class DisruptionBudget(KubeObject, frozen=True):
    """A PodDisruptionBudget."""

    metadata: Metadata
    spec: BudgetSpec = BudgetSpec()
    status: BudgetStatus = BudgetStatus()


class _Budgets(KubeObject, frozen=True):
    items: list[DisruptionBudget]


class _Pod(KubeObject, frozen=True):
    metadata: Metadata


async def budget_blocker(kube: Kube, pods: Collection[PodInfo]) -> str | None:
    """Return which budget does not let all these pods of a namespace be evicted; None: all do.

    Raises:
        KubeError: The budgets or the pods could not be read.
    """
    namespace = next(iter(pods)).namespace
    path = f"/apis/policy/v1/namespaces/{namespace}/poddisruptionbudgets"
    params = {"limit": str(_MOST)}
    budgets = await kube.get(path, _Budgets, params=params, max_bytes=_MAX_BYTES)
    if not budgets.items:
        return None
    found = await asyncio.gather(*(kube.find(pod.path, _Pod) for pod in pods))
    return blocking_budget(budgets.items, [pod.metadata.labels or {} for pod in found if pod])


def blocking_budget(
    budgets: Iterable[DisruptionBudget], pods: Collection[Mapping[str, str]]
) -> str | None:
    """Return which budget does not let all pods be evicted; None: all do.

    A pod that is not ready may be evicted beyond a budget; here it counts like the others.

    Args:
        budgets: Of the namespace.
        pods: The labels of each pod.
    """
    counted: set[int] = set()
    for budget in budgets:
        selector = budget.spec.selector
        of_it = {i for i, pod in enumerate(pods) if selector and labels_match(selector, pod)}
        name, allowed = budget.metadata.name, max(budget.status.disruptions_allowed, 0)
        if len(of_it) > allowed:
            return f"PodDisruptionBudget {name} lets {allowed} of its {len(of_it)} pods be evicted"
        if of_it & counted:
            return f"PodDisruptionBudget {name} selects a pod of another one: none can be evicted"
        counted |= of_it
    return None
