"""The part of a gang's owner that declares its pods, and says whether it has ended.

The fields of all kinds are in one type; their names do not conflict.
"""

from collections.abc import Iterator

from msgspec import Struct

from cluster.pod import PodSpec

_LAUNCHER = "Launcher"


class _Template(Struct, frozen=True):
    spec: PodSpec = PodSpec()


class Replicas(Struct, frozen=True):
    """The pods of one template."""

    replicas: int | None = None
    template: _Template = _Template()


class JobSpec(Struct, frozen=True):
    """The spec of a Job in a JobSet."""

    parallelism: int | None = None
    completions: int | None = None
    template: _Template = _Template()


class _JobTemplate(Struct, frozen=True):
    spec: JobSpec = JobSpec()


class _StartupPolicy(Struct, frozen=True, rename="camel"):
    startup_policy_order: str = ""


class Group(Struct, frozen=True, rename="camel"):
    """The template of a LeaderWorkerSet's groups."""

    size: int | None = None
    leader_template: _Template | None = None
    worker_template: _Template = _Template()


class _ReplicatedJob(Struct, frozen=True, rename="camel"):
    replicas: int | None = None
    template: _JobTemplate = _JobTemplate()
    depends_on: list[object] = []
    """Only the presence is read."""


class RayGroup(Struct, frozen=True, rename="camel"):
    """Head or workers of a RayCluster."""

    replicas: int | None = None
    min_replicas: int | None = None
    num_of_hosts: int | None = None
    suspend: bool | None = None
    template: _Template = _Template()


class Task(Replicas, frozen=True, rename="camel"):
    """One task of a Volcano Job."""

    name: str = ""
    depends_on: dict[str, object] | None = None
    """Only the presence is read."""


class _RunPolicy(Struct, frozen=True):
    suspend: bool | None = None


class Spec(Struct, frozen=True, rename="camel"):
    """The fields of all kinds together; their names do not conflict."""

    suspend: bool | None = None
    run_policy: _RunPolicy | None = None

    mpi_replica_specs: dict[str, Replicas] = {}
    launcher_creation_policy: str = ""
    pytorch_replica_specs: dict[str, Replicas] = {}
    tf_replica_specs: dict[str, Replicas] = {}
    head_group_spec: RayGroup | None = None
    worker_group_specs: list[RayGroup] = []
    tasks: list[Task] = []
    min_available: int | None = None
    """Of a Volcano Job: pods that start together, those without GPUs included."""
    replicated_jobs: list[_ReplicatedJob] = []
    parallelism: int | None = None
    completions: int | None = None
    replicas: int | None = None
    pod_management_policy: str = ""
    startup_policy: str | _StartupPolicy = ""
    """Of a LeaderWorkerSet a text, of a JobSet the order of its Jobs."""
    leader_worker_template: Group | None = None
    template: _Template | None = None

    @property
    def roles(self) -> dict[str, Replicas]:
        """The roles of a job of Kubeflow whose pods are made at once, by name."""
        late = {_LAUNCHER} if self.late_launcher else set()
        specs = self.mpi_replica_specs | self.pytorch_replica_specs | self.tf_replica_specs
        return {role: replicas for role, replicas in specs.items() if role not in late}

    @property
    def late_launcher(self) -> Replicas | None:
        """The launcher of an MPIJob that is made once all workers are ready; None: there is none.

        Its workers are placed before it exists.
        """
        waits = self.launcher_creation_policy == "WaitForWorkersReady"
        return self.mpi_replica_specs.get(_LAUNCHER) if waits else None


class _Metadata(Struct, frozen=True):
    uid: str = ""


class _Condition(Struct, frozen=True):
    type: str = ""
    status: str = ""


class _VolcanoState(Struct, frozen=True):
    phase: str = ""


class OwnerStatus(Struct, frozen=True, rename="camel"):
    """How far an owner is."""

    conditions: list[_Condition] | None = None
    launcher_status: str = ""
    """Of an MPIJob v1alpha1, which has no conditions."""
    state: _VolcanoState | str = ""
    """Of a Volcano Job an object, of a RayCluster a text."""

    @property
    def reached(self) -> Iterator[str]:
        """The conditions that hold, and the states; empty where there is none."""
        yield from (one.type for one in self.conditions or () if one.status == "True")
        yield self.launcher_status
        if isinstance(self.state, _VolcanoState):
            yield self.state.phase


class Declaration(Struct, frozen=True):
    """The part of an owner that declares its pods."""

    metadata: _Metadata = _Metadata()
    spec: Spec = Spec()
    status: OwnerStatus = OwnerStatus()
