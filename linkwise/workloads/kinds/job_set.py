"""JobSet.

Source: kubernetes-sigs/jobset `api/jobset/v1alpha2` and `pkg/controllers` at v0.8.
"""

from collections.abc import Mapping
from itertools import accumulate

from msgspec import field

from linkwise.cluster.finding import Code
from linkwise.cluster.objects.kube_object import KubeObject, Labels
from linkwise.cluster.objects.pod import Pod
from linkwise.cluster.objects.quantity import count
from linkwise.workloads import operator_keys
from linkwise.workloads.kind import Kind, OrderedStart, Through, Workload
from linkwise.workloads.kinds.batch_job import JobSpec
from linkwise.workloads.kinds.stamps import batch_labels
from linkwise.workloads.pod_set import Made, Marks, PodSet, Stamp, number

JOB_LABELS = (
    operator_keys.JOBSET_GLOBAL_INDEX,
    operator_keys.JOBSET_REPLICATED_JOB,
    operator_keys.JOBSET_JOB_INDEX,
)
"""Labels of a pod that say of which Job it is."""
_PASSED_ON = (operator_keys.JOBSET_EXCLUSIVE, operator_keys.JOBSET_NODE_SELECTOR)
"""Annotations of a JobSet, or of a replicated Job, that its pods get."""


class _JobMetadata(KubeObject, frozen=True):
    labels: Labels | None = None
    annotations: Labels | None = None


class JobTemplate(KubeObject, frozen=True):
    """The template of Jobs."""

    metadata: _JobMetadata = _JobMetadata()
    spec: JobSpec = JobSpec()


class ReplicatedJob(KubeObject, frozen=True):
    """Jobs of one template."""

    name: str
    replicas: int | None = None
    template: JobTemplate = JobTemplate()
    depends_on: list[object] = field(default_factory=list)
    """Only the presence is read."""


class _StartupPolicy(KubeObject, frozen=True):
    startup_policy_order: str = ""


class JobSetSpec(KubeObject, frozen=True):
    """The spec of a JobSet."""

    suspend: bool | None = None
    startup_policy: _StartupPolicy = _StartupPolicy()
    replicated_jobs: list[ReplicatedJob] = field(default_factory=list)


class JobSet(Workload, frozen=True):
    """A JobSet."""

    spec: JobSetSpec = JobSetSpec()

    def pod_sets(self) -> tuple[PodSet, ...]:
        """Return the pods of each replicated Job."""
        jobs = self.spec.replicated_jobs
        firsts = accumulate((number(job.replicas) for job in jobs), initial=0)
        return tuple(
            _pods(self, i, job, first)
            for i, (job, first) in enumerate(zip(jobs, firsts, strict=False))
        )

    @property
    def starts_in_order(self) -> bool:
        """It makes a Job only when others are ready."""
        in_order = self.spec.startup_policy.startup_policy_order == "InOrder"
        return in_order or any(job.depends_on for job in self.spec.replicated_jobs)

    @property
    def is_suspended(self) -> bool:
        """Its Jobs are suspended."""
        return bool(self.spec.suspend)


def _pods(job_set: JobSet, index: int, job: ReplicatedJob, first: int) -> PodSet:
    """Return the pods of a replicated Job.

    Args:
        job_set: The JobSet.
        index: Of the replicated Job.
        job: The replicated Job.
        first: Number of Jobs of the replicated Jobs before it.
    """
    inner = job.template.spec
    made = (Made("Job", "batch/v1", f"{job_set.name}-{job.name}"),)
    written = (job_set.metadata.annotations or {}) | (job.template.metadata.annotations or {})
    passed = {key: text for key, text in written.items() if key in _PASSED_ON}
    return PodSet(
        ("spec", "replicatedJobs", index, "template", "spec", "template"),
        inner.pod_spec,
        number(job.replicas) * inner.parallel,
        job_stamp(job_set.name, job.name, first, max(inner.parallel, 1), passed),
        job.name,
        made=made,
    )


def job_stamp(
    job_set: str, name: str, first: int, pods: int, annotations: Mapping[str, str] | None = None
) -> Stamp:
    """Return the stamp of a replicated Job's pods.

    Args:
        job_set: Name of the JobSet.
        name: Of the replicated Job.
        first: Number of Jobs of the replicated Jobs before it.
        pods: Number of pods of each Job.
        annotations: Of each pod.
    """

    def stamp(index: int) -> Marks:
        job, completion = divmod(index, pods)
        made = f"{job_set}-{name}-{job}"
        labels = {
            operator_keys.JOBSET_NAME: job_set,
            operator_keys.JOBSET_REPLICATED_JOB: name,
            operator_keys.JOBSET_JOB_INDEX: str(job),
            operator_keys.JOBSET_GLOBAL_INDEX: str(first + job),
            operator_keys.JOB_COMPLETION_INDEX: str(completion),
            **batch_labels(made),
        }
        return Marks(f"{made}-{completion}", labels, annotations or {})

    return stamp


def job_order(pod: Pod) -> tuple[int, str, int]:
    """Return the sort key of the Job of a pod; the same for all pods of no JobSet."""
    overall, name, index = (pod.labels.get(label, "") for label in JOB_LABELS)
    return count(overall) or 0, name, count(index) or 0


JOB_SET = Kind(
    "jobset.x-k8s.io",
    "JobSet",
    JobSet,
    "jobsets",
    gang="JobSet",
    through=(Through("batch", "Job", operator_keys.JOBSET_NAME),),
    ordered=OrderedStart(
        Code.GANG_WAITS_FOR_PART,
        "the pods of a Job only when those of the Jobs before it are ready",
        "startupPolicyOrder: AnyOrder and no dependsOn",
    ),
)
