"""GPUs that DRA gave to ResourceClaims, by node: Kubernetes' own account beside device plugins.

A claim's allocation names devices by driver, pool and name. A ResourceSlice of the driver says on
which node such a device is, and which GPU it is.

Source: kubernetes v1.36, `staging/src/k8s.io/api/resource/v1/types.go`; attributes of the driver
gpu.nvidia.com from its ResourceSlices.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import NamedTuple

from msgspec import Struct

from cluster.keys import DRA_GPU_DRIVER, NVIDIA_GPU
from cluster.node import Node
from cluster.pod import Metadata

_UUIDS = ("parentUUID", "uuid")
"""Attributes with the UUID of a GPU; of a MIG device, the first one is that of its GPU."""


class Device(NamedTuple):
    """A device as claims name it."""

    pool: str
    name: str


class _Result(Struct, frozen=True, rename="camel"):
    driver: str = ""
    pool: str = ""
    device: str = ""
    admin_access: bool | None = None


class _Devices(Struct, frozen=True):
    results: list[_Result] | None = None


class _Allocation(Struct, frozen=True):
    devices: _Devices = _Devices()


class _ClaimStatus(Struct, frozen=True):
    allocation: _Allocation | None = None


class ClaimObject(Struct, frozen=True):
    """The part of a ResourceClaim that says which devices it holds."""

    status: _ClaimStatus = _ClaimStatus()

    @property
    def devices(self) -> frozenset[Device]:
        """The GPUs that it holds; those that it only observes (adminAccess) are free for others."""
        allocation = self.status.allocation
        return frozenset(
            Device(result.pool, result.device)
            for result in (allocation.devices.results if allocation else None) or ()
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


class _Pool(Struct, frozen=True):
    name: str = ""


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
        spec = self.spec
        if spec.driver != DRA_GPU_DRIVER or not spec.node_name:
            return None
        uuids = {Device(spec.pool.name, one.name): one.uuid for one in spec.devices or ()}
        return SliceDevices(spec.node_name, uuids)


@dataclass(frozen=True, slots=True)
class SliceDevices:
    """The GPUs of one ResourceSlice."""

    node: str
    uuids: Mapping[Device, str | None]
    """By device: the UUID of its GPU; None if it is not published."""


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
        slices: The devices of each slice. A device without a slice counts on the node that its
            pool is named after, as the driver names pools.
    """
    known = {device: one for one in slices for device in one.uuids}
    by_node: dict[str, ClaimedGPUs] = {}
    for device in frozenset().union(*claims):
        found = known.get(device)
        node, uuid = (found.node, found.uuids[device]) if found else (device.pool, None)
        before = by_node.get(node, ClaimedGPUs())
        by_node[node] = (
            replace(before, uuids=before.uuids | {uuid})
            if uuid
            else replace(before, unknown=before.unknown | {device})
        )
    return by_node


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
