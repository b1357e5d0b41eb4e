"""Decode ResourceClaims: the devices of NVIDIA's driver that they hold.

A claim's allocation names devices by driver, pool and name, and their node.

Source: kubernetes v1.36, `staging/src/k8s.io/api/resource/v1/types.go`.
"""

from collections import Counter
from collections.abc import Iterable
from functools import lru_cache
from sys import intern
from typing import NamedTuple

from msgspec import Struct

from linkwise.cluster.keys import DRA_GPU_DRIVER, NODE_NAME_FIELD, PLACED
from linkwise.cluster.nodes.node import Taint
from linkwise.cluster.objects.affinity import (
    NodeSelector,
    NodeSelectorTerm,
    Requirement,
    Toleration,
)
from linkwise.cluster.objects.kube_object import KubeObject
from linkwise.cluster.objects.metadata import Metadata
from linkwise.cluster.objects.selector import tolerates
from linkwise.cluster.objects.time import seconds_of
from linkwise.cluster.volumes.node_choice import NodeChoice, choice_of

_TAINT = Taint(PLACED, "", "NoSchedule")


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
    """Uid of the pod that controls it; None: no pod does, so that several may name it."""
    devices: frozenset[Device]
    bypassed: float | None = None
    """When it was allocated [s since 1970], if it does not tolerate the taint of claims nodes."""
    users: tuple[str, ...] = ()
    """Uids of the pods that may use it, the first one first."""

    @property
    def holder(self) -> str | None:
        """Uid of the pod whose GPUs these are: it controls the claim, or has reserved it first."""
        return self.owner or next(iter(self.users), None)

    def is_used_by_others(self, uid: str) -> bool:
        """Return whether another pod than the one with this uid has it, or may use it."""
        return self.holder not in {None, uid} or any(user != uid for user in self.users)


def held_twice(claims: Iterable[HeldClaim]) -> frozenset[Device]:
    """Return the devices that several claims hold: the API server compares no claims."""
    counts = Counter(device for claim in claims for device in claim.devices)
    return frozenset(device for device, count in counts.items() if count > 1)


class _NodeSelector(NodeSelector, frozen=True):
    @property
    def node(self) -> str | None:
        """The only node that it selects by name; None: it selects by something else."""
        match self.node_selector_terms:
            case [
                NodeSelectorTerm(
                    match_fields=[Requirement(key=key, operator="In", values=[str(name)])]
                )
            ]:
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
    def is_held(self) -> bool:
        """It is a GPU that is not free for others, as it would be if it were only observed."""
        return self.driver == DRA_GPU_DRIVER and not self.admin_access


class _Devices(KubeObject, frozen=True):
    results: list[_Result] | None = None


class _Allocation(KubeObject, frozen=True):
    devices: _Devices = _Devices()
    node_selector: _NodeSelector | None = None
    allocation_timestamp: str | None = None

    @property
    def held(self) -> list[_Result]:
        """The GPUs that it holds."""
        return [result for result in self.devices.results or () if result.is_held]

    @property
    def bypassed(self) -> float | None:
        """When GPUs were allocated that have no toleration of our taint; None: they have."""
        if all(tolerates(result.tolerations, _TAINT) for result in self.held):
            return None
        return seconds_of(self.allocation_timestamp)


@lru_cache(maxsize=1024)
def _shared(choice: NodeChoice) -> NodeChoice:
    """Return one object for all claims of a node, which may be many."""
    return choice


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
    def place(self) -> NodeChoice | None:
        """The nodes to which devices of other drivers tie its pods; None: it has no such devices.

        Its pods can run on any node where there is no selector.
        """
        allocation = self.status.allocation
        if allocation is None or allocation.held or allocation.node_selector is None:
            return None
        return _shared(choice_of(allocation.node_selector.node_selector_terms or ()))

    @property
    def content(self) -> HeldClaim | None:
        """The claim with its GPUs; None if it holds none.

        Without a node in its allocation, the pool has the name of the node, as the driver names it.
        """
        allocation = self.status.allocation
        if allocation is None:
            return None
        node = allocation.node_selector.node if allocation.node_selector else None
        # Many claims name the same nodes and devices.
        devices = frozenset(
            Device(intern(node or result.pool), intern(result.pool), intern(result.device))
            for result in allocation.held
        )
        if not devices:
            return None
        metadata = self.metadata
        owner = metadata.controlling_pod
        users = (user.uid for user in self.status.reserved_for or ())
        return HeldClaim(
            intern(metadata.namespace),
            metadata.name,
            metadata.uid,
            owner,
            devices,
            allocation.bypassed,
            tuple(owner if uid == owner else uid for uid in users),
        )
