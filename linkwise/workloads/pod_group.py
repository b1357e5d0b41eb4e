"""PodGroups, which say how many pods are placed together; they make no pods.

Sources: kubernetes-sigs/scheduler-plugins `apis/scheduling/v1alpha1`, kubernetes/api
`scheduling/v1beta1`.
"""

from linkwise.cluster.keys import (
    NATIVE_GROUP_API,
    NATIVE_GROUP_API_BEFORE,
    POD_GROUP,
    POD_GROUP_API,
)
from linkwise.cluster.objects.kube_object import KubeObject
from linkwise.cluster.objects.metadata import Metadata
from linkwise.cluster.objects.pod import Pod
from linkwise.workloads.paths import path_in

GROUPS = "podgroups"
"""PodGroups in the paths of both APIs."""


class _Gang(KubeObject, frozen=True):
    min_count: int | None = None


class _Policy(KubeObject, frozen=True):
    gang: _Gang = _Gang()


class _Spec(KubeObject, frozen=True):
    """The spec of scheduler-plugins' PodGroup, and of Kubernetes' own."""

    min_member: int | None = None
    scheduling_policy: _Policy = _Policy()


class PodGroup(KubeObject, frozen=True):
    """The part of a PodGroup that says how many pods are placed together."""

    metadata: Metadata = Metadata()
    spec: _Spec = _Spec()

    @property
    def is_deleting(self) -> bool:
        """It is being deleted."""
        return self.metadata.deletion_timestamp is not None

    @property
    def members(self) -> int | None:
        """Number of members that it requires; None where it states none."""
        count = self.spec.min_member or self.spec.scheduling_policy.gang.min_count
        return count if count and count > 0 else None


def group_paths(pod: Pod, namespace: str) -> tuple[str, ...]:
    """Return the possible paths of the PodGroup that a pod names; empty where it names none."""
    native = pod.spec.scheduling_group.pod_group_name if pod.spec.scheduling_group else ""
    name = native or pod.labels.get(POD_GROUP, "")
    served = (NATIVE_GROUP_API, NATIVE_GROUP_API_BEFORE) if native else (POD_GROUP_API,)
    return tuple(filter(None, (path_in(namespace, api, GROUPS, name) for api in served)))
