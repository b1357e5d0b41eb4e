"""Kubernetes' Job, and CronJob.

Source: kubernetes/api `batch/v1`.
"""

from linkwise.cluster.objects.kube_object import KubeObject
from linkwise.cluster.objects.pod import PodSpec
from linkwise.workloads.kind import Index, Kind, Workload
from linkwise.workloads.kinds.stamps import batch_labels, numbered
from linkwise.workloads.operator_keys import JOB_COMPLETION_INDEX
from linkwise.workloads.pod_set import Made, Marks, PodSet, Template, number


class _Condition(KubeObject, frozen=True):
    type: str = ""


class _Rule(KubeObject, frozen=True):
    action: str = ""
    on_pod_conditions: list[_Condition] | None = None


class _FailurePolicy(KubeObject, frozen=True):
    rules: list[_Rule] | None = None


class JobState(KubeObject, frozen=True):
    """The fields of a Job's spec that say when it makes no pods."""

    suspend: bool | None = None
    pod_failure_policy: _FailurePolicy = _FailurePolicy()

    @property
    def fails_when_evicted(self) -> bool:
        """It counts an evicted pod as a failure."""
        return not any(
            rule.action == "Ignore" and condition.type == "DisruptionTarget"
            for rule in self.pod_failure_policy.rules or ()
            for condition in rule.on_pod_conditions or ()
        )


class JobSpec(JobState, frozen=True):
    """The spec of a Job."""

    parallelism: int | None = None
    completions: int | None = None
    completion_mode: str = ""
    template: Template = Template()

    @property
    def parallel(self) -> int:
        """How many pods run concurrently: at most its completions."""
        most = number(self.parallelism)
        return min(most, number(self.completions, most))

    @property
    def pod_spec(self) -> PodSpec:
        """The spec of its pods."""
        return self.template.spec


class WatchedJob(Workload, frozen=True):
    """The fields of a Job that are read of every Job of a cluster."""

    spec: JobState = JobState()

    @property
    def fails_when_evicted(self) -> bool:
        """Its podFailurePolicy does not ignore evicted pods."""
        return self.spec.fails_when_evicted

    @property
    def is_suspended(self) -> bool:
        """It deletes its unfinished pods, too."""
        return bool(self.spec.suspend)


class BatchJob(WatchedJob, frozen=True):
    """A Job."""

    spec: JobSpec = JobSpec()

    def pod_sets(self) -> tuple[PodSet, ...]:
        """Return its pods."""
        return (_pods(self.spec, self.name, ("spec",)),)


class _JobTemplate(KubeObject, frozen=True):
    spec: JobSpec = JobSpec()


class _CronSpec(KubeObject, frozen=True):
    job_template: _JobTemplate = _JobTemplate()


class CronJob(Workload, frozen=True):
    """A CronJob."""

    spec: _CronSpec = _CronSpec()

    def pod_sets(self) -> tuple[PodSet, ...]:
        """Return the pods of one of its Jobs."""
        name = f"{self.name}-xxxxx"
        note = (
            "a CronJob makes these pods at each time of its schedule; one run stands here for all"
        )
        made = (Made("Job", "batch/v1", name),)
        path = ("spec", "jobTemplate", "spec")
        return (_pods(self.spec.job_template.spec, name, path, made, note),)

    @property
    def fails_when_evicted(self) -> bool:
        """Its Jobs count an evicted pod as a failure."""
        return self.spec.job_template.spec.fails_when_evicted


def _pods(
    spec: JobSpec,
    name: str,
    path: tuple[str, ...],
    made: tuple[Made, ...] = (),
    note: str | None = None,
) -> PodSet:
    """Return the pods of a Job.

    Args:
        spec: The Job's spec.
        name: The Job's name.
        path: Of the spec.
        made: The Job, where another object makes it.
        note: For users.
    """
    labels = batch_labels(name)

    def indexed(index: int) -> Marks:
        own = {JOB_COMPLETION_INDEX: str(index)}
        return Marks(f"{name}-{index}", {**labels, **own}, own)

    stamp = indexed if spec.completion_mode == "Indexed" else numbered(name, labels)
    path = (*path, "template")
    return PodSet(path, spec.pod_spec, spec.parallel, stamp, made=made, note=note)


BATCH_JOB = Kind(
    "batch",
    "Job",
    BatchJob,
    "jobs",
    indices=(Index(JOB_COMPLETION_INDEX), Index(JOB_COMPLETION_INDEX, is_annotation=True)),
)
CRON_JOB = Kind("batch", "CronJob", CronJob)
