"""All kinds of workloads that are known."""

from typing import TYPE_CHECKING, Literal, TypeAlias

from linkwise.workloads.kind import Kind
from linkwise.workloads.kinds.apps import APPS
from linkwise.workloads.kinds.batch_job import BATCH_JOB, CRON_JOB
from linkwise.workloads.kinds.job_set import JOB_SET
from linkwise.workloads.kinds.kubeflow import PYTORCH_JOB, TF_JOB
from linkwise.workloads.kinds.leader_worker_set import LEADER_WORKER_SET
from linkwise.workloads.kinds.mpi_job import MPI_JOB
from linkwise.workloads.kinds.notebook import NOTEBOOK
from linkwise.workloads.kinds.ray import RAY
from linkwise.workloads.kinds.stateful_set import STATEFUL_SET
from linkwise.workloads.kinds.train_job import TRAIN_JOB
from linkwise.workloads.kinds.volcano_job import VOLCANO_JOB

KINDS = (
    MPI_JOB,
    PYTORCH_JOB,
    TF_JOB,
    JOB_SET,
    *TRAIN_JOB,
    LEADER_WORKER_SET,
    *RAY,
    VOLCANO_JOB,
    BATCH_JOB,
    CRON_JOB,
    STATEFUL_SET,
    NOTEBOOK,
    *APPS,
)

GANG_KINDS: tuple[str, ...] = tuple(kind.gang for kind in KINDS if kind.gang)
"""Kinds whose pods may be one gang without a mark, as policy `gangs.kinds` names them; a
RayCluster's pods also where a RayJob made it."""
if TYPE_CHECKING:
    GangKind: TypeAlias = str
else:
    # Pydantic checks it; a type checker cannot read the registry.
    GangKind = Literal[GANG_KINDS]

_BY_NAME = {(kind.group, kind.name): kind for kind in KINDS}


def kind_of(api_version: str, name: str) -> Kind | None:
    """Return the kind of an object or an owner; None if it is unknown here."""
    # "v1" has no group.
    return _BY_NAME.get((api_version.rpartition("/")[0], name))
