"""GPUs that DRA gave to ResourceClaims, by node: Kubernetes' own account beside device plugins.

A claim's allocation names devices by driver, pool and name, and their node. A ResourceSlice of
the driver says which GPU such a device is. Nodes write slices: one of another node, of an older
generation of its pool, or of an incomplete pool says nothing.

Source: kubernetes v1.36, `staging/src/k8s.io/api/resource/v1/types.go`; attributes of the driver
gpu.nvidia.com from its ResourceSlices.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import NamedTuple

from msgspec import Struct

from cluster.keys import DRA_GPU_DRIVER, NODE_NAME_FIELD, NVIDIA_GPU
from cluster.nodes.node import Node
from cluster.objects.pod import Metadata

_UUIDS = ("parentUUID", "uuid")
"""Attributes with the UUID of a GPU; of a MIG device, the first one is that of its GPU."""


class Device(NamedTuple):
    """A device as claims name it."""

    node: str
    pool: str
    name: str


class _Field(Struct, frozen=True):
    key: str = ""
    operator: str = ""
    values: list[str] | None = None


class _Term(Struct, frozen=True, rename="camel"):
    match_fields: list[_Field] | None = None


class _NodeSelector(Struct, frozen=True, rename="camel"):
    node_selector_terms: list[_Term] | None = None

    @property
    def node(self) -> str | None:
        """The only node that it selects by name; None: it selects by something else."""
        match self.node_selector_terms:
            case [_Term(match_fields=[_Field(key, "In", [str(name)])])] if key == NODE_NAME_FIELD:
                return name
            case _:
                return None


class _Result(Struct, frozen=True, rename="camel"):
    driver: str = ""
    pool: str = ""
    device: str = ""
    admin_access: bool | None = None


class _Devices(Struct, frozen=True):
    results: list[_Result] | None = None


class _Allocation(Struct, frozen=True, rename="camel"):
    devices: _Devices = _Devices()
    node_selector: _NodeSelector | None = None


class _ClaimStatus(Struct, frozen=True):
    allocation: _Allocation | None = None


class ClaimObject(Struct, frozen=True):
    """The part of a ResourceClaim that says which devices it holds."""

    status: _ClaimStatus = _ClaimStatus()

    @property
    def devices(self) -> frozenset[Device]:
        """The GPUs that it holds; those that it only observes (adminAccess) are free for others.

        Without a node in its allocation, the pool has the name of the node, as the driver names it.
        """
        allocation = self.status.allocation
        if allocation is None:
            return frozenset()
        node = allocation.node_selector.node if allocation.node_selector else None
        return frozenset(
            Device(node or result.pool, result.pool, result.device)
            for result in allocation.devices.results or ()
            if result.driver == DRA_GPU_DRIVER and not result.admin_access
        )


class _Attribute(Struct, frozen=True):
    string: str | None = None


class _Device(Struct, frozen=True):
    name: str = ""
    attributes: dict[str, _Attribute] | None = None

    @property
    def uuid(self) -> str | None:
        """The UUID of its GPU; None if it is not published."""
        found = {name.rpartition("/")[2]: one for name, one in (self.attributes or {}).items()}
        values = (found[name].string for name in _UUIDS if name in found)
        return next((value for value in values if value), None)


class _Pool(Struct, frozen=True, rename="camel"):
    name: str = ""
    generation: int = 0
    resource_slice_count: int = 1


class _SliceSpec(Struct, frozen=True, rename="camel"):
    driver: str = ""
    node_name: str = ""
    pool: _Pool = _Pool()
    devices: list[_Device] | None = None


class SliceObject(Struct, frozen=True):
    """The part of a ResourceSlice that says which GPUs of a node are devices."""

    metadata: Metadata = Metadata()
    spec: _SliceSpec = _SliceSpec()

    @property
    def devices(self) -> "SliceDevices | None":
        """Its devices; None if they are no GPUs of one node."""
        spec, pool = self.spec, self.spec.pool
        if spec.driver != DRA_GPU_DRIVER or not spec.node_name:
            return None
        uuids = {one.name: one.uuid for one in spec.devices or ()}
        return SliceDevices(
            spec.node_name, pool.name, pool.generation, pool.resource_slice_count, uuids
        )


@dataclass(frozen=True, slots=True)
class SliceDevices:
    """The GPUs of one ResourceSlice."""

    node: str
    pool: str
    generation: int
    """Of the pool; only slices of its highest one count."""
    count: int
    """Slices that the pool has in this generation."""
    uuids: Mapping[str, str | None]
    """By name of a device: the UUID of its GPU; None if it is not published."""


@dataclass(frozen=True, slots=True)
class ClaimedGPUs:
    """The GPUs of one node that claims hold."""

    uuids: frozenset[str] = frozenset()
    unknown: frozenset[Device] = frozenset()
    """Devices whose GPU is not known."""

    @property
    def count(self) -> int:
        """How many GPUs they are, at most."""
        return len(self.uuids) + len(self.unknown)


def claimed_gpus(
    claims: Iterable[frozenset[Device]], slices: Iterable[SliceDevices]
) -> dict[str, ClaimedGPUs]:
    """Return the GPUs that claims hold, by node. Cost: linear.

    Args:
        claims: The devices of each allocated claim.
        slices: The devices of each slice.
    """
    known = published_devices(slices)
    by_node: dict[str, ClaimedGPUs] = {}
    for device in frozenset().union(*claims):
        uuid = known.get(device)
        before = by_node.get(device.node, ClaimedGPUs())
        by_node[device.node] = (
            replace(before, uuids=before.uuids | {uuid})
            if uuid
            else replace(before, unknown=before.unknown | {device})
        )
    return by_node


def published_devices(slices: Iterable[SliceDevices]) -> dict[Device, str | None]:
    """Return the devices of complete pools with the UUIDs of their GPUs.

    A pool is the slices of one node with its name and its highest generation, and complete if they
    are as many as they say. In a pool that has a name twice, the GPU of that device is not known.
    """
    pools: dict[tuple[str, str], list[SliceDevices]] = {}
    for one in slices:
        pool = pools.setdefault((one.node, one.pool), [])
        if pool and one.generation > pool[0].generation:
            pool.clear()
        if not pool or one.generation == pool[0].generation:
            pool.append(one)
    devices: dict[Device, str | None] = {}
    for (node, name), pool in pools.items():
        if any(one.count != len(pool) for one in pool):
            continue
        for one in pool:
            for device, uuid in one.uuids.items():
                key = Device(node, name, device)
                devices[key] = None if key in devices else uuid
    return devices


def without_claimed(node: Node, claimed: ClaimedGPUs) -> Node:
    """Return a node on which the GPUs of claims are not free.

    If Linkwise chooses the GPUs, these cards are closed; where one is not known, nothing is placed
    on the node. If NVIDIA's plugin chooses them, there are as many fewer.
    """
    if not claimed.count:
        return node
    if not node.mode.is_ours:
        left = max(node.resources.get(NVIDIA_GPU, 0) - claimed.count, 0)
        has_some = NVIDIA_GPU in node.resources
        return replace(node, resources={**node.resources, NVIDIA_GPU: left}) if has_some else node
    if not node.cards:
        return node
    cards = tuple(
        replace(card, cordoned=card.cordoned or card.uuid in claimed.uuids) for card in node.cards
    )
    found = {card.uuid for card in cards}
    if claimed.unknown or not claimed.uuids <= found:
        names = sorted(device.name for device in claimed.unknown)
        which = f"device {names[0]}" if names else "a device"
        reason = f"a resource claim holds {which} of it, and it is not known which GPU that is"
        return replace(node, cards=cards, mismatch=node.mismatch or reason)
    return replace(node, cards=cards)
