"""The section of the policy about gangs."""

from typing import Annotated, Literal

from pydantic import AfterValidator, Field

from linkwise.cluster import keys
from linkwise.policy.wire import LabelKey, Positive, Wire
from linkwise.workloads.registry import GANG_KINDS, GangKind

_ClassName = Annotated[str, Field(min_length=1, max_length=253)]


def _one_step(classes: dict[str, str]) -> dict[str, str]:
    # Otherwise a second admission of the same pod would change it again.
    for name in classes.values():
        if name in classes:
            raise ValueError(f"{name} is itself replaced; name a class that stays")
    return classes


class Preemption(Wire):
    """Eviction of whole gangs and single pods for a waiting unit of a higher priority."""

    mode: Literal["lowerPriority", "never"] = "lowerPriority"
    """`lowerPriority`: units of a lower priority may be evicted; `never`: no unit is."""
    min_run_minutes: Annotated[int, Field(ge=0)] = 5
    """Time since its start for which a pod, or a gang since its first pod, is not evicted."""
    after_seconds: Annotated[int, Field(ge=0)] = 0
    """Time for which a unit waits before others are evicted for it."""
    max_wait_seconds: Annotated[int, Field(gt=0, le=86400)] = 600
    """The longest time for which GPUs are reserved for a unit while the pods end that are evicted
    for it; others are evicted once, then none."""
    others: Literal["never", "lowerPriority"] = "never"
    """`lowerPriority`: pods with whole GPUs that Linkwise did not place may be evicted, too, each
    by itself; `never`: none is."""


class Gangs(Wire):
    """Planning of gangs."""

    kinds: tuple[GangKind, ...] = GANG_KINDS
    """Kinds of owners whose pods with GPUs are a gang without a mark."""
    commit_deadline_seconds: Annotated[int, Field(gt=0)] = 60
    """Deadline for binding all members; afterwards the gang is planned again."""
    replacement_seconds: Annotated[int, Field(ge=0)] = 60
    """Time for which the GPUs of a member of a running gang that is gone are reserved for its
    replacement; 0: they are free at once."""
    settle_seconds: Annotated[int, Field(ge=0)] = 2
    """Time for which a gang waits for pods that are ending, if it would be faster without them."""
    ageing_minutes: Annotated[int, Field(ge=0)] = 10
    """Waiting time after which the planner reserves nodes for a gang."""
    preemption: Preemption = Preemption()
    non_preempting_classes: Annotated[dict[_ClassName, _ClassName], AfterValidator(_one_step)] = (
        Field(default_factory=dict)
    )
    """Replacement of priority classes of gated pods: a class of the same value with
    `preemptionPolicy: Never`, so that a pinned pod does not preempt others."""
    on_fault: Literal["report", "evict"] = "report"
    """Reaction to an unhealthy GPU, or a lost node, under a running gang. `evict`: all its members
    are evicted and placed again together; `report`: it is only reported."""
    on_fault_seconds: Annotated[int, Field(ge=1)] = 60
    """Time for which a fault lasts before a gang is evicted, and for which a GPU that has recovered
    from one is not given to other pods."""
    max_concurrent_moves: Annotated[int, Field(ge=1)] = 2
    """Gangs that are off their GPUs at the same time because of faults."""
    domains: tuple[LabelKey, ...] = (keys.GFD_CLIQUE, keys.RACK, keys.ASW_ID)
    """Node labels of network levels, nearest first."""
    nic_bandwidth: Positive | None = None
    """Bandwidth of all NICs of a node together, per direction [GB/s]. None: it is not known, so the
    bandwidth of a gang over several nodes counts only links inside each."""
