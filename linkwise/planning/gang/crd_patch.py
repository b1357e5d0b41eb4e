"""Build what is written to the API server for a Gang: the object itself, and its patches."""

from collections.abc import Iterable, Sequence
from itertools import islice
from typing import TypeAlias

from linkwise.cluster.gang import GangKey, Link
from linkwise.cluster.keys import API_VERSION
from linkwise.cluster.objects.metadata import Owner
from linkwise.planning.gang.crd import (
    MEMBERS_MAX,
    Gang,
    GangMetadata,
    GangSpec,
    GangStatus,
    name_of,
    truncated,
)
from linkwise.planning.gang.crd_plan import GangPlan
from linkwise.planning.gang.pod_info import PodInfo
from linkwise.runtime.kube.objects import OwnerReference

_GANG_MAX = 253
_OWNERS_MAX = 64
"""Jobs of one gang that its object names."""

Steps: TypeAlias = list[dict[str, object]]
"""A JSON patch."""


def owners_of(
    job: Owner | None, members: Iterable[PodInfo], co_owners: Iterable[Owner] = ()
) -> tuple[OwnerReference, ...]:
    """Return the owners of a Gang: its jobs, else all its member pods."""
    if job is not None:
        jobs = (job, *islice(co_owners, _OWNERS_MAX - 1))
        return tuple(OwnerReference(one.api_version, one.kind, one.name, one.uid) for one in jobs)
    return tuple(OwnerReference("v1", "Pod", member.name, member.uid) for member in members)


def new_gang(
    key: GangKey,
    owners: tuple[OwnerReference, ...],
    *,
    size: int | None,
    link: Link,
    plan: GangPlan | None = None,
) -> Gang:
    """Return the object to create for a gang, in `gangs_of` its namespace.

    Args:
        key: The gang.
        owners: With the last of them it is deleted.
        size: Members that are placed together; None where it is unknown.
        link: How strictly they insist on links.
        plan: Their nodes and GPUs, if they fit now.
    """
    return Gang(
        metadata=GangMetadata(name_of(key), key.namespace, owner_references=owners),
        spec=GangSpec(truncated(key.name, _GANG_MAX), link, _stored(size), key.owner or None, plan),
        api_version=API_VERSION,
        kind="Gang",
    )


def plan_steps(
    gang: Gang,
    plan: GangPlan,
    *,
    size: int | None,
    link: Link,
    owners: Sequence[OwnerReference] = (),
) -> Steps:
    """Return the patch that replaces the plan, if the Gang is still as it was read.

    Args:
        gang: As it was read, or as the last write returned it.
        plan: The new one: of another id, or with other GPUs or fewer members.
        size: Members that are placed together now.
        link: How strictly they insist on links now.
        owners: The jobs of a gang of several.
    """
    return [
        _test("/metadata/uid", gang.metadata.uid),
        _test("/metadata/resourceVersion", gang.metadata.resource_version),
        {"op": "replace", "path": "/spec/link", "value": link},
        *_put("/spec/size", gang.spec.size, _stored(size)),
        # A merge patch would keep fields of the old plan that the new one does not have.
        {"op": "add", "path": "/spec/plan", "value": plan},
        *_joining(gang, owners),
    ]


def annotation_steps(gang: Gang, key: str, value: str) -> Steps:
    """Return the patch that sets an annotation, if the Gang is still as it was read."""
    path = f"/metadata/annotations/{key.replace('/', '~1')}"
    step: dict[str, object] = {"op": "add", "path": path, "value": value}
    if not gang.metadata.annotations:
        step = {"op": "add", "path": "/metadata/annotations", "value": {key: value}}
    return [
        _test("/metadata/uid", gang.metadata.uid),
        _test("/metadata/resourceVersion", gang.metadata.resource_version),
        step,
    ]


def status_steps(gang: Gang, status: GangStatus) -> Steps:
    """Return the patch of `<path>/status` that replaces the status."""
    return [
        _test("/metadata/uid", gang.metadata.uid),
        {"op": "add", "path": "/status", "value": status},
    ]


def _stored(size: int | None) -> int | None:
    """Return the size of a gang as its Gang has it: none above the limit, which waits for ever."""
    return size if size is None or size <= MEMBERS_MAX else None


def _joining(gang: Gang, owners: Sequence[OwnerReference]) -> Steps:
    """Return the steps that add jobs to those that a Gang names."""
    named = {each.uid for each in gang.metadata.owner_references}
    if not named or len(owners) < 2:
        return []
    added = [each for each in owners if each.uid not in named][: _OWNERS_MAX - len(named)]
    return [{"op": "add", "path": "/metadata/ownerReferences/-", "value": each} for each in added]


def _put(path: str, old: object, new: object) -> Steps:
    if new is not None:
        return [{"op": "add", "path": path, "value": new}]
    return [] if old is None else [{"op": "remove", "path": path}]


def _test(path: str, value: str) -> dict[str, object]:
    return {"op": "test", "path": path, "value": value}
