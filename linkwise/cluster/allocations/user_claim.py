"""The devices that Linkwise allocates to the claim of a pod: its own, or made from its template.

kube-scheduler takes such a claim as it is: it binds the pod to the node of the allocation. So what
is written is what kube-scheduler itself would write for these devices.

Source: kubernetes v1.36, `staging/src/k8s.io/dynamic-resource-allocation/structured` and
`pkg/controller/resourceclaim/controller.go`.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from linkwise.cluster.allocations.device_claim import (
    TOLERATION,
    Body,
    ClaimError,
    ClaimOwner,
    StoredClaim,
)
from linkwise.cluster.allocations.record import Allocation
from linkwise.cluster.cel.values import DeviceFacts
from linkwise.cluster.keys import CLAIM_PROTECTION, DRA_GPU_DRIVER, NODE_NAME_FIELD, TERM
from linkwise.cluster.objects.metadata import Metadata
from linkwise.cluster.requests.user_claims.claim_spec import (
    ClaimedDevices,
    Delegated,
    asked_of,
)
from linkwise.cluster.requests.user_claims.device_class import DeviceClass
from linkwise.cluster.requests.user_claims.pod_claims import UserClaims
from linkwise.runtime.kube.paths import api_path, path_below

_VERSION = "resource.k8s.io/v1"


class ClaimMetadata(Metadata, frozen=True):
    """ObjectMeta of a claim."""

    finalizers: list[str] | None = None


class UserClaim(StoredClaim, frozen=True):
    """A stored claim with what is needed to allocate it."""

    metadata: ClaimMetadata = ClaimMetadata()

    def is_of_another_pod(self, uid: str) -> bool:
        """Return whether another pod than the one with this uid controls it."""
        return self.metadata.controlling_pod not in {None, uid}

    def is_reserved_by_others(self, uid: str) -> bool:
        """Return whether another pod than the one with this uid may use it."""
        return any(user.uid != uid for user in self.status.reserved_for or ())


@dataclass(frozen=True, slots=True)
class PodClaim:
    """A claim that a pod brings: its own, or made from its template."""

    owner: ClaimOwner
    name: str

    @property
    def path(self) -> str:
        """Its path at the API server."""
        return api_path(_VERSION, "namespaces", self.owner.namespace, "resourceclaims", self.name)

    @property
    def status_path(self) -> str:
        """The path of its status."""
        return path_below(self.path, "status")

    def may_be_released(self, stored: UserClaim) -> bool:
        """Return whether it is allocated, and to no other pod."""
        uid = self.owner.uid
        is_of_others = stored.is_of_another_pod(uid) or stored.is_reserved_by_others(uid)
        return stored.is_used and not is_of_others


@dataclass(frozen=True, slots=True)
class ClaimAllocation:
    """The devices that the claim of a pod is to have."""

    claim: PodClaim
    planned: ClaimedDevices
    """What the pod was planned for."""
    node: str
    pool: str
    devices: Mapping[str, tuple[str, ...]]
    """Their names, by request."""

    def problem(
        self, stored: UserClaim, classes: Mapping[str, DeviceClass], term: int
    ) -> str | None:
        """Return why the claim cannot have these devices; None: it can.

        Args:
            stored: The claim as it is.
            classes: The DeviceClasses that it names.
            term: Of this leader.
        """
        if problem := self._conflict(stored):
            return problem
        if stored.metadata.deletion_timestamp:
            return "is being deleted: delete its pod, so that both are created again"
        # A claim that stays may be older than the Lease that counts the terms.
        if stored.is_used and stored.term > term:
            return "was written by a later leader"
        asked = asked_of(stored.spec, classes)
        if isinstance(asked, Delegated):
            return f"is not evaluated by Linkwise: {asked.reason}"
        if asked is None or not asked.is_same(self.planned):
            return (
                "asks for other devices than when the pod was created: delete the pod, so that it "
                "is created again"
            )
        return None

    def _conflict(self, stored: UserClaim) -> str | None:
        """Return why the claim is not that of its pod alone."""
        uid = self.claim.owner.uid
        if stored.is_of_another_pod(uid):
            return "belongs to another pod: delete this pod, so that it is created again"
        if stored.is_reserved_by_others(uid):
            return "is reserved for another pod: each pod of a gang needs a claim of its own"
        return None

    def is_written(self, stored: UserClaim) -> bool:
        """Return whether the claim has these devices, for its pod."""
        return (
            bool(stored.status.reserved_for)
            and stored.status.allocation is not None
            and (_devices_of(stored.status.allocation) == self._devices(stored.spec))
        )

    def metadata_patch(self, stored: UserClaim, term: int) -> Body | None:
        """Return the merge patch that prepares the claim for its allocation; None: it is prepared.

        Args:
            stored: The claim; another version of it is not changed.
            term: Of this leader.
        """
        finalizers = stored.metadata.finalizers or []
        if CLAIM_PROTECTION in finalizers and stored.term == term:
            return None
        return {
            "metadata": {
                **_only(stored),
                "finalizers": list(dict.fromkeys((*finalizers, CLAIM_PROTECTION))),
                "annotations": {TERM: str(term)},
            }
        }

    def status_patch(self, stored: UserClaim, classes: Mapping[str, DeviceClass], now: str) -> Body:
        """Return the merge patch that allocates the devices, and reserves them for the pod.

        Without a time, kube-scheduler 1.36 and 1.37 would add one when it reserves the claim for a
        second pod, and be refused, since an allocation cannot be changed.

        Args:
            stored: The claim without an allocation; another version of it is not changed.
            classes: The DeviceClasses that it names.
            now: The time (RFC 3339).
        """
        owner = self.claim.owner
        selected = {"key": NODE_NAME_FIELD, "operator": "In", "values": [self.node]}
        allocation = {
            "devices": {
                "results": list(self._results(stored.spec)),
                "config": list(_configs(stored.spec, classes)),
            },
            "nodeSelector": {"nodeSelectorTerms": [{"matchFields": [selected]}]},
            "allocationTimestamp": now,
        }
        user = {"resource": "pods", "name": owner.name, "uid": owner.uid}
        status = {"allocation": allocation, "reservedFor": [user]}
        return {"metadata": _only(stored), "status": status}

    def _devices(self, spec: Body) -> list[tuple[object, object, object]]:
        return [
            (request["name"], self.pool, name)
            for request in _requests(spec)
            for name in self.devices[str(request["name"])]
        ]

    def _results(self, spec: Body) -> Iterator[Body]:
        tolerations = {
            request["name"]: exactly.get("tolerations")
            for request in _requests(spec)
            if isinstance(exactly := request.get("exactly"), dict)
        }
        # Ours comes last: the GPUs are on a node with our taint.
        for request, pool, device in self._devices(spec):
            tolerated = tolerations.get(request)
            yield {
                "request": request,
                "driver": DRA_GPU_DRIVER,
                "pool": pool,
                "device": device,
                "tolerations": [*(tolerated if isinstance(tolerated, list) else ()), TOLERATION],
            }


def release_patch(stored: UserClaim) -> Body:
    """Return the merge patch that takes the devices from a claim again."""
    status = {"allocation": None, "reservedFor": None, "devices": None}
    return {"metadata": _only(stored), "status": status}


class PoolDevice(NamedTuple):
    """A device of a pool."""

    name: str
    facts: DeviceFacts


def allocations_to(
    claims: Sequence[PodClaim],
    brought: UserClaims,
    allocation: Allocation,
    pool: str,
    devices: Mapping[str, PoolDevice],
) -> list[ClaimAllocation]:
    """Return the allocation of planned GPUs to the claims of a pod.

    Args:
        claims: The claims.
        brought: What each of them asks for, in the same order.
        allocation: The planned GPUs.
        pool: The pool of their node.
        devices: By UUID of a GPU: its device in the pool.

    Raises:
        ClaimError: The pool does not have these GPUs, or the constraints do not hold for them.
    """
    shares, node = allocation.gpus.shares, allocation.node
    found = [devices[share.uuid] for share in shares if share.uuid and share.uuid in devices]
    if len(found) != len(shares):
        raise ClaimError(f"the slices of node {node} do not have its planned GPUs")
    if len(found) != brought.gpus:
        raise ClaimError(f"it asks for other than the {len(found)} planned GPUs")
    divided = brought.divided([device.facts for device in found])
    if divided is None:
        raise ClaimError("its constraints do not hold for its planned GPUs any more")
    return [
        ClaimAllocation(
            claim,
            planned,
            node,
            pool,
            {
                name: tuple(found[i].name for i in divided[f"{reference}/{name}"])
                for name, _ in planned.amounts
            },
        )
        for claim, (reference, planned) in zip(claims, brought.claims, strict=True)
    ]


def _requests(spec: Body) -> list[Body]:
    devices = spec.get("devices")
    requests = devices.get("requests") if isinstance(devices, dict) else None
    return requests if isinstance(requests, list) else []


def _configs(spec: Body, classes: Mapping[str, DeviceClass]) -> Iterator[Body]:
    """Yield the configurations of classes, then those of the claim, as kube-scheduler does."""
    for request in _requests(spec):
        exactly = request.get("exactly")
        name = exactly.get("deviceClassName") if isinstance(exactly, dict) else None
        for config in classes[str(name)].spec.config or () if str(name) in classes else ():
            yield {**config, "source": "FromClass", "requests": [request["name"]]}
    devices = spec.get("devices")
    for config in (devices.get("config") if isinstance(devices, dict) else None) or ():
        yield {**config, "source": "FromClaim"}


def _devices_of(allocation: Mapping[str, object]) -> list[tuple[object, object, object]]:
    devices = allocation.get("devices")
    results = devices.get("results") if isinstance(devices, dict) else None
    return [
        (result.get("request"), result.get("pool"), result.get("device"))
        for result in results or ()
        if isinstance(result, dict)
    ]


def _only(stored: UserClaim) -> Body:
    """Return the metadata by which a patch applies to one version of an object."""
    metadata = stored.metadata
    return {"uid": metadata.uid, "resourceVersion": metadata.resource_version}
