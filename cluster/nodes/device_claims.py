"""Decode ResourceClaims: the devices of NVIDIA's driver that they hold.

A claim's allocation names devices by driver, pool and name, and their node.

Source: kubernetes v1.36, `staging/src/k8s.io/api/resource/v1/types.go`.
"""

from collections import Counter
from collections.abc import Iterable
from datetime import datetime
from typing import NamedTuple

from msgspec import Struct

from cluster.keys import DRA_GPU_DRIVER, NODE_NAME_FIELD, PLACED
from cluster.objects.affinity import Requirement, Toleration
from cluster.objects.kube_object import KubeObject
from cluster.objects.pod import Metadata


class Device(NamedTuple):
    """A device as claims name it."""

    node: str
    pool: str
    name: str


class HeldClaim(Struct, frozen=True, gc=False):
    """A claim that holds GPUs."""

    namespace: str
    name: str
    uid: str
    owner: str | None
    """Uid of the object that controls it, such as a pod."""
    devices: frozenset[Device]
    users: tuple[str, ...] = ()
    """Uids of the pods that may use it."""
    bypassed: float | None = None
    """When devices were allocated to it although it does not tolerate our taint; None: it does, or
    the time is not known [s since 1970]."""


def held_twice(claims: Iterable[HeldClaim]) -> frozenset[Device]:
    """Return the devices that several claims hold: the API server compares no claims."""
    counts = Counter(device for claim in claims for device in claim.devices)
    return frozenset(device for device, count in counts.items() if count > 1)


class _Term(KubeObject, frozen=True):
    match_fields: list[Requirement] | None = None


class _NodeSelector(KubeObject, frozen=True):
    node_selector_terms: list[_Term] | None = None

    @property
    def node(self) -> str | None:
        """The only node that it selects by name; None: it selects by something else."""
        match self.node_selector_terms:
            case [_Term(match_fields=[Requirement(key=key, operator="In", values=[str(name)])])]:
                return name if key == NODE_NAME_FIELD else None
            case _:
                return None


class _Result(KubeObject, frozen=True):
    request: str = ""
    driver: str = ""
    pool: str = ""
    device: str = ""
    admin_access: bool | None = None
    tolerations: list[Toleration] | None = None

    @property
    def tolerates(self) -> bool:
        """The claim tolerates our taint, or only observes."""
        keys = (one.key for one in self.tolerations or ())
        return bool(self.admin_access) or any(key in {"", PLACED} for key in keys)


class _Devices(KubeObject, frozen=True):
    results: list[_Result] | None = None


class _Allocation(KubeObject, frozen=True):
    devices: _Devices = _Devices()
    node_selector: _NodeSelector | None = None
    allocation_timestamp: str | None = None

    @property
    def bypassed(self) -> float | None:
        """As that of `HeldClaim`."""
        results = self.devices.results or ()
        if all(one.tolerates for one in results if one.driver == DRA_GPU_DRIVER):
            return None
        try:
            return datetime.fromisoformat(self.allocation_timestamp or "").timestamp()
        except ValueError:
            return None


class _User(KubeObject, frozen=True):
    uid: str = ""


class _ClaimStatus(KubeObject, frozen=True):
    allocation: _Allocation | None = None
    reserved_for: list[_User] | None = None


class ClaimObject(KubeObject, frozen=True):
    """The fields of a ResourceClaim that Linkwise reads: which devices it holds."""

    kind: str = "ResourceClaim"
    metadata: Metadata = Metadata()
    status: _ClaimStatus = _ClaimStatus()

    @property
    def content(self) -> HeldClaim | None:
        """The claim with its GPUs; None if it holds none.

        Those that it only observes (adminAccess) are free for others. Without a node in its
        allocation, the pool has the name of the node, as the driver names it.
        """
        allocation = self.status.allocation
        if allocation is None:
            return None
        node = allocation.node_selector.node if allocation.node_selector else None
        devices = frozenset(
            Device(node or result.pool, result.pool, result.device)
            for result in allocation.devices.results or ()
            if result.driver == DRA_GPU_DRIVER and not result.admin_access
        )
        owners = self.metadata.owner_references or ()
        owner = next((one.uid for one in owners if one.controller), None)
        if not devices:
            return None
        metadata = self.metadata
        return HeldClaim(
            metadata.namespace,
            metadata.name,
            metadata.uid,
            owner,
            devices,
            tuple(user.uid for user in self.status.reserved_for or ()),
            allocation.bypassed,
        )
