"""Read batch Jobs and StatefulSets: their controllers, and whether they create pods."""

from dataclasses import dataclass

import msgspec
from msgspec import Raw, Struct

from cluster.pod import Owner
from runtime.kube.decode import decode
from scorer.gang.declaration import OwnerStatus
from scorer.gang.owners import LEADER_WORKER_SET, OwnerState, state_by
from scorer.gang.pod_info import controller_of


class _Metadata(Struct, frozen=True, rename="camel"):
    uid: str = ""
    owner_references: list[Owner] | None = None


class _Condition(Struct, frozen=True):
    type: str = ""


class _Rule(Struct, frozen=True, rename="camel"):
    action: str = ""
    on_pod_conditions: list[_Condition] | None = None


class _FailurePolicy(Struct, frozen=True):
    rules: list[_Rule] | None = None


class _Spec(Struct, frozen=True, rename="camel"):
    suspend: bool | None = None
    pod_failure_policy: _FailurePolicy = _FailurePolicy()


class _Job(Struct, frozen=True):
    metadata: _Metadata = _Metadata()
    spec: _Spec = _Spec()
    status: OwnerStatus = OwnerStatus()


class _SetSpec(Struct, frozen=True):
    replicas: int | None = None


class _StatefulSet(Struct, frozen=True):
    metadata: _Metadata = _Metadata()
    spec: _SetSpec = _SetSpec()


_stateful_set_decoder = msgspec.json.Decoder(_StatefulSet)
_job_decoder = msgspec.json.Decoder(_Job)


@dataclass(frozen=True, slots=True)
class StatefulSet:
    """The fields that are kept of a StatefulSet."""

    uid: str
    controller: Owner | None
    """The leader pod or the LeaderWorkerSet that controls it; None where it has another controller,
    and its own size is that of the gang."""
    state: OwnerState = OwnerState.ACTIVE
    """Suspended while it is scaled to 0."""
    job: Owner | None = None
    """The MPIJob that controls it, and scales it to 0 when it ends."""


def read_stateful_set(raw: bytes | Raw) -> StatefulSet:
    """Return what is kept of a StatefulSet, from its JSON.

    Raises:
        msgspec.DecodeError: The JSON is not that of a StatefulSet.
    """
    stateful_set = decode(raw, _stateful_set_decoder)
    metadata = stateful_set.metadata
    controller = controller_of(metadata.owner_references or ())
    is_suspended = stateful_set.spec.replicas == 0
    return StatefulSet(
        metadata.uid,
        above_set(controller),
        OwnerState.SUSPENDED if is_suspended else OwnerState.ACTIVE,
        controller if controller and controller.kind == "MPIJob" else None,
    )


def above_set(controller: Owner | None) -> Owner | None:
    """Return the controller of a StatefulSet if it declares the size of the gang."""
    return controller if controller and controller.kind in {"Pod", LEADER_WORKER_SET} else None


@dataclass(frozen=True, slots=True)
class Job:
    """The fields that are kept of a Job."""

    uid: str
    controller: Owner | None
    """Its own controller."""
    fails_when_evicted: bool
    """It counts an evicted pod as a failure."""
    state: OwnerState = OwnerState.ACTIVE
    """While it is suspended, it deletes its unfinished pods, too."""


def read_job(raw: bytes | Raw) -> Job:
    """Return what is kept of a Job, from its JSON.

    Raises:
        msgspec.DecodeError: The JSON is not that of a Job.
    """
    job = decode(raw, _job_decoder)
    return Job(
        uid=job.metadata.uid,
        controller=controller_of(job.metadata.owner_references or ()),
        fails_when_evicted=not any(
            rule.action == "Ignore" and condition.type == "DisruptionTarget"
            for rule in job.spec.pod_failure_policy.rules or ()
            for condition in rule.on_pod_conditions or ()
        ),
        state=state_by(job.status, suspended=bool(job.spec.suspend)),
    )
