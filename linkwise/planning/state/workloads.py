"""Read batch Jobs and StatefulSets: their controllers, and whether they create pods."""

from dataclasses import dataclass

import msgspec
from msgspec import Raw

from linkwise.cluster.objects.metadata import Owner, controller_of
from linkwise.runtime.kube.decode import decode
from linkwise.workloads.kinds.batch_job import WatchedJob
from linkwise.workloads.kinds.leader_worker_set import LEADER_WORKER_SET
from linkwise.workloads.kinds.mpi_job import MPI_JOB
from linkwise.workloads.kinds.stateful_set import WatchedSet
from linkwise.workloads.registry import kind_of
from linkwise.workloads.state import OwnerState

_stateful_set_decoder = msgspec.json.Decoder(WatchedSet)
_job_decoder = msgspec.json.Decoder(WatchedJob)


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
    controller = controller_of(stateful_set.owners)
    is_of_job = controller and kind_of(controller.api_version, controller.kind) is MPI_JOB
    return StatefulSet(
        stateful_set.metadata.uid,
        above_set(controller),
        stateful_set.state,
        controller if is_of_job else None,
    )


def above_set(controller: Owner | None) -> Owner | None:
    """Return the controller of a StatefulSet if it declares the size of the gang."""
    if controller is None:
        return None
    kind = kind_of(controller.api_version, controller.kind)
    return controller if controller.kind == "Pod" or kind is LEADER_WORKER_SET else None


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
        controller=controller_of(job.owners),
        fails_when_evicted=job.fails_when_evicted,
        state=job.state,
    )
