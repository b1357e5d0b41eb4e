"""Watch the PodDisruptionBudgets: which pods each selects, and how many evictions it allows."""

from collections.abc import Mapping, Set
from dataclasses import dataclass

import msgspec
from msgspec import Raw

from cluster.objects.affinity import LabelSelector
from cluster.objects.kube_object import KubeObject, Labels
from cluster.objects.pod import Metadata
from policy.condition import Condition, conditions_of, first_unmet
from runtime.kube.client import Kube
from runtime.kube.decode import decode
from runtime.kube.objects import Key
from runtime.kube.reflector import Reflector

OF_NAMESPACE_MAX = 16
"""Budgets of a namespace that pods are compared with."""
_CONDITIONS_MAX = 16
"""Conditions of a selector. One with more counts as selecting all pods."""


class _Spec(KubeObject, frozen=True):
    selector: LabelSelector | None = None


class _Status(KubeObject, frozen=True):
    disruptions_allowed: int = 0


class _Budget(KubeObject, frozen=True):
    metadata: Metadata
    spec: _Spec = _Spec()
    status: _Status = _Status()


_budgets = msgspec.json.Decoder(_Budget)


@dataclass(frozen=True, slots=True)
class DisruptionBudget:
    """A PodDisruptionBudget."""

    name: str
    """`namespace/name`."""
    conditions: tuple[Condition, ...] | None
    """Of the labels of its pods; None: it selects none."""
    allowed: int
    """How many of its pods may be evicted now."""

    def selects(self, labels: Labels) -> bool:
        """Return whether it selects a pod of its namespace."""
        return self.conditions is not None and first_unmet(self.conditions, labels) is None


def read_budget(raw: bytes | Raw) -> DisruptionBudget:
    """Return a PodDisruptionBudget from its JSON.

    Raises:
        msgspec.DecodeError: The JSON is not that of a PodDisruptionBudget.
    """
    budget = decode(raw, _budgets)
    metadata, selector = budget.metadata, budget.spec.selector
    conditions = None if selector is None else conditions_of(selector)
    if conditions and len(conditions) > _CONDITIONS_MAX:
        conditions = ()
    name = f"{metadata.namespace}/{metadata.name}"
    return DisruptionBudget(name, conditions, max(0, budget.status.disruptions_allowed))


class BudgetInformer:
    """All PodDisruptionBudgets, by namespace."""

    def __init__(self, kube: Kube) -> None:
        """Prepare the watch."""
        self._by_namespace: dict[str, dict[str, DisruptionBudget]] = {}
        path = "/apis/policy/v1/poddisruptionbudgets"
        self.reflector = Reflector(kube, path, read_budget, on_change=self._changed)

    def selecting(self, namespace: str, labels: Labels) -> frozenset[str] | None:
        """Return the budgets that select a pod; None: its namespace has too many to compare."""
        budgets = self._by_namespace.get(namespace)
        if not budgets:
            return frozenset()
        if len(budgets) > OF_NAMESPACE_MAX:
            return None
        return frozenset(each.name for each in budgets.values() if each.selects(labels))

    @property
    def allowed(self) -> dict[str, int]:
        """The evictions that each budget allows now, by `namespace/name`."""
        budgets = self.reflector.items.values()
        return {budget.name: budget.allowed for budget in budgets}

    def _changed(self, items: Mapping[Key, DisruptionBudget], changed: Set[Key]) -> None:
        for namespace, name in changed:
            budget = items.get((namespace, name))
            of_namespace = self._by_namespace.setdefault(namespace, {})
            of_namespace.pop(name, None)
            if budget is not None:
                of_namespace[name] = budget
            if not of_namespace:
                del self._by_namespace[namespace]
