"""The explanation of a pod or a gang: its state, where its pods are, and the reasons."""

from dataclasses import dataclass
from enum import StrEnum

from linkwise.cluster.allocations.gpus import NO_GPUS, GPUs
from linkwise.cluster.whatif_api import Preempted
from linkwise.planning.gang.crd_plan import NodeGPUs
from linkwise.planning.gang.pod_info import PodInfo
from linkwise.planning.placement.bandwidth import UNDEFINED, Bandwidth
from linkwise.planning.placement.baselines import IndexOrder
from linkwise.planning.placement.result import Placement, Plan
from linkwise.planning.placement.state.snapshot import Snapshot


class UnitState(StrEnum):
    """The state of a pod or a gang."""

    PLACED = "placed"
    """All its pods have their GPUs."""
    FITS = "fits"
    """It fits now, but is not placed yet."""
    WAITS = "waits"
    NEVER = "never"
    """It would not fit if nothing else ran."""
    ALONE = "not placed by Linkwise"
    """It asks for no GPU that Linkwise chooses, or its GPUs are not known."""
    ENDED = "finished"
    SUSPENDED = "suspended"
    """It has no pods, because its owner is suspended."""
    GONE = "gone"
    """It has no pods."""


@dataclass(frozen=True, slots=True)
class PodPlacement:
    """The placement of one pod."""

    name: str
    node: str | None
    gpus: GPUs
    state: str
    """In a word: bound, not bound yet, waits, finished."""


@dataclass(frozen=True, slots=True)
class UnitExplanation:
    """The explanation of a pod or a gang."""

    kind: str
    """`pod` or `gang`."""
    namespace: str
    name: str
    state: UnitState
    pods: tuple[PodPlacement, ...]
    """In rank order."""
    reason: str | None = None
    """Why Linkwise gave it, or members that it lacks, no GPUs; None where it gave them."""
    plan: Plan | None = None
    """Its placement, or the one that it would get now."""
    snapshot: Snapshot | None = None
    """The cluster without the unit, for which the plan was made."""
    bandwidth: Bandwidth = UNDEFINED
    """Modelled all-reduce bandwidth."""
    best_possible: Bandwidth = UNDEFINED
    """The same members on the empty cluster."""
    index_order: IndexOrder | None = None
    """The baseline: nodes by name and lowest free indices."""
    changed: str | None = None
    """The plan that would be made now; None where it equals the one that was carried out."""
    membership: str | None = None
    """Why its pods are a gang; None where their manifest marks them."""
    reserved: tuple[NodeGPUs, ...] = ()
    """GPUs that are reserved for members that it lacks."""
    unhealthy: str = ""
    """Its unhealthy GPUs; empty where there are none."""
    unplanned: str = ""
    """Its GPUs that are not the planned ones; empty where there are none."""
    unprepared: str = ""
    """Its pods whose claims their nodes do not prepare; empty where there are none."""
    evicted: str = ""
    """When all its members were evicted last because of a fault, and why; empty: never."""
    suggestions: tuple[str, ...] = ()
    """Changes that would let it be placed, or placed on healthy GPUs, each a sentence."""
    preempts: tuple[Preempted, ...] = ()
    """The units that would be evicted for it."""
    preempts_others: int = 0
    """The number of such units of other namespaces that may not be named."""
    lacking: tuple[str, ...] = ()
    """Its pods without which it does not start, for someone who may ask the dry-run API about
    them; empty: they may not start now, or others are evicted for them already."""

    @property
    def is_waiting(self) -> bool:
        """It has no GPUs, and cannot get them now."""
        return self.state in {UnitState.WAITS, UnitState.NEVER}


def pod_placement(pod: PodInfo, planned: Placement | None = None) -> PodPlacement:
    """Return where a pod is, or where it is planned to go."""
    if planned is not None:
        return PodPlacement(pod.name, planned.node, planned.gpus, "would go there")
    if pod.usage is None:
        return PodPlacement(pod.name, None, NO_GPUS, "finished")
    bound = bool(pod.usage.node)
    allocation = pod.allocation
    if allocation is None:
        state = "bound" if bound else "waits"
        return PodPlacement(pod.name, pod.usage.node or None, NO_GPUS, state)
    state = "bound" if bound else "not bound yet"
    return PodPlacement(pod.name, allocation.node, allocation.gpus, state)
