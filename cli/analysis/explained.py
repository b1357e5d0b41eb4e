"""What there is to say of a pod or a gang: how it stands, where its pods are, and why."""

from dataclasses import dataclass
from enum import StrEnum

from cluster.record import Allocation
from scorer.gang.pod_info import PodInfo
from scorer.placement.baselines import IndexOrder
from scorer.placement.result import Placement, Plan
from scorer.placement.snapshot import Snapshot


class UnitState(StrEnum):
    """How things stand."""

    PLACED = "placed"
    """Everything has its GPUs."""
    FITS = "fits"
    """It could be placed now, and was not yet."""
    WAITS = "waits"
    NEVER = "never"
    """It would not fit if nothing else ran."""
    ALONE = "not placed by Linkwise"
    """It asks for no GPU that Linkwise chooses, or nobody knows its GPUs."""
    ENDED = "finished"
    SUSPENDED = "suspended"
    """No pod of it is there, since its owner makes none for now."""
    GONE = "gone"
    """No pod of it is there."""


@dataclass(frozen=True, slots=True)
class PodPlacement:
    """One pod's part."""

    name: str
    node: str | None
    gpus: tuple[int, ...]
    """Ascending; empty where it has none, or NVIDIA's plugin chooses."""
    state: str
    """In a word: bound, not bound yet, waits, finished."""


@dataclass(frozen=True, slots=True)
class Explained:
    """Everything there is to say."""

    kind: str
    """`pod` or `gang`."""
    namespace: str
    name: str
    state: UnitState
    pods: tuple[PodPlacement, ...]
    """In rank order."""
    reason: str | None = None
    """Why it has no GPUs of Linkwise; None where it has."""
    plan: Plan | None = None
    """Where it is, or would be."""
    seen: Snapshot | None = None
    """The cluster on which it is judged: without it."""
    bandwidth: float | None = None
    """Modelled all-reduce bandwidth [GB/s]."""
    best_possible: float | None = None
    """The same members on the empty cluster [GB/s]."""
    index_order: IndexOrder | None = None
    """Nodes by name and lowest free indices."""
    changed: str | None = None
    """What would be decided now, where that differs from what was; None where it does not."""
    remedies: tuple[str, ...] = ()
    """What would help, each a sentence."""


def record_of(pod: PodInfo) -> Allocation | None:
    """Return which GPUs a pod's record says it has; None where it is finished or has no record."""
    record = pod.usage.record if pod.usage else None
    return record if isinstance(record, Allocation) else None


def pod_placement(pod: PodInfo, planned: Placement | None = None) -> PodPlacement:
    """Return a pod's part: where it is, or where it is planned to go."""
    if planned is not None:
        return PodPlacement(pod.name, planned.node, planned.gpus, "would go there")
    if pod.usage is None:
        return PodPlacement(pod.name, None, (), "finished")
    bound = bool(pod.usage.node)
    record = record_of(pod)
    if record is None:
        return PodPlacement(pod.name, pod.usage.node or None, (), "bound" if bound else "waits")
    gpus = tuple(sorted(share.i for share in record.gpus))
    return PodPlacement(pod.name, record.node, gpus, "bound" if bound else "not bound yet")
