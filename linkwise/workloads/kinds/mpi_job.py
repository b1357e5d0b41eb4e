"""MPIJob, of three operators.

Sources: training-operator v1.5 `pkg/controller.v1` (v1); kubeflow/mpi-operator `pkg/controller` at
v0.6 (v2beta1) and at v0.2.3 (v1alpha1, which arena submits).
"""

from dataclasses import replace

from msgspec import field

from linkwise.cluster import container_variables
from linkwise.cluster.objects.kube_object import KubeObject
from linkwise.cluster.objects.pod import Pod, PodSpec
from linkwise.workloads import operator_keys
from linkwise.workloads.kind import Index, Kind, Through, Workload
from linkwise.workloads.kinds.kubeflow import Replicas, RunPolicy, is_suspended, written_role
from linkwise.workloads.kinds.stamps import batch_labels, numbered, ordinal, single
from linkwise.workloads.pod_set import Container, Made, Path, PodSet, Template, number
from linkwise.workloads.state import Status

_ROLES: Path = ("spec", "mpiReplicaSpecs")
_LAUNCHER, _WORKER = "Launcher", "Worker"
ROLE_LABELS = (operator_keys.REPLICA_TYPE, operator_keys.JOB_ROLE, operator_keys.MPI_ROLE_TYPE)
"""The label with the role of a pod, of each operator."""


class _Spec(KubeObject, frozen=True):
    run_policy: RunPolicy | None = None
    mpi_replica_specs: dict[str, Replicas] = field(default_factory=dict)
    launcher_creation_policy: str = ""
    run_launcher_as_worker: bool | None = None
    replicas: int | None = None
    """This and the next one: of v1alpha1."""
    template: Template = Template()


class _Status(Status, frozen=True):
    launcher_status: str = ""
    """Of v1alpha1, which has no conditions."""

    @property
    def reached(self) -> list[str]:
        """The conditions that hold, and the state of the launcher."""
        return [*super().reached, self.launcher_status]


class MPIJob(Workload, frozen=True):
    """An MPIJob."""

    spec: _Spec = _Spec()
    status: _Status = _Status()

    @property
    def required(self) -> tuple[Path, ...]:
        """The number of workers, where it has no default."""
        return (("spec", "replicas"),) if self._version == "v1alpha1" else ()

    def pod_sets(self) -> tuple[PodSet, ...]:
        """Return the launcher and the workers."""
        match self._version:
            case "v1alpha1":
                return self._launcher_v1alpha1(), self._workers_v1alpha1()
            case "v1":
                labels = {
                    operator_keys.OPERATOR_NAME: "mpijob-controller",
                    operator_keys.JOB_NAME: self.name,
                }
                launcher = self._launcher_v1(labels | {operator_keys.REPLICA_TYPE: "launcher"})
                return launcher, *self._workers(labels | {operator_keys.REPLICA_TYPE: "worker"}, 0)
            case _:
                labels = {
                    operator_keys.OPERATOR_NAME: "mpi-operator",
                    operator_keys.JOB_NAME: self.name,
                }
                shift = int(bool(self.spec.run_launcher_as_worker))
                workers = self._workers(labels | {operator_keys.JOB_ROLE: "worker"}, shift)
                return self._launcher_v2(labels | {operator_keys.JOB_ROLE: "launcher"}), *workers

    @property
    def is_suspended(self) -> bool:
        """Its run policy says so, or it has no replicas."""
        return is_suspended(self.spec.run_policy) or self.spec.replicas == 0

    def _role(self, role: str) -> str:
        """Return a role as it is written; mpi-operator knows no other case."""
        specs = self.spec.mpi_replica_specs
        return (written_role(specs, role) if self._version == "v1" else None) or role

    @property
    def _version(self) -> str:
        return self.api_version.rpartition("/")[2]

    def _launcher_v1(self, labels: dict[str, str]) -> PodSet:
        """Return the launcher of training-operator: a bare pod."""
        role = self._role(_LAUNCHER)
        spec = self.spec.mpi_replica_specs.get(role, Replicas()).template.spec
        shows = any(
            name.endswith(".com/gpu") for container in spec.containers for name in container.limits
        )
        change = None if shows else _hide_gpus
        name = f"{self.name}-launcher"
        path = (*_ROLES, role, "template")
        return PodSet(path, spec, 1, single(name, labels), "launcher", change=change)

    def _launcher_v2(self, labels: dict[str, str]) -> PodSet:
        """Return the launcher of mpi-operator: the pod of a Job."""
        works = bool(self.spec.run_launcher_as_worker)
        labels |= {operator_keys.REPLICA_INDEX: "0"} if works else {}
        launcher = self._launcher_v1(labels)
        return replace(
            self._of_batch_job(launcher, labels),
            change=None if works else _hide_gpus,
            is_late=self.spec.launcher_creation_policy == "WaitForWorkersReady",
        )

    def _launcher_v1alpha1(self) -> PodSet:
        """Return the launcher of arena's operator: the pod of a Job, without the resources."""
        labels = {
            operator_keys.MPI_GROUP_NAME: "kubeflow.org",
            operator_keys.MPI_JOB_NAME: self.name,
            operator_keys.MPI_ROLE_TYPE: "launcher",
        }
        path, stamp = ("spec", "template"), single(f"{self.name}-launcher", labels)
        launcher = PodSet(path, PodSpec(), 1, stamp, "launcher", change=_clear_resources)
        return self._of_batch_job(launcher, labels)

    def _of_batch_job(self, launcher: PodSet, labels: dict[str, str]) -> PodSet:
        """Return a launcher that a Job of its name creates, with the labels of that Job's pods."""
        name = f"{self.name}-launcher"
        stamp = single(name, {**labels, **batch_labels(name)})
        return replace(launcher, stamp=stamp, made=(Made("Job", "batch/v1", name),))

    def _workers(self, labels: dict[str, str], shift: int) -> tuple[PodSet, ...]:
        """Return the workers: bare pods whose index starts with a shift."""
        role = self._role(_WORKER)
        written = self.spec.mpi_replica_specs.get(role)
        if written is None:
            return ()
        stem = f"{self.name}-worker"
        workers = PodSet(
            (*_ROLES, role, "template"),
            written.template.spec,
            number(written.replicas, 0),
            numbered(stem, labels, operator_keys.REPLICA_INDEX, shift),
            "worker",
            prefix=stem,
        )
        return (workers,)

    def _workers_v1alpha1(self) -> PodSet:
        """Return the workers of arena's operator: the pods of a StatefulSet."""
        stem = f"{self.name}-worker"
        labels = {
            operator_keys.MPI_GROUP_NAME: "kubeflow.org",
            operator_keys.MPI_JOB_NAME: self.name,
            operator_keys.MPI_ROLE_TYPE: "worker",
        }
        return PodSet(
            ("spec", "template"),
            self.spec.template.spec,
            number(self.spec.replicas),
            ordinal(stem, labels),
            "worker",
            prefix=stem,
            made=(Made("StatefulSet", "apps/v1", stem),),
        )


def _clear_resources(containers: list[Container]) -> list[Container]:
    """Return the containers, the first one without resources."""
    first, *others = containers
    return [{key: value for key, value in first.items() if key != "resources"}, *others]


def _hide_gpus(containers: list[Container]) -> list[Container]:
    """Return the containers, the first one with variables that hide the GPUs."""
    first, *others = containers
    env = first.get("env", [])
    names = (container_variables.ENV_VISIBLE_DEVICES, container_variables.ENV_DRIVER_CAPABILITIES)
    hidden = [{"name": name, "value": ""} for name in names]
    return [{**first, "env": [*env, *hidden] if isinstance(env, list) else env}, *others]


def is_launcher(pod: Pod) -> bool:
    """Return whether a pod is the launcher of an MPI job."""
    return any(pod.labels.get(role, "").lower() == "launcher" for role in ROLE_LABELS)


MPI_JOB = Kind(
    "kubeflow.org",
    "MPIJob",
    MPIJob,
    "mpijobs",
    versions=("v1", "v2beta1", "v1alpha1"),
    gang="MPIJob",
    through=(
        # A launcher that is a worker, too, of v2beta1; the workers of v1alpha1.
        Through("batch", "Job", operator_keys.JOB_NAME),
        Through("apps", "StatefulSet", operator_keys.MPI_JOB_NAME),
    ),
    indices=(Index(operator_keys.REPLICA_INDEX),),
)
