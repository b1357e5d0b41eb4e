"""The start and the end of a pod with GPUs, and what else an eviction depends on."""

from dataclasses import dataclass

from linkwise.cluster.account.pod_usage import PodUsage
from linkwise.cluster.gang import foreign_mark
from linkwise.cluster.objects.kube_object import Labels
from linkwise.cluster.objects.pod import Pod
from linkwise.cluster.requests.other_systems import shares_of_others
from linkwise.cluster.requests.request import Family
from linkwise.planning.gang.budgets import ENTRY

_GRACE, _GRACE_MAX = 30, 366 * 86_400
"""The default of Kubernetes, and what counts as longest: the API server takes any [s]."""
_LABELS_MAX = 8 << 10
"""Memory of the labels of a pod that has GPUs [bytes, about]; larger ones are not kept."""


@dataclass(frozen=True, slots=True)
class Life:
    """The start and the end of a pod with GPUs, and the labels that disruption budgets select."""

    started: str
    """RFC 3339; empty: no kubelet has started it yet."""
    ends: str
    """Until when its containers may take to end once it is deleted (RFC 3339); empty: it is not."""
    grace: int
    """The time that its containers have to end [s]."""
    labels: Labels | None
    """None: too many are there to keep them, so that each budget of its namespace counts it."""
    tie: str = ""
    """Why a pod that Linkwise did not place is no unit of its own; empty: it is one."""


def life_of(pod: Pod, usage: PodUsage) -> Life:
    """Return the life of a pod that has GPUs by this usage."""
    grace = pod.spec.termination_grace_period_seconds
    return Life(
        started=pod.status.start_time or "",
        ends=pod.metadata.deletion_timestamp or "",
        grace=_GRACE if grace is None else min(max(0, grace), _GRACE_MAX),
        labels=_labels(pod),
        tie="" if usage.places else _tie(pod),
    )


def _labels(pod: Pod) -> Labels | None:
    labels = pod.metadata.labels or {}
    size = sum(len(key) + len(value) + 2 * ENTRY for key, value in labels.items())
    return labels if size <= _LABELS_MAX else None


def _tie(pod: Pod) -> str:
    """Return why a pod that Linkwise did not place is no unit of its own; empty: it is one."""
    if mark := foreign_mark(pod):
        return f"is part of a gang that Linkwise did not place ({mark}), and would go alone"
    shares = shares_of_others(pod.spec, Family.NVIDIA)
    return f"has {shares}" if shares else ""
