"""StatefulSet."""

from linkwise.cluster.finding import Code
from linkwise.cluster.objects.kube_object import KubeObject
from linkwise.workloads.kind import Index, Kind, OrderedStart, Workload
from linkwise.workloads.kinds.stamps import ordinal
from linkwise.workloads.operator_keys import STATEFULSET_POD_INDEX
from linkwise.workloads.pod_set import PodSet, Template, number


class _Scale(KubeObject, frozen=True):
    replicas: int | None = None


class _Spec(_Scale, frozen=True):
    pod_management_policy: str = ""
    template: Template = Template()


class WatchedSet(Workload, frozen=True):
    """The fields of a StatefulSet that are read of every one of a cluster."""

    spec: _Scale = _Scale()

    @property
    def is_suspended(self) -> bool:
        """It is scaled to 0."""
        return self.spec.replicas == 0


class StatefulSet(WatchedSet, frozen=True):
    """A StatefulSet."""

    spec: _Spec = _Spec()

    def pod_sets(self) -> tuple[PodSet, ...]:
        """Return its pods."""
        count, stamp = number(self.spec.replicas), ordinal(self.name)
        spec = self.spec.template.spec
        return (PodSet(("spec", "template"), spec, count, stamp, prefix=self.name),)

    @property
    def starts_in_order(self) -> bool:
        """It makes each pod when the one before it is ready."""
        return self.spec.pod_management_policy != "Parallel"


STATEFUL_SET = Kind(
    "apps",
    "StatefulSet",
    StatefulSet,
    "statefulsets",
    indices=(Index(STATEFULSET_POD_INDEX),),
    ordered=OrderedStart(
        Code.GANG_ORDERED,
        "each pod only when the one before it is ready",
        "podManagementPolicy: Parallel",
        within_a_set=True,
    ),
)
