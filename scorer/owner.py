"""How many pods with GPUs the owner of a gang declares: what its labels do not say, or overstate.

Sources: kubeflow/training-operator `pkg/apis/kubeflow.org/v1`, kubeflow/mpi-operator
`pkg/apis/kubeflow/v2beta1`, kubernetes/api `batch/v1` and `apps/v1`, kubernetes-sigs/jobset
`api/jobset/v1alpha2`.
"""

import re
from collections.abc import Iterator

from msgspec import Struct

from cluster.pod import Owner, Pod, PodSpec
from cluster.request import read_request

_PLURALS = {
    "MPIJob": "mpijobs",
    "PyTorchJob": "pytorchjobs",
    "Job": "jobs",
    "JobSet": "jobsets",
    "StatefulSet": "statefulsets",
}
"""The owners that tell how many pods they make."""
_PART = re.compile(r"[a-z0-9][-.a-z0-9]*")
"""What may stand between two slashes: a pod's author writes its owners at will."""


class _Template(Struct, frozen=True):
    spec: PodSpec = PodSpec()


class _Replicas(Struct, frozen=True):
    replicas: int | None = None
    template: _Template = _Template()


class _JobSpec(Struct, frozen=True):
    parallelism: int | None = None
    completions: int | None = None
    template: _Template = _Template()


class _JobTemplate(Struct, frozen=True):
    spec: _JobSpec = _JobSpec()


class _ReplicatedJob(Struct, frozen=True):
    replicas: int | None = None
    template: _JobTemplate = _JobTemplate()


class _Spec(Struct, frozen=True, rename="camel"):
    """What the kinds have, one beside the other: none has the fields of two."""

    mpi_replica_specs: dict[str, _Replicas] = {}
    pytorch_replica_specs: dict[str, _Replicas] = {}
    replicated_jobs: list[_ReplicatedJob] = []
    parallelism: int | None = None
    completions: int | None = None
    replicas: int | None = None
    template: _Template | None = None


class _Metadata(Struct, frozen=True):
    uid: str = ""


class Declaration(Struct, frozen=True):
    """An owner, as far as it says how many pods it makes."""

    metadata: _Metadata = _Metadata()
    spec: _Spec = _Spec()


def path_of(owner: Owner, namespace: str) -> str | None:
    """Return where the API server has an owner; None where its kind does not tell a size."""
    plural = _PLURALS.get(owner.kind)
    group, _, version = owner.api_version.partition("/")
    if plural is None or not all(map(_PART.fullmatch, (group, version, owner.name))):
        return None
    return f"/apis/{group}/{version}/namespaces/{namespace}/{plural}/{owner.name}"


def members_of(declaration: Declaration, uid: str) -> int:
    """Return how many pods with GPUs that Linkwise chooses an owner declares.

    0 where what was found is not the owner, but another of its name.
    """
    if declaration.metadata.uid != uid:
        return 0
    return sum(count for count, spec in _pods(declaration.spec) if _places(spec))


def _pods(spec: _Spec) -> Iterator[tuple[int, PodSpec]]:
    """Yield how many pods there are to be of each template; 1 where nothing is written."""
    for replicas in (*spec.mpi_replica_specs.values(), *spec.pytorch_replica_specs.values()):
        yield _or_one(replicas.replicas), replicas.template.spec
    for job in spec.replicated_jobs:
        inner = job.template.spec
        yield _or_one(job.replicas) * _at_once(inner), inner.template.spec
    if spec.template is not None:
        count = _at_once(spec) if spec.replicas is None else spec.replicas
        yield count, spec.template.spec


def _at_once(job: _JobSpec | _Spec) -> int:
    """Return how many pods of a Job run at once: no more than it shall complete."""
    most = _or_one(job.parallelism)
    return most if job.completions is None else min(most, job.completions)


def _or_one(count: int | None) -> int:
    return 1 if count is None else count


def _places(spec: PodSpec) -> bool:
    return read_request(Pod(spec=spec))[0].places
