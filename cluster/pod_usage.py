"""Resources that a pod holds on a node: compact enough to keep for every pod."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeVar

from cluster.demand import Demand, demand_of
from cluster.foreign import read_foreign
from cluster.gang import gang_mark, is_member
from cluster.gpu_usage import LedgerError
from cluster.keys import ALLOCATION, NVIDIA_GPU, NVIDIA_GPU_SHARED
from cluster.mode import NodeMode
from cluster.node import Node
from cluster.node_ledger import Holding
from cluster.pod import Pod
from cluster.record import Allocation, GPUShare, RecordError, parse_record
from cluster.request import Family, Request, read_request

T = TypeVar("T")

_MAX_LENGTH = 500
"""Maximum length of a stored error [characters]."""
_FINISHED = {"Succeeded", "Failed"}
_COUNTED = {NVIDIA_GPU, NVIDIA_GPU_SHARED}
_STAY = {"DaemonSet", "Node"}
"""Kinds of owners whose pods live as long as their node."""


@dataclass(frozen=True, slots=True)
class PodUsage:
    """Resources that a pod holds, or will hold when bound."""

    name: str
    """`namespace/name`."""
    uid: str
    age: str
    """Creation time (RFC 3339), sortable; empty if unknown."""
    node: str
    """Its node; empty before it is bound."""
    family: Family | None
    places: bool
    """Linkwise chooses its GPUs."""
    demand: Demand
    nvidia: int = 0
    """Number of GPUs or replicas under NVIDIA's names; where Linkwise chooses them, none count."""
    counted: str = NVIDIA_GPU
    """The resource that `nvidia` counts."""
    gang: str | None = None
    """`namespace/name` of its gang."""
    priority: int = 0
    """Priority; pods of higher priority may preempt it."""
    stays: bool = False
    """It lives as long as its node."""
    record: Allocation | str | None = None
    """Our record, or why it is unreadable."""
    foreign: tuple[GPUShare, ...] | str = ()
    """Record of another scheduler on a pod without ours, or why it is unreadable."""
    unreadable: str | None = None
    """Why its resources are unknown despite its record; None for nearly every pod."""

    @property
    def order(self) -> tuple[bool, str, str, str]:
        """Precedence if two claim the same GPU: bound pods, then older ones."""
        return not self.node, self.age, self.name, self.uid

    @property
    def target(self) -> str:
        """The node on which it holds resources; empty without one."""
        if self.node or not isinstance(self.record, Allocation):
            return self.node
        return self.record.node

    def holding(self, shares: tuple[GPUShare, ...]) -> Holding:
        """Return the ledger entry of the pod with these GPUs."""
        demand = self.demand
        return Holding(
            self.name,
            self.uid,
            shares,
            demand.cpu,
            demand.memory,
            demand.ports,
            gang=self.gang,
            nvidia=0 if shares else self.nvidia,
            counted=self.counted,
            stays=self.stays,
        )

    def shares_on(self, node: Node, *, migrate: bool) -> tuple[GPUShare, ...]:
        """Return its GPUs on a node.

        Args:
            node: Its node, or the node of its record.
            migrate: Accept a record of another scheduler if there is none of ours.

        Raises:
            LedgerError: The mode of the node does not match.
            RecordError: Its GPUs are unknown.
        """
        if node.mode is NodeMode.DEFAULT and self.nvidia and self.counted == NVIDIA_GPU:
            if isinstance(self.record, Allocation) and self.record.gpus:
                raise RecordError(f"its {ALLOCATION} names GPUs that NVIDIA's plugin may allocate")
            # The scheduler and the plugin count requests, whatever a record says.
            return ()
        if not self.places:
            if self.nvidia and node.mode.is_ours and self.counted == node.counted:
                raise RecordError(f"it has GPUs of this node, but no {ALLOCATION}")
            return ()
        if self.unreadable:
            raise RecordError(self.unreadable)
        if not _offers(node.mode, self.family):
            raise LedgerError(
                f"it runs on a node whose mode, {node.mode}, does not offer what it has"
            )
        if self.record is None:
            return self._foreign_shares(migrate=migrate)
        return self._recorded_shares(self.record, node)

    def _recorded_shares(self, record: Allocation | str, node: Node) -> tuple[GPUShare, ...]:
        if isinstance(record, str):
            raise RecordError(record)
        if record.node != node.name:
            raise RecordError(f"{ALLOCATION} names node {record.node}, but it runs on {node.name}")
        if record.count:
            raise RecordError("NVIDIA's plugin chose its GPUs, so it is not known which it has")
        return record.gpus

    def _foreign_shares(self, *, migrate: bool) -> tuple[GPUShare, ...]:
        if not migrate or not self.foreign:
            raise RecordError(f"it has GPUs of this node, but no {ALLOCATION}")
        if isinstance(self.foreign, str):
            raise RecordError(self.foreign)
        return self.foreign


def pod_usage(pod: Pod, request: Request | None = None) -> PodUsage | None:
    """Return the resources of a pod; None for a finished one.

    Args:
        pod: The pod.
        request: Its request, if it was read already.
    """
    if pod.status.phase in _FINISHED:
        return None
    request = request or read_request(pod)[0]
    metadata = pod.metadata
    namespace = metadata.namespace or "default"
    name = f"{namespace}/{metadata.name}"
    mark, _ = gang_mark(pod)
    record = _read(parse_record, pod.annotations) if request.places else None
    foreign = _read(read_foreign, pod.annotations) if request.places and record is None else ()
    return PodUsage(
        name=name,
        uid=metadata.uid or name,
        age=metadata.creation_timestamp or "",
        node=pod.spec.node_name,
        family=request.family,
        places=request.places,
        demand=demand_of(pod),
        nvidia=request.gpus if request.counted in _COUNTED else 0,
        counted=request.counted if request.counted in _COUNTED else NVIDIA_GPU,
        gang=f"{namespace}/{mark.name}" if mark and is_member(pod, request, mark) else None,
        priority=pod.spec.priority or 0,
        stays=any(one.kind in _STAY for one in metadata.owner_references or () if one.controller),
        record=record,
        foreign=foreign,
    )


def _read(read: Callable[[dict[str, str]], T], annotations: dict[str, str]) -> T | str:
    try:
        return read(annotations)
    except RecordError as error:
        # It may quote a text of any length, and is kept as long as the pod.
        return str(error)[:_MAX_LENGTH]


def _offers(mode: NodeMode, family: Family | None) -> bool:
    if family is Family.SHARE:
        return mode.shares_memory
    return mode is (NodeMode.TOPOLOGY if family is Family.WHOLE else NodeMode.TIMESLICE)
