"""The order of the pods of a job, by what the controllers of its kind write on them."""

import re

from linkwise.cluster.objects.pod import Pod
from linkwise.cluster.objects.quantity import count
from linkwise.workloads.kinds.job_set import JOB_LABELS, job_order
from linkwise.workloads.kinds.mpi_job import ROLE_LABELS, is_launcher
from linkwise.workloads.kinds.ray import is_head
from linkwise.workloads.operator_keys import RAY_NODE_TYPE
from linkwise.workloads.registry import KINDS

_ORDINAL = re.compile(r"-([0-9]{1,9})\Z")
_INDICES = tuple(dict.fromkeys(index for kind in KINDS for index in kind.indices))
RANK_LABELS = frozenset(
    {
        *ROLE_LABELS,
        *JOB_LABELS,
        RAY_NODE_TYPE,
        *(index.key for index in _INDICES if not index.is_annotation),
    }
)
"""Labels of a pod that its order depends on."""
RANK_ANNOTATIONS = frozenset(index.key for index in _INDICES if index.is_annotation)
"""Its annotations that do."""


def rank(pod: Pod) -> int | None:
    """Return the rank of a pod in its job; None if unknown.

    It is the first index that the controller of a kind has written, in the order of the registry,
    else the number at the end of the pod's name.
    """
    for index in _INDICES:
        text = (pod.annotations if index.is_annotation else pod.labels).get(index.key)
        if text is not None and (number := count(text)) is not None:
            return number
    ordinal = _ORDINAL.search(pod.metadata.name)
    return int(ordinal[1]) if ordinal else None


def rank_order(pod: Pod) -> tuple[bool, int, str, int, int]:
    """Return the sort key of the pods of a gang: a launcher, or Ray's head, precedes the workers.

    Pods of a JobSet are sorted by their Job first.
    """
    return not (is_launcher(pod) or is_head(pod)), *job_order(pod), rank(pod) or 0
