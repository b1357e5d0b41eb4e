"""PyTorchJob and TFJob, and the fields that all jobs of Kubeflow share.

Source: kubeflow/training-operator `pkg/apis/kubeflow.org/v1` and `pkg/controller.v1` at v1.5.
"""

from collections.abc import Mapping
from dataclasses import replace

from msgspec import field

from linkwise.cluster.objects.kube_object import KubeObject
from linkwise.workloads import operator_keys
from linkwise.workloads.kind import Index, Kind, Workload
from linkwise.workloads.kinds.stamps import numbered
from linkwise.workloads.pod_set import Path, PodSet, Template, number


class Replicas(KubeObject, frozen=True):
    """The pods of one role."""

    replicas: int | None = None
    template: Template = Template()


class RunPolicy(KubeObject, frozen=True):
    """The part of the run policy that is read."""

    suspend: bool | None = None


def is_suspended(policy: RunPolicy | None) -> bool:
    """Return whether a run policy suspends its job."""
    return policy is not None and bool(policy.suspend)


def written_role(roles: Mapping[str, Replicas], role: str) -> str | None:
    """Return a role as it is written, or None.

    Training-operator accepts any case, as in `worker` for `Worker`.
    """
    return (
        role if role in roles else next((key for key in roles if key.lower() == role.lower()), None)
    )


def role_pods(job: str, written: str, pods: Replicas, labels: dict[str, str], path: Path) -> PodSet:
    """Return the pods of one role.

    Args:
        job: Name of the job.
        written: The role as it is written.
        pods: The role's pods.
        labels: Of each pod, beside its index.
        path: Of the roles.
    """
    role = written.lower()
    stem = f"{job}-{role}"
    return PodSet(
        (*path, written, "template"),
        pods.template.spec,
        number(pods.replicas),
        numbered(stem, labels, operator_keys.REPLICA_INDEX),
        role,
        prefix=stem,
    )


class _ElasticPolicy(KubeObject, frozen=True):
    min_replicas: int | None = None
    """The operator sets it to the number of workers where it is absent."""


class _PyTorchSpec(KubeObject, frozen=True):
    elastic_policy: _ElasticPolicy | None = None
    run_policy: RunPolicy | None = None
    pytorch_replica_specs: dict[str, Replicas] = field(default_factory=dict)


class PyTorchJob(Workload, frozen=True):
    """A PyTorchJob."""

    spec: _PyTorchSpec = _PyTorchSpec()

    @property
    def required(self) -> tuple[Path, ...]:
        """At least one of the roles."""
        roles = ("spec", "pytorchReplicaSpecs")
        specs = self.spec.pytorch_replica_specs
        has_role = any(written_role(specs, role) for role in ("Master", "Worker"))
        return (roles if has_role else (*roles, "Worker"),)

    def pod_sets(self) -> tuple[PodSet, ...]:
        """Return the master and the workers."""
        labels = {
            operator_keys.OPERATOR_NAME: "pytorchjob-controller",
            operator_keys.JOB_NAME: self.name,
        }
        own = {
            "Master": {operator_keys.REPLICA_TYPE: "master", operator_keys.JOB_ROLE: "master"},
            "Worker": {operator_keys.REPLICA_TYPE: "worker"},
        }
        path = ("spec", "pytorchReplicaSpecs")
        policy = self.spec.elastic_policy
        least = {"Worker": policy.min_replicas} if policy else {}
        specs = self.spec.pytorch_replica_specs
        roles = ((role, written) for role in own if (written := written_role(specs, role)))
        return tuple(
            replace(
                role_pods(self.name, written, specs[written], labels | own[role], path),
                least=least.get(role),
                starts_with=least.get(role),
            )
            for role, written in roles
        )

    @property
    def is_suspended(self) -> bool:
        """Its run policy says so."""
        return is_suspended(self.spec.run_policy)


class _TFSpec(KubeObject, frozen=True):
    run_policy: RunPolicy | None = None
    tf_replica_specs: dict[str, Replicas] = field(default_factory=dict)


class TFJob(Workload, frozen=True):
    """A TFJob."""

    spec: _TFSpec = _TFSpec()

    @property
    def required(self) -> tuple[Path, ...]:
        """Its roles."""
        return (("spec", "tfReplicaSpecs"),)

    def pod_sets(self) -> tuple[PodSet, ...]:
        """Return the pods of each role."""
        labels = {
            operator_keys.OPERATOR_NAME: "tfjob-controller",
            operator_keys.JOB_NAME: self.name,
        }
        path = ("spec", "tfReplicaSpecs")
        return tuple(
            role_pods(
                self.name, role, pods, labels | {operator_keys.REPLICA_TYPE: role.lower()}, path
            )
            for role, pods in self.spec.tf_replica_specs.items()
        )

    @property
    def is_suspended(self) -> bool:
        """Its run policy says so."""
        return is_suspended(self.spec.run_policy)


_INDICES = (Index(operator_keys.REPLICA_INDEX),)

PYTORCH_JOB = Kind(
    "kubeflow.org",
    "PyTorchJob",
    PyTorchJob,
    "pytorchjobs",
    gang="PyTorchJob",
    indices=_INDICES,
    may_shrink=True,
)
TF_JOB = Kind("kubeflow.org", "TFJob", TFJob, "tfjobs", gang="TFJob", indices=_INDICES)
