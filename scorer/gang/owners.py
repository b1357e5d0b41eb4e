"""Read how many pods with GPUs the owner of a gang declares, or its PodGroup requires.

The labels of pods do not say it, or state too large a number.

Sources: kubeflow/training-operator `pkg/apis/kubeflow.org/v1`, kubeflow/mpi-operator
`pkg/apis/kubeflow/v2beta1`, kubernetes/api `batch/v1` and `apps/v1`, kubernetes-sigs/jobset
`api/jobset/v1alpha2`, kubernetes-sigs/lws `api/leaderworkerset/v1`, ray-project/kuberay
`apis/ray/v1`, volcano-sh/apis `batch/v1alpha1`; for PodGroups
kubernetes-sigs/scheduler-plugins `apis/scheduling/v1alpha1`, kubernetes/api `scheduling/v1beta1`.
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from enum import Enum
from typing import NamedTuple

from msgspec import Struct

from cluster.demand import Demand, demand_of
from cluster.keys import (
    NATIVE_GROUP_API,
    NATIVE_GROUP_API_BEFORE,
    POD_GROUP,
    POD_GROUP_API,
)
from cluster.pod import Owner, Pod, PodSpec
from cluster.request import read_request
from scorer.gang.declaration import (
    Declaration,
    Group,
    JobSpec,
    OwnerStatus,
    RayGroup,
    Replicas,
    Spec,
)

_PLURALS = {
    "MPIJob": "mpijobs",
    "PyTorchJob": "pytorchjobs",
    "TFJob": "tfjobs",
    "Job": "jobs",
    "JobSet": "jobsets",
    "StatefulSet": "statefulsets",
    "LeaderWorkerSet": "leaderworkersets",
    "RayCluster": "rayclusters",
}
"""The kinds of owners that declare a number of pods; Volcano has a kind Job, too."""
LEADER_WORKER_SET = "LeaderWorkerSet"
"""The kind whose pods are several gangs, one for each group."""
ORDERED_STARTUP = {
    "StatefulSet": "makes each pod only when the one before it is ready, which a gang never is: "
    "create it again with podManagementPolicy: Parallel",
    "JobSet": "makes the pods of each Job only when those before are ready, which a gang never is: "
    "create it again without startupPolicyOrder: InOrder and dependsOn",
    "Job": "makes the pods of a task only when those of another one run, which a gang never does: "
    "create it again without dependsOn",
    LEADER_WORKER_SET: "makes the workers of a group only when its leader is ready, which a gang"
    " never is: create it again with startupPolicy: LeaderCreated",
}
"""By kind: why missing members are never created, and what to do."""
_PART = re.compile(r"[a-z0-9][-.a-z0-9]*")
"""A valid part of a path: users can write any text into ownerReferences."""


class LateLauncher(NamedTuple):
    """A launcher that is made once all workers of its MPIJob are ready.

    It asks for GPUs as a worker does, of which it needs no more than one of them.
    """

    job: str
    """Name of the batch Job that makes its pod."""
    gpus: int
    demand: Demand


@dataclass(frozen=True, slots=True)
class ExpectedPods:
    """The pods with GPUs that an owner makes, where their names are known."""

    parts: tuple[tuple[str, int], ...] = ()
    """Prefixes of its pods' names, before `-0` and the following numbers, and their number."""
    ordered: bool = False
    """It makes each pod only when the one before it is ready. Its kind is in `ORDERED_STARTUP`."""
    late_launcher: LateLauncher | None = None
    """It makes this pod last; the GPUs are planned with those of the others."""


class OwnerState(Enum):
    """Whether an owner makes pods."""

    ACTIVE = "active"
    SUSPENDED = "suspended"
    """It makes none for now."""
    SUCCEEDED = "succeeded"
    FAILED = "failed"

    @property
    def is_final(self) -> bool:
        """It never makes pods again."""
        return self in {OwnerState.SUCCEEDED, OwnerState.FAILED}


_OUTCOMES = {
    "Succeeded": OwnerState.SUCCEEDED,
    "Complete": OwnerState.SUCCEEDED,
    "Completed": OwnerState.SUCCEEDED,
    "Failed": OwnerState.FAILED,
}
"""By text in the status: `Complete` of a batch Job, `Completed` of a JobSet or a Volcano Job; the
others are Kubeflow's, and `Failed` is of all."""


class _Gang(Struct, frozen=True, rename="camel"):
    min_count: int | None = None


class _Policy(Struct, frozen=True):
    gang: _Gang = _Gang()


class _GroupMetadata(Struct, frozen=True, rename="camel"):
    deletion_timestamp: str | None = None


class _GroupSpec(Struct, frozen=True, rename="camel"):
    """The spec of scheduler-plugins' PodGroup, and of Kubernetes' own."""

    min_member: int | None = None
    scheduling_policy: _Policy = _Policy()


class PodGroup(Struct, frozen=True):
    """The part of a PodGroup that says how many pods are placed together."""

    metadata: _GroupMetadata = _GroupMetadata()
    spec: _GroupSpec = _GroupSpec()

    @property
    def is_deleting(self) -> bool:
        """It is being deleted."""
        return self.metadata.deletion_timestamp is not None

    @property
    def members(self) -> int | None:
        """Number of members that it requires; None where it states none."""
        count = self.spec.min_member or self.spec.scheduling_policy.gang.min_count
        return count if count and count > 0 else None


def group_paths(pod: Pod, namespace: str) -> tuple[str, ...]:
    """Return the possible paths of the PodGroup that a pod names; empty where it names none."""
    native = pod.spec.scheduling_group.pod_group_name if pod.spec.scheduling_group else ""
    name = native or pod.labels.get(POD_GROUP, "")
    if not _PART.fullmatch(name):
        return ()
    served = (NATIVE_GROUP_API, NATIVE_GROUP_API_BEFORE) if native else (POD_GROUP_API,)
    return tuple(f"/apis/{api}/namespaces/{namespace}/podgroups/{name}" for api in served)


def path_of(owner: Owner, namespace: str) -> str | None:
    """Return the path of an owner; None where its kind declares no number of pods."""
    plural = _PLURALS.get(owner.kind)
    group, _, version = owner.api_version.partition("/")
    if plural is None or not all(map(_PART.fullmatch, (group, version, owner.name))):
        return None
    return f"/apis/{group}/{version}/namespaces/{namespace}/{plural}/{owner.name}"


def members_of(declaration: Declaration, uid: str) -> int:
    """Return how many pods with GPUs that Linkwise chooses an owner declares.

    For a LeaderWorkerSet it is the number of one group. It is 0 where the object is not the owner,
    but another one of its name.
    """
    if declaration.metadata.uid != uid:
        return 0
    declared = sum(count for count, pod in _pods(declaration.spec) if _places(pod))
    declared += _late_launcher(declaration.spec) is not None
    least = declaration.spec.min_available
    return declared if least is None or least < 1 else min(declared, least)


def owner_state(declaration: Declaration, uid: str) -> OwnerState:
    """Return whether an owner makes pods; active where the object is another one of its name."""
    if declaration.metadata.uid != uid:
        return OwnerState.ACTIVE
    spec = declaration.spec
    suspended = spec.suspend or (spec.run_policy is not None and spec.run_policy.suspend)
    return state_by(declaration.status, suspended=bool(suspended) or spec.replicas == 0)


def state_by(status: OwnerStatus, *, suspended: bool) -> OwnerState:
    """Return whether an owner makes pods, by its status, and by its spec: is it suspended?"""
    for reached in status.reached:
        if outcome := _OUTCOMES.get(reached):
            return outcome
    return OwnerState.SUSPENDED if suspended else OwnerState.ACTIVE


def expected_pods(declaration: Declaration, owner: Owner) -> ExpectedPods:
    """Return the pods that an owner makes; none where their names have random suffixes."""
    spec = declaration.spec
    if owner.kind in {"JobSet", LEADER_WORKER_SET}:
        return ExpectedPods(ordered=_is_ordered(spec))
    if owner.kind == "StatefulSet" and spec.template and _places(spec.template.spec):
        ordered = spec.pod_management_policy != "Parallel"
        return ExpectedPods(((owner.name, _count(spec.replicas)),), ordered=ordered)
    late = _late_launcher(spec)
    parts: list[tuple[str, Replicas]] = [(role.lower(), each) for role, each in spec.roles.items()]
    parts += ((task.name, task) for task in spec.tasks)
    return ExpectedPods(
        tuple(
            (f"{owner.name}-{name}", _count(part.replicas))
            for name, part in parts
            if _places(part.template.spec)
        ),
        # Owners of other kinds may have fields of these, too: not every CRD prunes unknown ones.
        ordered=owner.kind in ORDERED_STARTUP and _is_ordered(spec),
        late_launcher=LateLauncher(f"{owner.name}-launcher", *late) if late else None,
    )


def _late_launcher(spec: Spec) -> tuple[int, Demand] | None:
    """Return GPUs and demand of a late launcher that asks for GPUs as a worker does; else None.

    GPUs are reserved for it before it exists, so they are no more than a worker has.
    """
    launcher, worker = spec.late_launcher, spec.mpi_replica_specs.get("Worker")
    if launcher is None or worker is None:
        return None
    pod = Pod(spec=launcher.template.spec)
    asks, of_worker = (read_request(each)[0] for each in (pod, Pod(spec=worker.template.spec)))
    is_counted = asks.family is not None and asks.is_part_of(of_worker)
    return (asks.gpus, demand_of(pod)) if is_counted else None


def _is_ordered(spec: Spec) -> bool:
    """Return whether some pods with GPUs are made only when others with GPUs are ready."""
    if spec.leader_worker_template is not None:
        leader, workers = _group(spec.leader_worker_template)
        is_ordered = spec.startup_policy == "LeaderReady"
        return is_ordered and _places(leader[1]) and bool(workers[0]) and _places(workers[1])
    policy = spec.startup_policy
    in_order = not isinstance(policy, str) and policy.startup_policy_order == "InOrder"
    depends = any(job.depends_on for job in spec.replicated_jobs) or any(
        task.depends_on is not None for task in spec.tasks
    )
    parts = sum(count > 0 and _places(pod) for count, pod in _pods(spec))
    return (in_order or depends) and parts > 1


def _group(group: Group) -> tuple[tuple[int, PodSpec], tuple[int, PodSpec]]:
    """Return the number of leaders and of workers of one group, and their specs."""
    leader = group.leader_template or group.worker_template
    workers = max(_count(group.size) - 1, 0)
    return (1, leader.spec), (workers, group.worker_template.spec)


def _pods(spec: Spec) -> Iterator[tuple[int, PodSpec]]:
    """Yield the number of pods of each template, and its spec; 1 where no number is written."""
    parts: tuple[Replicas, ...] = (*spec.roles.values(), *spec.tasks)
    for part in parts:
        yield _count(part.replicas), part.template.spec
    if spec.head_group_spec is not None:
        yield 1, spec.head_group_spec.template.spec
    for workers in spec.worker_group_specs:
        yield _ray_workers(workers), workers.template.spec
    if spec.leader_worker_template is not None:
        yield from _group(spec.leader_worker_template)
        return
    for job in spec.replicated_jobs:
        inner = job.template.spec
        yield _count(job.replicas) * _parallel_pods(inner), inner.template.spec
    if spec.template is not None:
        count = _parallel_pods(spec) if spec.replicas is None else _count(spec.replicas)
        yield count, spec.template.spec


def _ray_workers(group: RayGroup) -> int:
    """Return the number of pods of a group of Ray workers."""
    if group.suspend:
        return 0
    workers = max(group.replicas or 0, group.min_replicas or 0)
    return workers * max(_count(group.num_of_hosts), 1)


def _parallel_pods(job: JobSpec | Spec) -> int:
    """Return how many pods of a Job run concurrently: at most its completions."""
    most = _count(job.parallelism)
    return most if job.completions is None else min(most, _count(job.completions))


def _count(number: int | None) -> int:
    """Return a number of pods: 1 where it is absent, 0 where it is negative."""
    return 1 if number is None else max(number, 0)


def _places(spec: PodSpec) -> bool:
    """Return whether Linkwise may choose the GPUs of pods of a template, once they are admitted."""
    request, _ = read_request(Pod(spec=spec))
    # Only admission decides about resources under NVIDIA's names.
    return request.family is not None
