"""Gangs without a mark: the pods with GPUs of one owner, of a kind that the policy names.

Admission sees the pod alone. Its controller is the owner, or an object that the owner made; then
labels of the owner's operator name the owner.

Sources: kubeflow/training-operator and kubeflow/mpi-operator `pkg/controller`, kubernetes-sigs/
jobset and lws `pkg/controllers`, ray-project/kuberay and volcano-sh/volcano `pkg/controllers`.
"""

from collections.abc import Collection
from typing import Literal, NamedTuple, TypeAlias, get_args

from cluster.keys import (
    GANG,
    GANG_KIND,
    JOB_NAME,
    JOBSET_NAME,
    LWS_NAME,
    MPI_JOB_NAME,
)
from cluster.pod import NewOwner, NewPod

OwnerKind: TypeAlias = Literal[
    "MPIJob",
    "PyTorchJob",
    "TFJob",
    "JobSet",
    "LeaderWorkerSet",
    "RayCluster",
    "Job.batch.volcano.sh",
]
"""Kinds whose pods may be one gang; a RayCluster's pods also where a RayJob made it."""
OWNER_KINDS: tuple[str, ...] = get_args(OwnerKind)

OWNER_PATH = "metadata.ownerReferences"
"""The field by which a pod without a mark is a member of a gang."""
_NAME_MAX = 253
_OUT = "false"
"""Value of the label that takes the pods of a job out."""
_VOLCANO: OwnerKind = "Job.batch.volcano.sh"
_CONTROLLERS: dict[tuple[str, str], OwnerKind] = {
    ("kubeflow.org", "MPIJob"): "MPIJob",
    ("kubeflow.org", "PyTorchJob"): "PyTorchJob",
    ("kubeflow.org", "TFJob"): "TFJob",
    ("ray.io", "RayCluster"): "RayCluster",
    ("batch.volcano.sh", "Job"): _VOLCANO,
}
"""Kinds that control pods themselves, by API group and kind of the controller."""
_MADE: dict[tuple[str, str], tuple[tuple[str, OwnerKind], ...]] = {
    # The workers of mpi-operator v1alpha1; leaders and workers of a LeaderWorkerSet.
    ("apps", "StatefulSet"): ((MPI_JOB_NAME, "MPIJob"), (LWS_NAME, "LeaderWorkerSet")),
    # A launcher that is a worker, too (mpi-operator v2beta1); the replicated Jobs of a JobSet.
    ("batch", "Job"): ((JOB_NAME, "MPIJob"), (JOBSET_NAME, "JobSet")),
}
"""Kinds that make other controllers of pods, by that controller: the label with the owner's
name."""


class OwnedGang(NamedTuple):
    """The gang of a pod by its owner."""

    kind: OwnerKind
    name: str
    """The owner's name."""

    @property
    def annotations(self) -> dict[str, str]:
        """The mark that admission writes; the planner reads the size from the owner."""
        return {GANG: self.name, GANG_KIND: self.kind}


def owned_gang(pod: NewPod, kinds: Collection[str]) -> OwnedGang | None:
    """Return the gang that a pod without a mark belongs to by its owner, or None.

    Args:
        pod: A pod that is being created.
        kinds: The kinds whose pods are gangs (policy `gangs.kinds`).
    """
    owners = pod.metadata.owner_references
    if not owners or not kinds or pod.labels.get(GANG) == _OUT:
        return None
    controller = next((owner for owner in owners if owner.controller), None)
    found = _gang_of(pod, controller) if controller else None
    # No object has a longer name.
    is_named = found is not None and 0 < len(found.name) <= _NAME_MAX
    return found if found and is_named and found.kind in kinds else None


def _gang_of(pod: NewPod, controller: NewOwner) -> OwnedGang | None:
    group_kind = controller.api_version.partition("/")[0], controller.kind
    if kind := _CONTROLLERS.get(group_kind):
        return OwnedGang(kind, controller.name)
    for label, kind in _MADE.get(group_kind, ()):
        if label in pod.labels:
            return OwnedGang(kind, pod.labels[label])
    return None
