"""Pod, Deployment, ReplicaSet, ReplicationController and DaemonSet.

Their pods are independent of each other, so they are no gang unless marks say so.
"""

from linkwise.cluster.objects.kube_object import KubeObject
from linkwise.cluster.objects.pod import PodSpec
from linkwise.workloads.kind import Kind, Workload
from linkwise.workloads.kinds.stamps import numbered, single
from linkwise.workloads.pod_set import Made, PodSet, Template, number


class Pod(Workload, frozen=True):
    """A bare pod, which is its own template."""

    spec: PodSpec = PodSpec()

    def pod_sets(self) -> tuple[PodSet, ...]:
        """Return the pod."""
        return (PodSet((), self.spec, 1, single(self.name)),)


class _Spec(KubeObject, frozen=True):
    replicas: int | None = None
    template: Template = Template()


class ReplicaSet(Workload, frozen=True):
    """A ReplicaSet, or a ReplicationController."""

    spec: _Spec = _Spec()

    def pod_sets(self) -> tuple[PodSet, ...]:
        """Return its pods."""
        stamp = numbered(self.name)
        spec = self.spec.template.spec
        return (PodSet(("spec", "template"), spec, number(self.spec.replicas), stamp),)


class _RollingUpdate(KubeObject, frozen=True):
    max_surge: int | str = "25%"
    max_unavailable: int | str = "25%"


class _Strategy(KubeObject, frozen=True):
    type: str = "RollingUpdate"
    rolling_update: _RollingUpdate = _RollingUpdate()


class _DeploymentSpec(_Spec, frozen=True):
    strategy: _Strategy = _Strategy()


class Deployment(Workload, frozen=True):
    """A Deployment."""

    spec: _DeploymentSpec = _DeploymentSpec()

    @property
    def rolled_out(self) -> int | None:
        """How many pods of a new revision run beside those before it, or in their place."""
        strategy, replicas = self.spec.strategy, number(self.spec.replicas)
        if strategy.type != "RollingUpdate" or not replicas:
            return None
        # As Kubernetes does, a share of surplus pods is rounded up, and one of missing pods down.
        surge = -_part(strategy.rolling_update.max_surge, -replicas)
        missing = min(_part(strategy.rolling_update.max_unavailable, replicas), replicas)
        return max(surge + missing, 1)

    def pod_sets(self) -> tuple[PodSet, ...]:
        """Return the pods of its ReplicaSet."""
        made = (Made("ReplicaSet", "apps/v1", self.name),)
        spec, count = self.spec.template.spec, number(self.spec.replicas)
        return (PodSet(("spec", "template"), spec, count, numbered(self.name), made=made),)


class DaemonSet(Workload, frozen=True):
    """A DaemonSet."""

    spec: _Spec = _Spec()

    def pod_sets(self) -> tuple[PodSet, ...]:
        """Return the pod of one node."""
        note = "a DaemonSet makes a pod for each node; this is one of them"
        spec = self.spec.template.spec
        return (PodSet(("spec", "template"), spec, 1, numbered(self.name), note=note),)


def _part(written: int | str, replicas: int) -> int:
    """Return a number of pods, which may be a percentage of the replicas, rounded down."""
    if isinstance(written, int):
        return written if replicas >= 0 else -written
    percent = written.removesuffix("%")
    return int(percent) * replicas // 100 if percent.isdecimal() and len(percent) <= 9 else 0


APPS = (
    Kind("", "Pod", Pod, sized=False),
    Kind("apps", "Deployment", Deployment, sized=False),
    Kind("apps", "ReplicaSet", ReplicaSet, sized=False),
    Kind("apps", "DaemonSet", DaemonSet, sized=False),
    Kind("", "ReplicationController", ReplicaSet, sized=False),
)
