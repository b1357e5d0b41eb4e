"""The ResourceClaim that gives one pod the GPUs of its plan, on a claims node.

The pod names the claim since its admission; the claim is created once the GPUs are chosen. It has
one request for each app container with GPUs, which selects exactly these by their UUIDs.

Source: kubernetes v1.36, `staging/src/k8s.io/api/resource/v1/types.go`.
"""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import Enum, auto
from typing import TypeAlias

from msgspec import Struct, field

from linkwise.cluster.allocations.gpus import GPUShare
from linkwise.cluster.allocations.record import divide_gpus
from linkwise.cluster.keys import (
    DRA_GPU_DRIVER,
    MANAGED_BY,
    PLACED,
    POD_CLAIM,
    SCORER,
    TERM,
)
from linkwise.cluster.objects.metadata import Metadata
from linkwise.cluster.objects.pod import NewPodSpec
from linkwise.cluster.requests.claimed import claim_request
from linkwise.cluster.requests.container_request import all_containers
from linkwise.cluster.requests.request import Request
from linkwise.cluster.requests.user_claims.claim_spec import Asked, asked_of, present_form
from linkwise.cluster.requests.user_claims.device_class import DeviceClass
from linkwise.runtime.kube.paths import api_path, path_below

Body: TypeAlias = dict[str, object]

_VERSION = "resource.k8s.io/v1"
TOLERATION = {"key": PLACED, "operator": "Exists", "effect": "NoSchedule"}
"""Of the taint of claims nodes."""
_UUID = re.compile(r"[A-Za-z0-9-]{1,64}")
"""Slices are written by nodes, and a UUID becomes part of an expression (CEL)."""


class ClaimError(ValueError):
    """A claim cannot be made; the message says why, for users."""


@dataclass(frozen=True, slots=True)
class ClaimOwner:
    """The pod of a claim."""

    namespace: str
    name: str
    uid: str


@dataclass(frozen=True, slots=True)
class DeviceRequest:
    """The GPUs of one app container."""

    name: str
    """Such as `container-0`."""
    count: int
    uuids: tuple[str, ...] | None
    """None: they are not chosen yet."""

    @property
    def body(self) -> Body:
        """The request as it is in the claim."""
        exactly: Body = {
            "deviceClassName": DRA_GPU_DRIVER,
            "allocationMode": "ExactCount",
            "count": self.count,
            "tolerations": [TOLERATION],
        }
        if self.uuids is not None:
            texts = ", ".join(f"'{uuid}'" for uuid in self.uuids)
            selected = f"device.attributes['{DRA_GPU_DRIVER}'].uuid in [{texts}]"
            exactly["selectors"] = [{"cel": {"expression": selected}}]
        return {"name": self.name, "exactly": exactly}


@dataclass(frozen=True, slots=True)
class DeviceClaim:
    """The claim of one pod."""

    owner: ClaimOwner
    name: str
    requests: tuple[DeviceRequest, ...]

    @property
    def path(self) -> str:
        """Its path at the API server."""
        return path_below(self.collection, self.name)

    @property
    def collection(self) -> str:
        """The path of all claims of its namespace."""
        return api_path(_VERSION, "namespaces", self.owner.namespace, "resourceclaims")

    @property
    def spec(self) -> Body:
        """Its specification."""
        return {"devices": {"requests": [request.body for request in self.requests]}}

    def body(self, term: int | None = None) -> Body:
        """Return the object.

        Without `blockOwnerDeletion`, for which some clusters demand more rights.

        Args:
            term: Of the leader that creates it; None: nobody does.
        """
        owner = self.owner
        reference = {"apiVersion": "v1", "kind": "Pod", "name": owner.name, "uid": owner.uid}
        metadata: Body = {
            "name": self.name,
            "namespace": owner.namespace,
            "labels": {MANAGED_BY: SCORER},
            "ownerReferences": [{**reference, "controller": True}],
        }
        if term is not None:
            metadata["annotations"] = {TERM: str(term)}
        return {
            "apiVersion": _VERSION,
            "kind": "ResourceClaim",
            "metadata": metadata,
            "spec": self.spec,
        }

    def check_references(self, spec: NewPodSpec) -> None:
        """Raise ClaimError if a container of the pod names a request that the claim lacks.

        The kubelet would start such a container without any GPU.
        """
        names = {request.name for request in self.requests}
        for container in all_containers(spec):
            for reference in (container.resources.claims if container.resources else None) or ():
                if reference.name == POD_CLAIM and reference.request not in names:
                    raise ClaimError(
                        f"container {container.name} refers to request {reference.request!r} of "
                        f"its claim, which has only {', '.join(sorted(names))}"
                    )


def claim_of(
    owner: ClaimOwner, name: str, request: Request, shares: Sequence[GPUShare] | None
) -> DeviceClaim:
    """Return the claim of a pod.

    Args:
        owner: The pod.
        name: Of the claim, by which the pod refers to it.
        request: The GPUs that the pod asks for.
        shares: Its GPUs, in the order of containers; None: they are not chosen yet.

    Raises:
        ClaimError: A GPU has no UUID that can be selected, or the GPUs are not as many.
    """
    apps = [one for one in request.containers if one.gpus and not one.init]
    if shares is not None and sum(one.gpus for one in apps) != len(shares):
        raise ClaimError(f"its app containers ask for other than the {len(shares)} planned GPUs")
    uuids: list[tuple[str, ...] | None] = [None] * len(apps)
    if shares is not None:
        parts = zip(request.containers, divide_gpus(tuple(shares), request), strict=True)
        uuids = [tuple(map(_uuid, part)) for one, part in parts if one in apps]
    return DeviceClaim(
        owner,
        name,
        tuple(
            DeviceRequest(claim_request(one.index), one.gpus, names)
            for one, names in zip(apps, uuids, strict=True)
        ),
    )


def _uuid(gpu: GPUShare) -> str:
    if gpu.uuid is None or not _UUID.fullmatch(gpu.uuid):
        raise ClaimError(f"GPU {gpu.i} has no valid UUID, so that no claim can select it")
    return gpu.uuid


class _Reservation(Struct, frozen=True):
    """A user of a claim."""

    uid: str = ""
    name: str = ""


class _Status(Struct, frozen=True, rename="camel"):
    allocation: dict[str, object] | None = None
    reserved_for: list[_Reservation] | None = None


class StoredClaim(Struct, frozen=True):
    """A ResourceClaim as it is stored, with the fields that are compared."""

    api_version: str = field(name="apiVersion", default="")
    metadata: Metadata = Metadata()
    spec: Body = {}
    status: _Status = _Status()

    def asked(self, classes: Mapping[str, DeviceClass]) -> Asked:
        """Return what it asks for, whether or not it has its devices already.

        Args:
            classes: The DeviceClasses that it names.
        """
        return asked_of(present_form(self.spec, self.api_version), classes)

    @property
    def controller(self) -> str | None:
        """Uid of the object that controls it; None: nothing does."""
        owners = self.metadata.owner_references or ()
        return next((owner.uid for owner in owners if owner.controller), None)

    @property
    def term(self) -> int:
        """The term of the leader that created it; 0: it does not say."""
        text = (self.metadata.annotations or {}).get(TERM, "")
        return int(text) if text.isascii() and text.isdigit() and len(text) <= 18 else 0

    @property
    def is_used(self) -> bool:
        """It has devices, or a pod has reserved it, so that it cannot be replaced."""
        return self.status.allocation is not None or bool(self.status.reserved_for)


class Match(Enum):
    """What a stored claim is to the pod whose claim has its name."""

    SAME = auto()
    """The wanted one, created under this leader."""
    OUTDATED = auto()
    """Of this pod, for other GPUs or by an earlier leader: it is replaced."""
    UNOWNED = auto()
    """Someone created it under this name: it is replaced, and counted as a conflict."""
    FOREIGN = auto()
    """It has another owner, a later leader created it, or it is in use: it stays, and the pod
    waits."""


def compare(wanted: DeviceClaim, stored: StoredClaim, term: int) -> Match:
    """Return what a stored claim of the wanted name is.

    The specifications are compared as a whole: a tenant may have created a claim with our requests
    and a configuration of its own. A claim of an earlier leader is never kept, since that leader
    may still be about to delete it, by its uid. That of a later leader stays: this one has lost its
    leadership, which its next patch of a pod shows. A tenant can forge a term, for its own pods.

    Args:
        wanted: The claim.
        stored: The claim of this name.
        term: Of this leader.
    """
    is_ours = stored.controller == wanted.owner.uid
    if is_ours and stored.term == term and stored.spec == wanted.spec:
        return Match.SAME
    if stored.is_used or (is_ours and stored.term > term):
        return Match.FOREIGN
    if stored.controller is None:
        return Match.UNOWNED
    return Match.OUTDATED if is_ours else Match.FOREIGN
