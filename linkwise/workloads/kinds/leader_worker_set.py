"""LeaderWorkerSet, each of whose groups is a gang.

Source: kubernetes-sigs/lws `api/leaderworkerset/v1` and `pkg` at v0.6.
"""

from collections.abc import Mapping

from linkwise.cluster import keys
from linkwise.cluster.finding import Code
from linkwise.cluster.gang import is_of_group
from linkwise.cluster.objects.kube_object import KubeObject
from linkwise.cluster.objects.pod import NewPod
from linkwise.workloads import operator_keys
from linkwise.workloads.kind import Index, Kind, OrderedStart, Through, Workload
from linkwise.workloads.pod_set import Made, Marks, Path, PodSet, Stamp, Template, number


class _Group(KubeObject, frozen=True):
    size: int | None = None
    leader_template: Template | None = None
    worker_template: Template = Template()


class _Spec(KubeObject, frozen=True):
    replicas: int | None = None
    startup_policy: str = ""
    leader_worker_template: _Group = _Group()


class LeaderWorkerSet(Workload, frozen=True):
    """A LeaderWorkerSet."""

    spec: _Spec = _Spec()

    def pod_sets(self) -> tuple[PodSet, ...]:
        """Return the leaders and the workers."""
        group, groups = self.spec.leader_worker_template, number(self.spec.replicas)
        size = number(group.size)
        workers = max(size - 1, 0)
        path: Path = ("spec", "leaderWorkerTemplate")
        key, annotations = operator_keys.LWS_EXCLUSIVE, {keys.LWS_SIZE: str(size)}
        if topology := (self.metadata.annotations or {}).get(key):
            annotations[key] = topology
        made = (Made("StatefulSet", "apps/v1", self.name),)
        leader = PodSet(
            (*path, "leaderTemplate" if group.leader_template else "workerTemplate"),
            (group.leader_template or group.worker_template).spec,
            1,
            _stamp(self.name, annotations, 1, 0),
            "leader",
            groups=groups,
            made=made,
        )
        if not workers:
            return (leader,)
        stamp = _stamp(self.name, annotations, workers, 1)
        spec = group.worker_template.spec
        path = (*path, "workerTemplate")
        return leader, PodSet(path, spec, workers, stamp, "worker", groups=groups, made=made)

    @property
    def starts_in_order(self) -> bool:
        """It makes the workers of a group when its leader is ready."""
        return self.spec.startup_policy == "LeaderReady"

    @property
    def is_suspended(self) -> bool:
        """It is scaled to 0."""
        return self.spec.replicas == 0


def _stamp(name: str, annotations: Mapping[str, str], part: int, first: int) -> Stamp:
    """Return the stamp of leaders or workers.

    Args:
        name: Of the LeaderWorkerSet.
        annotations: Of each pod.
        part: Pods of a group that are of this stamp.
        first: Index of the first of these.
    """

    def stamp(index: int) -> Marks:
        group, worker = index // part, first + index % part
        labels = {
            keys.LWS_NAME: name,
            keys.LWS_GROUP_INDEX: str(group),
            operator_keys.LWS_WORKER_INDEX: str(worker),
        }
        pod = f"{name}-{group}" + (f"-{worker}" if worker else "")
        return Marks(pod, labels, annotations)

    return stamp


def is_leader(pod: NewPod) -> bool:
    """Return whether a pod is the leader of its group."""
    return is_of_group(pod) and pod.labels.get(operator_keys.LWS_WORKER_INDEX) == "0"


LEADER_WORKER_SET = Kind(
    "leaderworkerset.x-k8s.io",
    "LeaderWorkerSet",
    LeaderWorkerSet,
    "leaderworkersets",
    gang="LeaderWorkerSet",
    through=(Through("apps", "StatefulSet", keys.LWS_NAME),),
    indices=(Index(operator_keys.LWS_WORKER_INDEX),),
    ordered=OrderedStart(
        Code.GANG_WAITS_FOR_PART,
        "the workers of a group only when its leader is ready",
        "startupPolicy: LeaderCreated",
    ),
)
