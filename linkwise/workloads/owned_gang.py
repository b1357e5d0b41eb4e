"""Gangs without a mark: the pods with GPUs of one owner, of a kind that the policy names.

Admission sees the pod alone. Its controller is the owner, or an object that the owner made; then
labels of the owner's operator name the owner.

Sources: kubeflow/training-operator and kubeflow/mpi-operator `pkg/controller`, kubernetes-sigs/
jobset and lws `pkg/controllers`, ray-project/kuberay and volcano-sh/volcano `pkg/controllers`.
"""

from collections.abc import Collection
from typing import NamedTuple

import msgspec

from linkwise.cluster.finding import Finding
from linkwise.cluster.gang import Mark, gang_mark
from linkwise.cluster.keys import GANG, GANG_KIND
from linkwise.cluster.objects.metadata import NewOwner
from linkwise.cluster.objects.pod import NewPod
from linkwise.workloads.operator_keys import (
    JOBSET_EXCLUSIVE,
    JOBSET_NODE_SELECTOR,
    LWS_EXCLUSIVE,
)
from linkwise.workloads.registry import KINDS, kind_of

OWNER_PATH = "metadata.ownerReferences"
"""The field by which a pod without a mark is a member of a gang."""
_NAME_MAX = 253
_OUT = "false"
"""Value of the label that takes the pods of a job out."""
_THROUGH = {
    controller: tuple(
        (through.label, kind.gang)
        for kind in KINDS
        for through in kind.through
        if kind.gang and (through.group, through.kind) == controller
    )
    for controller in {(through.group, through.kind) for kind in KINDS for through in kind.through}
}
"""By API group and kind of a controller that a workload makes: labels with the workload's name, and
kinds of the workload."""


class OwnedGang(NamedTuple):
    """The gang of a pod by its owner."""

    kind: str
    """As the policy names it."""
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
    if not kinds or is_taken_out(pod) or waits_for_leader(pod):
        return None
    found = _by_owner(pod)
    return found if found and found.kind in kinds else None


def waits_for_leader(pod: NewPod) -> bool:
    """Return whether a pod is of a group whose others are made once its first pod has a node.

    A JobSet and a LeaderWorkerSet with exclusive topology do that.
    """
    annotations = pod.metadata.annotations or {}
    by_job_set = JOBSET_EXCLUSIVE in annotations and JOBSET_NODE_SELECTOR not in annotations
    return by_job_set or LWS_EXCLUSIVE in annotations


def distributed_kind(pod: NewPod) -> str | None:
    """Return the kind of a pod's owner as the policy names it; None: its pods may be no gang."""
    found = _by_owner(pod)
    return found.kind if found else None


def is_taken_out(pod: NewPod) -> bool:
    """Return whether a label says that the pod is placed by itself."""
    return pod.labels.get(GANG) == _OUT


def owner_gang(pod: NewPod) -> str | None:
    """Return the name of the gang that all pods of a pod's owner would be; None: of none."""
    found = _by_owner(pod)
    mark = mark_by_owner(pod, found)[0] if found else None
    return mark.name if mark else None


def mark_by_owner(pod: NewPod, owned: OwnedGang) -> tuple[Mark | None, tuple[Finding, ...]]:
    """Return the mark that a pod has by its owner, at the place by which it is a gang."""
    annotations = (pod.metadata.annotations or {}) | owned.annotations
    metadata = msgspec.structs.replace(pod.metadata, annotations=annotations)
    mark, sizes = gang_mark(msgspec.structs.replace(pod, metadata=metadata))
    return mark and msgspec.structs.replace(mark, source=OWNER_PATH), sizes


def _by_owner(pod: NewPod) -> OwnedGang | None:
    owners = pod.metadata.owner_references or ()
    controller = next((owner for owner in owners if owner.controller), None)
    found = _gang_of(pod, controller) if controller else None
    # No object has a longer name.
    is_named = found is not None and 0 < len(found.name) <= _NAME_MAX
    return found if is_named else None


def _gang_of(pod: NewPod, controller: NewOwner) -> OwnedGang | None:
    kind = kind_of(controller.api_version, controller.kind)
    if kind is None:
        return None
    if kind.gang:
        return OwnedGang(kind.gang, controller.name)
    for label, gang in _THROUGH.get((kind.group, kind.name), ()):
        if label in pod.labels:
            return OwnedGang(gang, pod.labels[label])
    return None
