"""RayCluster, and the objects that make one: RayJob and RayService.

Source: ray-project/kuberay `apis/ray/v1` and `controllers/ray` at v1.6.
"""

from dataclasses import replace

from msgspec import field

from linkwise.cluster.objects.kube_object import KubeObject
from linkwise.cluster.objects.pod import Pod
from linkwise.workloads import operator_keys
from linkwise.workloads.kind import Kind, Workload
from linkwise.workloads.kinds.stamps import batch_labels, numbered, single
from linkwise.workloads.pod_set import Made, Path, PodSet, Template, number


class _Head(KubeObject, frozen=True):
    template: Template = Template()


class _Workers(KubeObject, frozen=True):
    group_name: str
    replicas: int | None = None
    min_replicas: int | None = None
    num_of_hosts: int | None = None
    suspend: bool | None = None
    template: Template = Template()

    @property
    def count(self) -> int:
        """The number of pods."""
        if self.suspend:
            return 0
        least = max(number(self.replicas, 0), number(self.min_replicas, 0))
        return least * max(number(self.num_of_hosts), 1)

    @property
    def fewest(self) -> int:
        """The number of pods to which its autoscaler may shrink it."""
        return number(self.min_replicas, 0) * max(number(self.num_of_hosts), 1)

    @property
    def least(self) -> int | None:
        """The number to which its autoscaler may shrink it; None: a replica has several pods."""
        return number(self.min_replicas, 0) if number(self.num_of_hosts) <= 1 else None


class _Spec(KubeObject, frozen=True):
    suspend: bool | None = None
    enable_in_tree_autoscaling: bool | None = None
    head_group_spec: _Head = _Head()
    worker_group_specs: list[_Workers] = field(default_factory=list)


class RayCluster(Workload, frozen=True):
    """A RayCluster."""

    spec: _Spec = _Spec()

    def pod_sets(self) -> tuple[PodSet, ...]:
        """Return the head and the groups of workers."""
        return _pods(self.spec, self.name, ("spec",))

    @property
    def is_suspended(self) -> bool:
        """It deletes its pods."""
        return bool(self.spec.suspend)


class _JobSpec(KubeObject, frozen=True):
    ray_cluster_spec: _Spec | None = None
    submitter_pod_template: Template | None = None


class RayJob(Workload, frozen=True):
    """A RayJob."""

    spec: _JobSpec = _JobSpec()

    def pod_sets(self) -> tuple[PodSet, ...]:
        """Return the pods of its RayCluster, and the one that submits the job."""
        spec = self.spec
        cluster = spec.ray_cluster_spec
        pods = _made_pods(self, cluster, ("spec", "rayClusterSpec")) if cluster else ()
        if spec.submitter_pod_template is None:
            return pods
        stamp = single(f"{self.name}-xxxxx", batch_labels(self.name))
        submitter = PodSet(
            ("spec", "submitterPodTemplate"),
            spec.submitter_pod_template.spec,
            1,
            stamp,
            "submitter",
            made=(Made("Job", "batch/v1", self.name),),
        )
        return (*pods, submitter)


class _ServiceSpec(KubeObject, frozen=True):
    ray_cluster_config: _Spec = _Spec()


class RayService(Workload, frozen=True):
    """A RayService."""

    spec: _ServiceSpec = _ServiceSpec()

    def pod_sets(self) -> tuple[PodSet, ...]:
        """Return the pods of its RayCluster."""
        return _made_pods(self, self.spec.ray_cluster_config, ("spec", "rayClusterConfig"))


def _made_pods(workload: Workload, spec: _Spec, path: Path) -> tuple[PodSet, ...]:
    """Return the pods of the RayCluster that a workload makes, whose spec is at a path."""
    name = f"{workload.name}-xxxxx"
    made = (Made("RayCluster", workload.api_version, name),)
    return tuple(replace(pods, made=made) for pods in _pods(spec, name, path))


def _pods(spec: _Spec, cluster: str, path: Path) -> tuple[PodSet, ...]:
    """Return the pods of a RayCluster of this name, whose spec is at a path."""

    def labels(node_type: str, group: str) -> dict[str, str]:
        return {
            operator_keys.RAY_CLUSTER: cluster,
            operator_keys.RAY_NODE_TYPE: node_type,
            operator_keys.RAY_GROUP: group,
        }

    role = "headgroup"
    stamp = numbered(f"{cluster}-head", labels("head", role))
    head_path = (*path, "headGroupSpec", "template")
    head = PodSet(head_path, spec.head_group_spec.template.spec, 1, stamp, role)
    workers = (
        PodSet(
            (*path, "workerGroupSpecs", i, "template"),
            group.template.spec,
            group.count,
            numbered(f"{cluster}-{group.group_name}-worker", labels("worker", group.group_name)),
            group.group_name,
            least=group.least if spec.enable_in_tree_autoscaling else None,
            starts_with=group.fewest if spec.enable_in_tree_autoscaling else None,
        )
        for i, group in enumerate(spec.worker_group_specs)
    )
    return (head, *workers)


def is_head(pod: Pod) -> bool:
    """Return whether a pod is the head of a RayCluster."""
    return pod.labels.get(operator_keys.RAY_NODE_TYPE) == "head"


RAY = (
    Kind("ray.io", "RayCluster", RayCluster, "rayclusters", gang="RayCluster", may_shrink=True),
    Kind("ray.io", "RayJob", RayJob),
    Kind("ray.io", "RayService", RayService),
)
