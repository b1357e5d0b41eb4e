"""Find the PodDisruptionBudgets that select a pod. Pure."""

from collections.abc import Collection, Iterable
from dataclasses import dataclass, replace
from itertools import chain

from linkwise.cluster.objects.condition import Condition, conditions_of, first_unmet
from linkwise.cluster.objects.disruption_budget import DisruptionBudget
from linkwise.cluster.objects.kube_object import Labels

OF_NAMESPACE_MAX = 16
"""Budgets of a namespace that pods are compared with."""
_CONDITIONS_MAX = 16
"""Conditions of a selector. One with more counts as selecting all pods."""
_LARGEST = 8 << 10
"""Memory of a selector [bytes, about]. A larger one counts as selecting all pods."""
ENTRY = 100
"""Memory of one text besides its characters [bytes, about]."""


@dataclass(frozen=True, slots=True)
class Budget:
    """The part of a PodDisruptionBudget that is kept."""

    name: str
    """`namespace/name`."""
    conditions: tuple[Condition, ...] | None
    """Of the labels of its pods; None: it selects none."""
    allowed: int
    """How many of its pods may be evicted now."""

    @classmethod
    def of(cls, budget: DisruptionBudget) -> "Budget":
        """Return the part of an object that is kept."""
        selector = budget.spec.selector
        conditions = None if selector is None else conditions_of(selector)
        if conditions and (len(conditions) > _CONDITIONS_MAX or _size(conditions) > _LARGEST):
            conditions = ()
        if conditions:
            # Nobody reads the text of a condition of a budget.
            conditions = tuple(replace(condition, text="") for condition in conditions)
        return cls(budget.name, conditions, max(0, budget.status.disruptions_allowed))

    def selects(self, labels: Labels | None) -> bool:
        """Return whether it selects a pod of its namespace; labels None: they are not known."""
        if self.conditions is None or labels is None:
            return self.conditions is not None
        return first_unmet(self.conditions, labels) is None


def conflict_of(names: Iterable[str]) -> str | None:
    """Return why a pod that these budgets select cannot be evicted; None: a budget may allow it.

    The Eviction API answers 500 for a pod of two budgets, whatever they allow.
    """
    first, *others = sorted(names) or [""]
    name = first.partition("/")[2]
    return (
        f"PodDisruptionBudget {name} selects a pod of another one: none can be evicted"
        if others
        else None
    )


def _size(conditions: Collection[Condition]) -> int:
    texts = chain.from_iterable((each.key, *each.values) for each in conditions)
    return sum(len(text) + ENTRY for text in texts)


def selecting(budgets: Collection[Budget], labels: Labels | None) -> frozenset[str] | None:
    """Return which budgets of a namespace select a pod; None: there are too many to compare.

    Args:
        budgets: All of the namespace.
        labels: The pod's; None: they are not known, so that each budget may select it.
    """
    if len(budgets) > OF_NAMESPACE_MAX:
        return None
    return frozenset(budget.name for budget in budgets if budget.selects(labels))
