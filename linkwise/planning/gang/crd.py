"""Types of the custom resource Gang, and its reader.

Its `spec` holds the plan: after a crash of the scorer, the next leader completes it. Its `status`
is for users; the next leader reads since when its conditions hold, and nothing else decides by it.
"""

import re
from collections.abc import Mapping
from enum import StrEnum
from hashlib import sha256
from typing import Annotated

import msgspec
from msgspec import Meta

from linkwise.cluster.gang import GangKey, Link
from linkwise.cluster.keys import API_VERSION
from linkwise.cluster.objects.metadata import Owner
from linkwise.planning.gang.crd_plan import GangPlan, NodeGPUs
from linkwise.runtime.kube.objects import OwnerReference, Written
from linkwise.runtime.kube.paths import api_path, path_below

GANGS = api_path(API_VERSION, "gangs")
"""The Gangs of all namespaces."""
PLACED, ASSEMBLED = "Placed", "Assembled"
GPUS_HEALTHY, GPUS_AS_PLANNED, PREPARED = "GPUsHealthy", "GPUsAsPlanned", "PodsPrepared"
"""The types of a Gang's conditions. The last three are absent until they do not hold."""
MEMBERS_MAX = 4096
"""Most members of a Gang: a larger plan could not be stored."""
_NAME_MAX = 63
_OUTSIDE = re.compile(r"[^a-z0-9]+")


class Phase(StrEnum):
    """The progress of a gang."""

    ASSEMBLING = "Assembling"
    """Members are missing, or their number is unknown."""
    WAITING = "Waiting"
    """It does not fit now."""
    COMMITTING = "Committing"
    """Its GPUs are reserved, and the gates of its pods are being removed."""
    PLACED = "Placed"
    """All its members are bound."""
    FINISHED = "Finished"
    """All its members have succeeded, or its owner has ended; it holds no GPUs."""
    SUSPENDED = "Suspended"
    """It has no pods, since its owner makes none for now."""
    GONE = "Gone"
    """It has no pods, and its owner is not known to be suspended."""


class GangSpec(Written, frozen=True):
    """The gang and its plan."""

    gang: str
    """The mark's name, truncated where it is very long."""
    link: Link
    size: Annotated[int, Meta(ge=1)] | None = None
    """Members that are placed together; None where it is unknown, or more than are placed."""
    owner: str | None = None
    plan: GangPlan | None = None


class GangCondition(Written, frozen=True):
    """A condition, for `kubectl wait`."""

    type: str
    status: str
    last_transition_time: str
    reason: str
    message: str


class GangStatus(Written, frozen=True):
    """The state of a gang, for users."""

    phase: Phase | None = None
    members: str = ""
    """`3/4`: the present ones while some wait, else the bound ones; `3/?` of an unknown number."""
    nodes: str = ""
    """The nodes of its members: their names, or their number."""
    gpus: int = 0
    """Number of GPUs of the members, whole or in part."""
    held: tuple[NodeGPUs, ...] = ()
    """These GPUs."""
    bandwidth: float | None = None
    """Of these [GB/s]."""
    reserved: tuple[NodeGPUs, ...] = ()
    """GPUs that are reserved for the replacements of members, or for a late launcher."""
    nominated_nodes: tuple[NodeGPUs, ...] = ()
    """GPUs that are reserved for it while others are evicted."""
    reason: str = ""
    """Why it is not placed; empty when it is."""
    conditions: tuple[GangCondition, ...] = ()
    observed_generation: int = 0
    """The generation of the Gang that it describes: the plan is in the spec."""

    @property
    def unhealthy(self) -> str | None:
        """Its unhealthy GPUs; empty: all are healthy again; None: none was unhealthy."""
        return self.problem(GPUS_HEALTHY)

    def problem(self, kind: str) -> str | None:
        """Return why a condition does not hold; empty: it holds; None: there is none."""
        for each in self.conditions:
            if each.type == kind:
                return each.message if each.status == "False" else ""
        return None

    def since(self, kind: str, status: str) -> str | None:
        """Return the time since which a condition has this status; None where it has another."""
        times = (
            condition.last_transition_time
            for condition in self.conditions
            if (condition.type, condition.status) == (kind, status)
        )
        return next(times, None)


class GangMetadata(Written, frozen=True):
    """The metadata that is read or written."""

    name: str = ""
    namespace: str = ""
    uid: str = ""
    resource_version: str = ""
    generation: int = 0
    creation_timestamp: str | None = None
    annotations: Mapping[str, str] = {}
    owner_references: tuple[OwnerReference, ...] = ()


class Gang(Written, frozen=True):
    """A Gang."""

    metadata: GangMetadata
    spec: GangSpec
    status: GangStatus = GangStatus()
    api_version: str = ""
    kind: str = ""

    @property
    def key(self) -> GangKey:
        """The gang that this object describes."""
        return GangKey(self.metadata.namespace, self.spec.gang, self.spec.owner or "")

    @property
    def owner(self) -> Owner | None:
        """Its job; None where pods own it."""
        owners = (
            Owner(
                kind=reference.kind,
                api_version=reference.api_version,
                name=reference.name,
                uid=reference.uid,
            )
            for reference in self.metadata.owner_references
            if reference.uid == self.spec.owner
        )
        return next(owners, None)

    @property
    def path(self) -> str:
        """Its path on the API server."""
        return path_below(gangs_of(self.metadata.namespace), self.metadata.name)

    @property
    def assembled_since(self) -> str | None:
        """The time since which it could be planned (RFC 3339); None: it cannot be planned now."""
        return self.status.since(ASSEMBLED, "True")


def placed_size(gang: Gang) -> tuple[GangKey, int] | None:
    """Return the key of a gang that has a plan, and how many members it needed then."""
    plan = gang.spec.plan
    return (gang.key, gang.spec.size or len(plan.members)) if plan else None


def gangs_of(namespace: str) -> str:
    """Return the collection of a namespace's Gangs."""
    return api_path(API_VERSION, "namespaces", namespace, "gangs")


def name_of(key: GangKey) -> str:
    """Return a valid name for a gang's object, different for each key.

    It begins with the mark's name as far as possible; the digest distinguishes jobs that were
    submitted again under the same name.
    """
    # Neither a namespace nor a uid can contain the separator.
    whole = "\0".join((key.namespace, key.owner, key.name))
    digest = sha256(whole.encode(errors="surrogatepass")).hexdigest()[:8]
    stem = _OUTSIDE.sub("-", key.name.lower())[: _NAME_MAX - 9].strip("-")
    return f"{stem or 'gang'}-{digest}"


def object_key(key: GangKey) -> tuple[str, str]:
    """Return namespace and name of a gang's object."""
    return key.namespace, name_of(key)


def truncated(text: str, longest: int) -> str:
    """Return a text of at most so many characters; an ellipsis stands for the rest."""
    return text if len(text) <= longest else f"{text[: longest - 1]}…"


def read_gang(raw: bytes | msgspec.Raw) -> Gang:
    """Return a Gang from its JSON.

    Raises:
        msgspec.DecodeError: The JSON is not a Gang.
    """
    return _gangs.decode(raw)


_gangs = msgspec.json.Decoder(Gang)
