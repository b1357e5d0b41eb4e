"""TrainJob of Kubeflow Trainer 2, which makes a JobSet of its name from a runtime.

The runtime is another object, so its pod templates are known only where that object is.

Source: kubeflow/trainer `pkg/apis/trainer/v1alpha1` and `pkg/runtime` at v2.2.
"""

from dataclasses import replace

from msgspec import field, structs

from linkwise.cluster.objects.container import Container as PodContainer
from linkwise.cluster.objects.container import Resources
from linkwise.cluster.objects.kube_object import KubeObject
from linkwise.cluster.objects.pod import PodSpec
from linkwise.workloads.kind import Base, Kind, Workload
from linkwise.workloads.kinds.job_set import (
    JOB_SET,
    JobSet,
    JobSetSpec,
    JobTemplate,
    ReplicatedJob,
    job_stamp,
)
from linkwise.workloads.operator_keys import TRAIN_JOB_STEP
from linkwise.workloads.pod_set import Container, Made, PodSet, Template, number

_GROUP = "trainer.kubeflow.org"
_TRAINER = "trainer"
_NODE, _LAUNCHER = "node", "launcher"
"""Names of containers, and of Jobs of a runtime for MPI."""


class _RuntimeRef(KubeObject, frozen=True):
    name: str = ""
    kind: str = "ClusterTrainingRuntime"
    api_group: str = _GROUP


class _Trainer(KubeObject, frozen=True):
    num_nodes: int | None = None
    resources_per_node: Resources | None = None


class _Spec(KubeObject, frozen=True):
    suspend: bool | None = None
    runtime_ref: _RuntimeRef = _RuntimeRef()
    trainer: _Trainer = _Trainer()
    runtime_patches: list[object] = field(default_factory=list)
    """Only the presence is read, and that of the next one, which versions before 2.2 had."""
    pod_template_overrides: list[object] = field(default_factory=list)


class TrainJob(Workload, frozen=True):
    """A TrainJob whose runtime is not known."""

    spec: _Spec = _Spec()

    @property
    def required(self) -> tuple[tuple[str, ...], ...]:
        """The runtime."""
        return (("spec", "runtimeRef", "name"),)

    @property
    def base(self) -> Base:
        """The runtime."""
        ref = self.spec.runtime_ref
        return Base(ref.api_group, ref.kind, ref.name, ref.kind == "TrainingRuntime")

    def on(self, base: Workload, merges: bool | None = None, /) -> Workload:
        """Return the TrainJob with its runtime.

        Args:
            base: The runtime.
            merges: Trainer merges the resources of both; None: its version is not known.
        """
        if not isinstance(base, Runtime):
            return self
        metadata, spec = self.metadata, self.spec
        if merges is None and spec.pod_template_overrides:
            # Version 2.2 has another field instead.
            merges = False
        return _OnRuntime(
            metadata=metadata, status=self.status, spec=spec, runtime=base, merges=merges
        )

    def pod_sets(self) -> tuple[PodSet, ...]:
        """Return the nodes, as far as the TrainJob itself says what they are."""
        trainer, ref = self.spec.trainer, self.spec.runtime_ref
        resources, nodes = trainer.resources_per_node, number(trainer.num_nodes)
        container = {"name": _NODE, **self._resources}
        unknown = (
            "" if trainer.num_nodes is not None else "number, ",
            "" if resources else "GPUs, ",
            "labels and other containers",
        )
        pods = PodSet(
            ("spec", "trainer"),
            PodSpec(containers=[PodContainer(name=_NODE, resources=resources)]),
            nodes,
            job_stamp(self.name, _NODE, 0, max(nodes, 1)),
            _NODE,
            made=self._made(_NODE),
            note=f"{ref.kind} {ref.name} is not in the files, so {''.join(unknown)} of these pods "
            "are unknown",
            made_template={"spec": {"containers": [container]}},
        )
        return (pods,)

    @property
    def is_suspended(self) -> bool:
        """Its JobSet is suspended."""
        return bool(self.spec.suspend)

    @property
    def _resources(self) -> Container:
        """The field with the resources of each node; empty where the runtime has them."""
        asks = self.spec.trainer.resources_per_node
        if asks is None:
            return {}
        parts = {"limits": asks.limits, "requests": asks.requests}
        return {"resources": {key: amounts for key, amounts in parts.items() if amounts}}

    def _made(self, job: str) -> tuple[Made, ...]:
        job_set = Made("JobSet", "jobset.x-k8s.io/v1alpha2", self.name)
        return Made("Job", "batch/v1", f"{self.name}-{job}"), job_set


class _MPI(KubeObject, frozen=True):
    run_launcher_as_node: bool | None = None


class _Policy(KubeObject, frozen=True):
    num_nodes: int | None = None
    mpi: _MPI | None = None


class _JobSetTemplate(KubeObject, frozen=True):
    spec: JobSetSpec = JobSetSpec()


class _RuntimeSpec(KubeObject, frozen=True):
    ml_policy: _Policy = _Policy()
    template: _JobSetTemplate = _JobSetTemplate()


class Runtime(Workload, frozen=True):
    """A TrainingRuntime or a ClusterTrainingRuntime; it makes no pods."""

    spec: _RuntimeSpec = _RuntimeSpec()


class _OnRuntime(TrainJob, frozen=True, kw_only=True):
    """A TrainJob with its runtime."""

    runtime: Runtime
    merges: bool | None = None
    """Trainer merges the resources of both; None: it is not known, so the newest version counts."""

    def pod_sets(self) -> tuple[PodSet, ...]:
        """Return the pods of the JobSet."""
        is_patched = self.spec.runtime_patches or self.spec.pod_template_overrides
        note = f"patches of TrainJob {self.name} may change these pods; they are not applied here"
        before = self._before_merging
        return tuple(
            replace(
                pods,
                note=before.get(pods.role) or (note if is_patched else None),
                path=("spec", "template", *pods.path),
                is_of_base=True,
                made=self._made(pods.role or ""),
                change=self._changed,
            )
            for pods in self._job_set.pod_sets()
        )

    @property
    def starts_in_order(self) -> bool:
        """Its JobSet makes a Job only when others are ready."""
        return self._job_set.starts_in_order

    @property
    def _job_set(self) -> JobSet:
        spec = self.runtime.spec.template.spec
        jobs = [self._job(job) for job in spec.replicated_jobs]
        return JobSet(metadata=self.metadata, spec=structs.replace(spec, replicated_jobs=jobs))

    def _job(self, job: ReplicatedJob) -> ReplicatedJob:
        """Return a Job of the runtime as it is in the JobSet."""
        resources, nodes = self.spec.trainer.resources_per_node, self._nodes(job)
        inner = job.template.spec
        containers = [
            structs.replace(one, resources=self._with_own(one.resources, resources))
            if resources and self._is_of_trainer(one.name)
            else one
            for one in inner.pod_spec.containers
        ]
        pod = Template(spec=structs.replace(inner.pod_spec, containers=containers))
        inner = structs.replace(inner, template=pod)
        if nodes is None:
            template = structs.replace(job.template, spec=inner)
            return structs.replace(job, template=template)
        inner = structs.replace(inner, parallelism=nodes, completions=nodes)
        return structs.replace(job, replicas=1, template=JobTemplate(spec=inner))

    def _changed(self, containers: list[Container]) -> list[Container]:
        """Return the containers of a pod, those of the trainer with its resources."""
        return [
            self._changed_container(one) if self._is_of_trainer(str(one.get("name"))) else one
            for one in containers
        ]

    def _changed_container(self, container: Container) -> Container:
        own, before = self._resources.get("resources"), container.get("resources")
        if self.merges is False or not (isinstance(own, dict) and isinstance(before, dict)):
            return {**container, **self._resources}
        parts = {
            part: {**(before.get(part) or {}), **(own.get(part) or {})}
            for part in ("limits", "requests")
        }
        merged = {part: amounts for part, amounts in parts.items() if amounts}
        return {**container, "resources": {**before, **merged}}

    def _with_own(self, before: Resources | None, own: Resources) -> Resources:
        """Return the resources of a container of the trainer."""
        if before is None or self.merges is False:
            return own
        return structs.replace(
            own,
            limits={**(before.limits or {}), **(own.limits or {})} or None,
            requests={**(before.requests or {}), **(own.requests or {})} or None,
        )

    @property
    def _before_merging(self) -> dict[str | None, str]:
        """A note for each Job of which an earlier version of Trainer makes other pods."""
        own = self.spec.trainer.resources_per_node
        if own is None or self.merges is not None:
            return {}
        notes: dict[str | None, str] = {}
        ref = self.spec.runtime_ref.kind
        for job in self.runtime.spec.template.spec.replicated_jobs:
            for one in job.template.spec.pod_spec.containers:
                before = one.resources
                if before is None or not self._is_of_trainer(one.name):
                    continue
                names = {*(before.limits or {}), *(before.requests or {})}
                names -= {*(own.limits or {}), *(own.requests or {})}
                if names:
                    notes[job.name] = (
                        f"{', '.join(sorted(names))} of these pods come from "
                        f"{ref} {self.runtime.name}: Kubeflow Trainer before 2.3 replaces them by "
                        "resourcesPerNode, so that the pods lack them"
                    )
        return notes

    def _nodes(self, job: ReplicatedJob) -> int | None:
        """Return how many pods of a Job are nodes; None where the runtime has their number."""
        policy = self.runtime.spec.ml_policy
        written = self.spec.trainer.num_nodes
        nodes = number(policy.num_nodes if written is None else written)
        step = (job.template.metadata.labels or {}).get(TRAIN_JOB_STEP)
        if policy.mpi is None:
            return nodes if step == _TRAINER else None
        if job.name == _NODE:
            return max(nodes - 1, 1) if policy.mpi.run_launcher_as_node else nodes
        return 1 if step == _TRAINER else None

    def _is_of_trainer(self, container: str) -> bool:
        """Return whether a container has the resources of the trainer."""
        mpi = self.runtime.spec.ml_policy.mpi
        works = mpi is not None and bool(mpi.run_launcher_as_node)
        return container == _NODE or (container == _LAUNCHER and works)


TRAIN_JOB = (
    Kind(_GROUP, "TrainJob", TrainJob, ordered=JOB_SET.ordered),
    Kind(_GROUP, "TrainingRuntime", Runtime, sized=False, is_base=True),
    Kind(_GROUP, "ClusterTrainingRuntime", Runtime, sized=False, is_base=True),
)
