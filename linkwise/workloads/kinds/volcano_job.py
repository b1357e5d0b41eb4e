"""Volcano's Job.

Source: volcano-sh/volcano `pkg/controllers/job` at v1.15, volcano-sh/apis `batch/v1alpha1`.
"""

from msgspec import field

from linkwise.cluster.finding import Code
from linkwise.cluster.objects.kube_object import KubeObject
from linkwise.workloads.kind import Kind, OrderedStart, Workload
from linkwise.workloads.kinds.stamps import numbered
from linkwise.workloads.pod_set import PodSet, Template, number
from linkwise.workloads.state import Status

_SCHEDULER = "volcano"


class _Task(KubeObject, frozen=True):
    name: str = ""
    replicas: int | None = None
    depends_on: dict[str, object] | None = None
    """Only the presence is read."""
    template: Template = Template()


class _Spec(KubeObject, frozen=True):
    scheduler_name: str = ""
    min_available: int | None = None
    """Pods that start together, those without GPUs included."""
    tasks: list[_Task] = field(default_factory=list)


class _State(KubeObject, frozen=True):
    phase: str = ""


class _Status(Status, frozen=True):
    state: _State = _State()

    @property
    def reached(self) -> list[str]:
        """The conditions that hold, and the phase."""
        return [*super().reached, self.state.phase]


class VolcanoJob(Workload, frozen=True):
    """A Job of Volcano."""

    spec: _Spec = _Spec()
    status: _Status = _Status()

    def pod_sets(self) -> tuple[PodSet, ...]:
        """Return the pods of each task."""
        return tuple(self._task(i, task) for i, task in enumerate(self.spec.tasks))

    @property
    def min_members(self) -> int | None:
        """Its minAvailable."""
        return number(self.spec.min_available, 0) or None

    @property
    def starts_in_order(self) -> bool:
        """It makes a task when others run."""
        return any(task.depends_on is not None for task in self.spec.tasks)

    def _task(self, index: int, task: _Task) -> PodSet:
        name = task.name or f"default{index}"
        stem = f"{self.name}-{name}"
        return PodSet(
            ("spec", "tasks", index, "template"),
            task.template.spec,
            number(task.replicas),
            numbered(stem),
            name,
            prefix=stem,
            scheduler=self.spec.scheduler_name or _SCHEDULER,
        )


VOLCANO_JOB = Kind(
    "batch.volcano.sh",
    "Job",
    VolcanoJob,
    "jobs",
    gang="Job.batch.volcano.sh",
    ordered=OrderedStart(
        Code.GANG_WAITS_FOR_PART,
        "the pods of a task only when those of another one run",
        "no dependsOn",
    ),
)
