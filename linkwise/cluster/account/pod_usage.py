"""Resources that a pod holds on a node: compact enough to keep for every pod."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from typing import TypeVar

from linkwise.cluster.account.node_ledger import Holding
from linkwise.cluster.allocations.foreign import read_foreign
from linkwise.cluster.allocations.gpus import NO_GPUS, Counted, Exact, GPUs, GPUShare, Unreadable
from linkwise.cluster.allocations.record import Allocation, RecordError, parse_record
from linkwise.cluster.gang import gang_mark, is_member
from linkwise.cluster.keys import ALLOCATION, NVIDIA_GPU, NVIDIA_GPU_SHARED
from linkwise.cluster.mode import NodeMode
from linkwise.cluster.nodes.device_claims import Device, HeldClaim
from linkwise.cluster.nodes.lost_gpus import RecordedGPU
from linkwise.cluster.nodes.node import Node
from linkwise.cluster.objects.pod import Pod
from linkwise.cluster.requests.claimed import claim_name
from linkwise.cluster.requests.demand import Demand
from linkwise.cluster.requests.neighbors.neighbor import NO_NEIGHBOR, Neighbor, neighbor_of
from linkwise.cluster.requests.pod_demand import demand_of
from linkwise.cluster.requests.request import Family, Request
from linkwise.cluster.requests.request_reader import read_request
from linkwise.cluster.volumes.pod_volumes import NO_VOLUMES, HeldVolumes

T = TypeVar("T")

_MAX_LENGTH = 500
"""Maximum length of a stored error [characters]."""
_FINISHED = {"Succeeded", "Failed"}
_COUNTED = {NVIDIA_GPU, NVIDIA_GPU_SHARED}
_CONTRADICTED = Unreadable(f"its {ALLOCATION} names GPUs that NVIDIA's plugin may allocate")
_NO_RECORD = Unreadable(f"it has GPUs of this node, but no {ALLOCATION}")
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
    by_claim: bool = False
    """It gets its GPUs by a ResourceClaim."""
    nvidia: Counted | None = None
    """GPUs or replicas that it requests under NVIDIA's names, whether or not Linkwise chooses."""
    gang: str | None = None
    """`namespace/name` of its gang."""
    priority: int = 0
    """Priority; pods of higher priority may preempt it."""
    stays: bool = False
    """It lives as long as its node."""
    record: Allocation | Unreadable | None = None
    """Our record."""
    foreign: Exact | Unreadable = NO_GPUS
    """Record of another scheduler, of a pod without ours."""
    claims: tuple[str, ...] = ()
    """Names of the claims by which it gets its GPUs from Linkwise; none: by none, or not all are
    made yet from their templates."""
    devices: frozenset[Device] | None = None
    """What these claims hold; None: some hold nothing yet, or it is not known."""
    shares_claim: bool = False
    """Another pod uses one of them, too, so that the GPUs are not free once this one has ended."""
    neighbor: Neighbor = NO_NEIGHBOR
    """What affinity and topology spread of other pods see of it."""
    volumes: HeldVolumes = NO_VOLUMES
    """What it takes of the volumes of its node."""
    unreadable: Unreadable | None = None
    """Why its resources are unknown despite its record; None for nearly every pod."""

    def with_claims(self, claims: Iterable[HeldClaim | None]) -> "PodUsage":
        """Return the same with the devices of its claims, if all hold some and belong to it.

        Args:
            claims: Those that it names; None for one that holds nothing.
        """
        own = [claim for claim in claims if claim is not None and claim.holder == self.uid]
        is_known = bool(own) and len(own) == len(self.claims)
        # Nearly all pods have one claim, whose devices are not kept twice.
        devices = own[0].devices if len(own) == 1 else _union(claim.devices for claim in own)
        shares = any(claim.is_used_by_others(self.uid) for claim in own)
        return replace(self, devices=devices if is_known else None, shares_claim=shares)

    @property
    def is_of_others(self) -> bool:
        """It has whole GPUs of a node, by their number, and Linkwise did not place it."""
        is_whole = self.nvidia is not None and self.nvidia.resource == NVIDIA_GPU
        return is_whole and not self.places and bool(self.node)

    @property
    def order(self) -> tuple[bool, str, str, str]:
        """Precedence if two claim the same GPU: bound pods, then older ones."""
        return not self.node, self.age, self.name, self.uid

    @property
    def target(self) -> str:
        """The node on which it holds resources; empty without one."""
        return self.node or (self.allocation.node if self.allocation else "")

    @property
    def allocation(self) -> Allocation | None:
        """Our record; None where it is missing or unreadable."""
        return self.record if isinstance(self.record, Allocation) else None

    def holding(self, gpus: GPUs) -> Holding:
        """Return the ledger entry of the pod with these GPUs."""
        return Holding(
            self.name,
            self.uid,
            gpus,
            self.demand,
            gang=self.gang,
            stays=self.stays,
            neighbor=self.neighbor,
            volumes=self.volumes,
        )

    def gpus_on(self, node: Node, *, migrate: bool) -> GPUs | Unreadable:
        """Return its GPUs on a node.

        Args:
            node: Its node, or the node of its record.
            migrate: Accept a record of another scheduler if there is none of ours.
        """
        nvidia = self.nvidia
        if node.mode is NodeMode.DEFAULT and nvidia and nvidia.resource == NVIDIA_GPU:
            # The scheduler and the plugin count requests, whatever a record says.
            names_gpus = self.allocation is not None and self.allocation.gpus.shares
            return _CONTRADICTED if names_gpus else nvidia
        if not self.places:
            lacks_record = nvidia and node.mode.is_ours and nvidia.resource == node.gpu_resource
            return _NO_RECORD if lacks_record else nvidia or NO_GPUS
        if self.unreadable or _offers(node.mode, self.family):
            return self.unreadable or self._recorded_gpus(node, migrate=migrate)
        return Unreadable(f"it runs on a node whose mode, {node.mode}, does not offer what it has")

    def _recorded_gpus(self, node: Node, *, migrate: bool) -> GPUs | Unreadable:
        match self.record:
            case None:
                return self.foreign if migrate and self.foreign != NO_GPUS else _NO_RECORD
            case Unreadable():
                return self.record
            case Allocation(node=name) if name != node.name:
                return Unreadable(f"{ALLOCATION} names node {name}, but it runs on {node.name}")
            case Allocation(gpus=Counted()):
                return Unreadable("NVIDIA's plugin chose its GPUs, so it is not known which it has")
            case Allocation(gpus=Exact(shares)) if node.is_claims:
                return self.claimed_gpus(node) or _by_uuid(shares, node)
            case Allocation(gpus=gpus):
                return Exact(_at_present(gpus.shares, node))

    @property
    def recorded(self) -> tuple[RecordedGPU, ...]:
        """The GPUs in its record, if it runs on the node of the record or will."""
        record = self.allocation if self.places else None
        if record is None or record.node != self.target:
            return ()
        return tuple(RecordedGPU(gpu.i, gpu.uuid) for gpu in record.gpus.shares if gpu.uuid)

    def claimed_gpus(self, node: Node) -> Exact | Unreadable | None:
        """Return its GPUs by its claim, whatever its record says; None: they are not known.

        A claim names devices, and slices say which GPU a device is now: after a reboot with other
        numbers the pod has other GPUs than those that were planned. While slices are missing, the
        last ones count.
        """
        pool = node.pool
        if self.devices is None or pool is None or not pool.devices:
            return None
        index = {Device(node.name, pool.name, name): i for i, name in enumerate(pool.devices)}
        if unknown := self.devices - index.keys():
            return Unreadable(f"its claim holds {min(unknown).name}, which is no GPU of its node")
        held = sorted(index[device] for device in self.devices)
        return Exact(tuple(GPUShare(i, node.cards[i].uuid) for i in held))


def pod_usage(pod: Pod, request: Request | None = None) -> PodUsage | None:
    """Return the resources of a pod; None for a finished one.

    Args:
        pod: The pod.
        request: Its request, if it was read already.
    """
    if pod.status.phase in _FINISHED:
        return None
    request = request or read_request(pod)[0]
    # Of GPUs that kube-scheduler's claim provides, the claim is counted, as each one of others.
    is_claimed = pod.status.is_claimed(request.resource)
    places = request.places and not is_claimed
    metadata = pod.metadata
    namespace = metadata.namespace or "default"
    name = f"{namespace}/{metadata.name}"
    mark, _ = gang_mark(pod)
    record = _read(parse_record, pod.annotations) if places else None
    foreign: Exact | Unreadable = NO_GPUS
    if places and record is None:
        foreign = _read(read_foreign, pod.annotations)
    is_counted = request.gpus and request.resource in _COUNTED and not is_claimed
    nvidia = Counted(request.resource, request.gpus) if is_counted else None
    return PodUsage(
        name=name,
        uid=metadata.uid or name,
        age=metadata.creation_timestamp or "",
        node=pod.spec.node_name,
        family=request.family,
        places=places,
        demand=demand_of(pod),
        by_claim=request.by_claim,
        nvidia=nvidia,
        gang=f"{namespace}/{mark.name}" if mark and is_member(pod, request, mark) else None,
        priority=pod.spec.priority or 0,
        stays=any(one.kind in _STAY for one in metadata.owner_references or () if one.controller),
        record=record,
        foreign=foreign,
        claims=_claims_of(pod, request) if request.by_claim else (),
        neighbor=neighbor_of(pod, namespace),
    )


def _claims_of(pod: Pod, request: Request) -> tuple[str, ...]:
    """Return the names of the claims by which a pod gets its GPUs; none: not all are made yet.

    Those that it brings are in the order in which the request has them.
    """
    brought = request.user_claims
    if brought is None:
        name = claim_name(pod.spec)
        return (name,) if name else ()
    made = [*(pod.spec.resource_claims or ()), *(pod.status.resource_claim_statuses or ())]
    by_reference = {one.name: one.resource_claim_name for one in made}
    names = [by_reference.get(reference) for reference in brought.references]
    known = tuple(name for name in names if name)
    return known if len(known) == len(names) else ()


def _union(parts: Iterable[frozenset[Device]]) -> frozenset[Device]:
    return frozenset[Device]().union(*parts)


def _read(read: Callable[[dict[str, str]], T], annotations: dict[str, str]) -> T | Unreadable:
    try:
        return read(annotations)
    except RecordError as error:
        # It may quote a text of any length, and is kept as long as the pod.
        return Unreadable(str(error)[:_MAX_LENGTH])


def recorded_gpus(usages: Iterable[PodUsage]) -> tuple[RecordedGPU, ...]:
    """Return the GPUs in the records of the pods of one node, in order."""
    return tuple(sorted({gpu for usage in usages for gpu in usage.recorded}))


def _by_uuid(shares: tuple[GPUShare, ...], node: Node) -> Exact | Unreadable:
    """Return GPUs of a claims node at their present indices."""
    uuids = {card.uuid for card in node.cards if card.uuid}
    for share in shares:
        if share.uuid not in uuids:
            return Unreadable(f"the driver's slices of {node.name} do not have {share.uuid}")
    return Exact(_at_present(shares, node))


def _at_present(shares: tuple[GPUShare, ...], node: Node) -> tuple[GPUShare, ...]:
    """Return GPUs at their present indices, which depend on the GPUs that a node has.

    One whose UUID is not known has the index of its record.
    """
    cards = node.cards
    if all(gpu.i < len(cards) and cards[gpu.i].uuid == gpu.uuid for gpu in shares):
        return shares
    index = {card.uuid: i for i, card in enumerate(cards) if card.uuid}
    return tuple(replace(gpu, i=index.get(gpu.uuid or "", gpu.i)) for gpu in shares)


def _offers(mode: NodeMode, family: Family | None) -> bool:
    if family is Family.SHARE:
        return mode.shares_memory
    return mode is (NodeMode.TOPOLOGY if family is Family.WHOLE else NodeMode.TIMESLICE)
