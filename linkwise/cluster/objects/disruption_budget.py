"""Typed PodDisruptionBudgets, decoded from bytes, with the fields that Linkwise reads."""

from linkwise.cluster.objects.affinity import LabelSelector
from linkwise.cluster.objects.kube_object import KubeObject
from linkwise.cluster.objects.metadata import Metadata


class BudgetSpec(KubeObject, frozen=True):
    """The spec of a PodDisruptionBudget."""

    selector: LabelSelector | None = None
    """None selects no pod, an empty one all pods of the namespace."""


class BudgetStatus(KubeObject, frozen=True):
    """The status of a PodDisruptionBudget."""

    disruptions_allowed: int = 0


class DisruptionBudget(KubeObject, frozen=True):
    """A PodDisruptionBudget."""

    metadata: Metadata = Metadata()
    spec: BudgetSpec = BudgetSpec()
    status: BudgetStatus = BudgetStatus()

    @property
    def name(self) -> str:
        """`namespace/name`."""
        return f"{self.metadata.namespace or 'default'}/{self.metadata.name}"
