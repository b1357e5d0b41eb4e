"""Gangs whose plan is being carried out: how far that is, and when it is given up."""

from collections import Counter
from collections.abc import Iterable, Set
from dataclasses import dataclass

from scorer.gang.crd import GangPlan
from scorer.gang.pod_info import PodInfo
from scorer.gang.unit import Unit


@dataclass(frozen=True, slots=True)
class Progress:
    """How far a plan is carried out."""

    bound: tuple[PodInfo, ...]
    unbound: tuple[PodInfo, ...]
    """They have their GPUs, and no node yet."""


@dataclass(frozen=True, slots=True)
class PendingBinding:
    """A plan that is being carried out."""

    unit: Unit
    plan: GangPlan
    deadline: float
    """Until then all members should be bound [s since 1970]."""
    tried_at: float | None = None
    """Since when it is known that a scheduler looks for nodes for its members [s since 1970]; the
    time until then does not count. None: no scheduler has."""
    moving: bool = False
    """It was given up, and its members are sent away."""

    def progress(self, pods: Iterable[PodInfo]) -> Progress:
        """Return how far it is, as the gang's pods are now. A member that is gone is neither."""
        there = self._of_them(pods)
        return Progress(
            bound=tuple(pod for pod in there if pod.bound),
            unbound=tuple(pod for pod in there if not pod.bound),
        )

    def has_any(self, pods: Iterable[PodInfo]) -> bool:
        """Tell whether it plans any of these pods."""
        return bool(self._of_them(pods))

    def _of_them(self, pods: Iterable[PodInfo]) -> list[PodInfo]:
        planned = {member.uid for member in self.plan.members}
        return [pod for pod in pods if pod.uid in planned]

    def nodes_of(self, pods: Iterable[PodInfo]) -> frozenset[str]:
        """Return where these pods were to go."""
        uids = {pod.uid for pod in pods}
        return frozenset(member.node for member in self.plan.members if member.uid in uids)


_FIRST_PAUSE, _LONGEST_PAUSE = 10.0, 600.0
"""Of a batch Job, before it makes a pod again: doubled with each that failed [s]."""


def moving_takes(pods: Iterable[PodInfo]) -> float:
    """Return how long it takes at most until evicted pods are made again, where that is known [s].

    A batch Job takes all that are evicted together for as many failures in a row.
    """
    jobs = Counter(
        pod.controller.uid for pod in pods if pod.controller and pod.controller.kind == "Job"
    )
    # More than ten doublings are longer than the longest pause.
    pauses = (_FIRST_PAUSE * 2 ** min(failed - 1, 10) for failed in jobs.values())
    return min(max(pauses, default=0.0), _LONGEST_PAUSE)


def eviction_blocker(pods: Iterable[PodInfo], fragile: Set[str]) -> str | None:
    """Say why pods must not be evicted to be placed again; None where they may.

    Args:
        pods: All members of a gang.
        fragile: Uids of the Jobs that count an evicted pod as a failure.
    """
    for pod in pods:
        if pod.controller is None:
            return f"pod {pod.name} has no controller that would make it again"
        if pod.controller.uid in fragile:
            return (
                f"Job {pod.controller.name} would count an evicted pod as a failure: give it a "
                "podFailurePolicy that ignores DisruptionTarget, or delete the pods yourself"
            )
    return None
