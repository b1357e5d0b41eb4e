"""The Gang as the API server keeps it: what is written, and what is read again after a crash.

Its `spec` holds the plan, so that who comes after a scorer that crashed can carry the plan out to
its end. Its `status` is for people alone: nothing is decided by it.
"""

import re
from collections.abc import Iterable
from enum import StrEnum
from hashlib import sha256
from typing import Annotated, TypeAlias

import msgspec
from msgspec import Meta, Struct

from cluster.gang import GangKey, Link
from cluster.keys import API_VERSION
from cluster.pod import Owner
from cluster.record import Index
from scorer.gang.pod_info import PodInfo

GANGS = f"/apis/{API_VERSION}/gangs"
"""The Gangs of all namespaces."""
_NAME_MAX, _GANG_MAX, _REASON_MAX, _NODES_MAX = 63, 253, 4096, 40
_PLACED, _ASSEMBLED = "Placed", "Assembled"
_OUTSIDE = re.compile(r"[^a-z0-9]+")

Steps: TypeAlias = list[dict[str, object]]
"""A JSON patch."""


class Phase(StrEnum):
    """How far a gang is."""

    ASSEMBLING = "Assembling"
    """Members are missing, or it is not known how many there are to be."""
    WAITING = "Waiting"
    """It does not fit now."""
    COMMITTING = "Committing"
    """Its GPUs are kept, and its pods are let go to their nodes."""
    PLACED = "Placed"
    """All its members are bound."""
    FINISHED = "Finished"
    """All its members have succeeded, and hold no GPUs."""
    SUSPENDED = "Suspended"
    """None of its members is there, since its owner makes none for now."""
    GONE = "Gone"
    """None of its members is there, and nothing tells that its owner is suspended."""


class _Wire(Struct, frozen=True, rename="camel", omit_defaults=True, gc=False):
    """Absent where it is the default; no cycles, so that garbage collection need not look."""


class Reference(_Wire, frozen=True):
    """An object of the same namespace."""

    api_version: str
    kind: str
    name: str
    uid: str


class PlannedPod(_Wire, frozen=True):
    """Where one member goes."""

    pod: str
    """Its name."""
    uid: str
    node: str
    gpus: tuple[Index, ...]
    """Ascending; of replicas one entry each, so that an index may repeat."""


class NodeGPUs(_Wire, frozen=True):
    """What a gang has of one node."""

    node: str
    gpus: tuple[Index, ...]
    """Ascending, each once; none where NVIDIA's plugin chooses."""


class Held(_Wire, frozen=True):
    """What the members of a gang have now."""

    nodes: tuple[NodeGPUs, ...] = ()
    """By name of the node."""
    bandwidth: float | None = None
    """Modelled all-reduce bandwidth over all of them [GB/s]."""


class GangPlan(_Wire, frozen=True):
    """Where all members go, and how good that is [GB/s]."""

    id: str
    exact: bool
    members: tuple[PlannedPod, ...]
    bandwidth: float | None = None
    best_possible: float | None = None
    """Of the same members on the empty cluster."""
    index_order: float | None = None
    """Of nodes by name and lowest free indices."""
    domain: str | None = None

    @property
    def nodes(self) -> tuple[str, ...]:
        """Its nodes, in the order of ranks."""
        return tuple(dict.fromkeys(member.node for member in self.members))

    @property
    def held(self) -> Held:
        """What its members have once it is carried out."""
        return Held(held_nodes((one.node, one.gpus) for one in self.members), self.bandwidth)


class GangSpec(_Wire, frozen=True):
    """What is planned."""

    gang: str
    """The mark's name, cut where it is very long."""
    link: Link
    size: Annotated[int, Meta(ge=1)] | None = None
    """Members that are placed together; None where nothing tells."""
    owner: str | None = None
    plan: GangPlan | None = None


class GangCondition(_Wire, frozen=True):
    """Whether it is placed, or could be planned, as `kubectl wait` asks."""

    type: str
    status: str
    last_transition_time: str
    reason: str
    message: str


class GangStatus(_Wire, frozen=True):
    """What people are told."""

    phase: Phase | None = None
    members: str = ""
    """`3/4`: there while some wait, else bound, of how many; `3/?` where nothing tells."""
    nodes: str = ""
    """Where members are, or are let go to: their names, or how many there are."""
    gpus: int = 0
    """How many GPUs the members have, whole or in part."""
    held: tuple[NodeGPUs, ...] = ()
    """Which ones."""
    bandwidth: float | None = None
    """Of these [GB/s]."""
    reason: str = ""
    """Why it is not placed; empty when it is."""
    conditions: tuple[GangCondition, ...] = ()


class GangMetadata(_Wire, frozen=True):
    """Which one, in which state."""

    name: str = ""
    namespace: str = ""
    uid: str = ""
    resource_version: str = ""
    creation_timestamp: str | None = None
    owner_references: tuple[Reference, ...] = ()


_NOTHING = Held()
_ARE_ASSEMBLED = frozenset({Phase.WAITING, Phase.COMMITTING, Phase.PLACED})


class Gang(_Wire, frozen=True):
    """A Gang."""

    metadata: GangMetadata
    spec: GangSpec
    status: GangStatus = GangStatus()
    api_version: str = ""
    kind: str = ""

    @property
    def key(self) -> GangKey:
        """The gang that it is the object of."""
        return GangKey(self.metadata.namespace, self.spec.gang, self.spec.owner or "")

    @property
    def owner(self) -> Owner | None:
        """Its job; None where it goes with its pods."""
        found = (one for one in self.metadata.owner_references if one.uid == self.spec.owner)
        return next(
            (
                Owner(kind=one.kind, api_version=one.api_version, name=one.name, uid=one.uid)
                for one in found
            ),
            None,
        )

    @property
    def path(self) -> str:
        """Where the API server has it."""
        return f"{gangs_of(self.metadata.namespace)}/{self.metadata.name}"

    @property
    def assembled_since(self) -> str | None:
        """Since when all members are there and nothing holds it (RFC 3339); None: they are not."""
        return _since(self.status, _ASSEMBLED, "True")

    @property
    def unfinished(self) -> GangPlan | None:
        """The plan, unless all its pods were told to be bound: it may be half carried out."""
        return None if self.status.phase is Phase.PLACED else self.spec.plan


def gangs_of(namespace: str) -> str:
    """Return the collection of a namespace's Gangs."""
    return f"/apis/{API_VERSION}/namespaces/{namespace}/gangs"


def name_of(key: GangKey) -> str:
    """Return the name of a gang's object: a valid one, and another for each key.

    What can be kept of the mark's name is kept for people; the digest tells jobs apart that were
    submitted again under one name.
    """
    # Neither a namespace nor a uid can contain the separator.
    whole = "\0".join((key.namespace, key.owner, key.name))
    digest = sha256(whole.encode(errors="surrogatepass")).hexdigest()[:8]
    stem = _OUTSIDE.sub("-", key.name.lower())[: _NAME_MAX - 9].strip("-")
    return f"{stem or 'gang'}-{digest}"


def owners_of(job: Owner | None, members: Iterable[PodInfo]) -> tuple[Reference, ...]:
    """Return with whom a Gang goes: with its job, else with the last of its member pods."""
    if job is not None:
        return (Reference(job.api_version, job.kind, job.name, job.uid),)
    return tuple(Reference("v1", "Pod", member.name, member.uid) for member in members)


def new_gang(
    key: GangKey,
    owners: tuple[Reference, ...],
    *,
    size: int | None,
    link: Link,
    plan: GangPlan | None = None,
) -> Gang:
    """Return what is sent to create a gang's object, in `gangs_of` its namespace.

    Args:
        key: The gang.
        owners: With whom it goes.
        size: Members that are placed together; None where nothing tells.
        link: How strictly they insist on links.
        plan: Where they go, if they fit at once.
    """
    return Gang(
        metadata=GangMetadata(name_of(key), key.namespace, owner_references=owners),
        spec=GangSpec(_cut(key.name, _GANG_MAX), link, size, key.owner or None, plan),
        api_version=API_VERSION,
        kind="Gang",
    )


def plan_steps(gang: Gang, plan: GangPlan | None, *, size: int | None, link: Link) -> Steps:
    """Return the patch that gives a Gang another plan, or none, if it is still as it was read.

    Args:
        gang: As it was read, or as it was answered to the last write.
        plan: The new one, of another id; None where the gang waits again.
        size: Members that are placed together, by now.
        link: How strictly they insist on links, by now.
    """
    return [
        _test("/metadata/uid", gang.metadata.uid),
        _test("/metadata/resourceVersion", gang.metadata.resource_version),
        {"op": "replace", "path": "/spec/link", "value": link},
        *_put("/spec/size", gang.spec.size, size),
        # A merge patch would leave what the old plan has and the new one has not.
        *_put("/spec/plan", gang.spec.plan, plan),
    ]


def status_steps(gang: Gang, status: GangStatus) -> Steps:
    """Return the patch of `<path>/status` that says what is so now."""
    return [
        _test("/metadata/uid", gang.metadata.uid),
        {"op": "add", "path": "/status", "value": status},
    ]


def status_of(
    phase: Phase,
    *,
    members: tuple[int, int | None],
    held: Held = _NOTHING,
    reason: str = "",
    before: GangStatus | None = None,
    now: str,
) -> GangStatus:
    """Return what people are told; equal to `before` where nothing changed.

    Args:
        phase: How far it is.
        members: How many are there while some wait, else bound, of how many, if that is known.
        held: What they have.
        reason: Why it is not placed, for people.
        before: What they were told until now.
        now: RFC 3339.
    """
    told = _cut(reason, _REASON_MAX)

    def condition(kind: str, message: str, *, holds: bool) -> GangCondition:
        status = "True" if holds else "False"
        since = _since(before, kind, status) or now
        return GangCondition(kind, status, since, phase.value, message)

    assembled = phase in _ARE_ASSEMBLED
    return GangStatus(
        phase=phase,
        members=f"{members[0]}/{members[1] or '?'}",
        nodes=_names(tuple(one.node for one in held.nodes)),
        gpus=sum(len(one.gpus) for one in held.nodes),
        held=held.nodes,
        bandwidth=held.bandwidth,
        reason=told,
        conditions=(
            condition(_PLACED, told, holds=phase is Phase.PLACED),
            # After a change of leader, waiting is counted from here.
            condition(_ASSEMBLED, "" if assembled else told, holds=assembled),
        ),
    )


def held_nodes(pods: Iterable[tuple[str, Iterable[int]]]) -> tuple[NodeGPUs, ...]:
    """Return what pods have together, by node, given the node and the GPUs of each."""
    taken: dict[str, set[int]] = {}
    for node, gpus in pods:
        taken.setdefault(node, set()).update(gpus)
    return tuple(NodeGPUs(node, tuple(sorted(gpus))) for node, gpus in sorted(taken.items()))


def read_gang(raw: bytes | msgspec.Raw) -> Gang:
    """Return a Gang from its JSON.

    Raises:
        msgspec.DecodeError: It is none.
    """
    return _gangs.decode(raw)


_gangs = msgspec.json.Decoder(Gang)


def _names(nodes: tuple[str, ...]) -> str:
    """Return the names where they are short together, else how many there are; empty for none."""
    names = ",".join(nodes)
    return names if len(nodes) <= 1 or len(names) <= _NODES_MAX else f"{len(nodes)} nodes"


def _cut(text: str, longest: int) -> str:
    return text if len(text) <= longest else f"{text[: longest - 1]}…"


def _since(before: GangStatus | None, kind: str, status: str) -> str | None:
    """Return since when a condition has had this status; None where it has another."""
    conditions = before.conditions if before else ()
    found = (one for one in conditions if (one.type, one.status) == (kind, status))
    return next((one.last_transition_time for one in found), None)


def _put(path: str, old: object, new: object) -> Steps:
    if new is not None:
        return [{"op": "add", "path": path, "value": new}]
    return [] if old is None else [{"op": "remove", "path": path}]


def _test(path: str, value: str) -> dict[str, object]:
    return {"op": "test", "path": path, "value": value}
