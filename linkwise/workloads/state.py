"""The state of an owner of pods, by its status: active, suspended or ended."""

from collections.abc import Iterable
from enum import Enum

from linkwise.cluster.objects.kube_object import KubeObject


class OwnerState(Enum):
    """Whether an owner makes pods."""

    ACTIVE = "active"
    SUSPENDED = "suspended"
    """It makes none for now."""
    SUCCEEDED = "succeeded"
    FAILED = "failed"

    @property
    def is_final(self) -> bool:
        """It never makes pods again."""
        return self in {OwnerState.SUCCEEDED, OwnerState.FAILED}


_OUTCOMES = {
    "Succeeded": OwnerState.SUCCEEDED,
    "Complete": OwnerState.SUCCEEDED,
    "Completed": OwnerState.SUCCEEDED,
    "Failed": OwnerState.FAILED,
}
"""By text in the status: `Complete` of a batch Job, `Completed` of a JobSet or a Volcano Job; the
others are Kubeflow's, and `Failed` is of all."""


class _Condition(KubeObject, frozen=True):
    type: str = ""
    status: str = ""


class Status(KubeObject, frozen=True):
    """The status of most kinds."""

    conditions: list[_Condition] | None = None

    @property
    def reached(self) -> Iterable[str]:
        """The conditions that hold, and the states."""
        return [one.type for one in self.conditions or () if one.status == "True"]

    @property
    def outcome(self) -> OwnerState | None:
        """How the owner has ended; None while it has not."""
        return next(filter(None, map(_OUTCOMES.get, self.reached)), None)
